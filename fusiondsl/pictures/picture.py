"""One graph as a page shows it: what `why` says of it, and what the rules make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from fusiondsl.engine import CompiledRules, Report
from fusiondsl.engine.why import Answer
from fusiondsl.engine.why.copies import copy_of
from fusiondsl.pictures.nodes import Look
from fusiondsl.target import Target


@dataclass(frozen=True)
class Picture:
    """A graph before and after, with the answer about each of its sites."""

    name: str
    before: Look
    after: Look
    answer: Answer
    report: Report
    proofs: dict[str, str]
    """What is proved about the rules that fired."""
    target: tuple[str, ...] = ()
    """What is known about where the graph runs, as the options of commands say it."""
    notes: tuple[str, ...] = ()
    """What is uncertain about the graph."""
    everything: bool = False
    """Also places where half of a source or less stands."""


def draw(
    rules: CompiledRules,
    graph: fx.GraphModule | fx.Graph,
    *,
    name: str = "graph",
    tokens: range | None = None,
    asked: Iterable[str] | None = None,
    site: str | None = None,
    top: int = 3,
    notes: Iterable[str] = (),
    rewrite: bool = False,
) -> Picture:
    """The picture of a graph, which is left as it is unless `rewrite` is true.

    `asked` are the names of the rules asked about, by default all; the graph afterwards is what all
    of them make of it.
    """
    names = None if asked is None else tuple(asked)
    answer = rules.why(graph, tokens=tokens, rules=names, site=site, top=top)
    inner = graph.graph if isinstance(graph, fx.GraphModule) else graph
    drawn: Any = graph if rewrite else copy_of(inner)
    drawn_graph = drawn.graph if isinstance(drawn, fx.GraphModule) else drawn
    before = Look.at(drawn_graph)
    report = rules.apply(drawn, tokens=tokens)
    return Picture(
        name,
        before,
        Look.at(drawn_graph),
        answer,
        report,
        {rule: str(rules.proof(rule)) for rule in report.counts},
        tuple(_told(rules.target, tokens)),
        tuple(notes),
        everything=names is not None or site is not None,
    )


def _told(target: Target, tokens: range | None) -> Iterator[str]:
    if target.arch is not None:
        yield target.arch
    if target.tp_size is not None:
        yield f"tp {target.tp_size}"
    for name, value in sorted(target.facts.items()):
        yield f"{name}={str(value).lower() if isinstance(value, bool) else value}"
    if tokens is not None:
        yield f"tokens {tokens.start}:{tokens.stop - 1}"
