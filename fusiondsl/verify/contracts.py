"""Holds graphs to the contracts of rule files: all rules are tried on them, and sites counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fusiondsl import ir
from fusiondsl.diagnostics.diagnostic import Diagnostic, FusionError
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.why import Answer, SiteAnswer, audit_of
from fusiondsl.engine.why.show import several
from fusiondsl.engine.why.text import in_short
from fusiondsl.graphs import ReadGraph, read
from fusiondsl.graphs.named import select
from fusiondsl.ir.contracts import file_of
from fusiondsl.target import ENV_FACTS, Target
from fusiondsl.target import Answer as Said
from fusiondsl.verify.examples import target_with

_Told: TypeAlias = list[tuple[str, Answer]]
"""Graphs by name, and what all rules do in each."""


@dataclass(frozen=True, slots=True)
class Held:
    """What came of one contract."""

    expect: ir.Expect
    found: int | None
    """How many sites there are; None where a graph cannot be read."""
    message: str = ""
    """What is in the way of the first one that is missing, or where those too many are."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def passed(self) -> bool:
        return self.found == self.expect.sites


def run_contracts(
    program: ir.Program,
    target: Target,
    expects: Iterable[ir.Expect],
    tokens: range | None = None,
) -> Iterator[Held]:
    """Every contract, in order; `target` and `tokens` are for what a contract leaves open.

    A graph is read once, and asked once for all contracts that give the same.
    """
    listed = list(expects)
    graphs = _Graphs(program)
    asked: dict[object, list[str]] = {}
    for expect in listed:
        asked.setdefault(_circumstances(expect), []).append(expect.rule)
    answers: dict[object, _Told | FusionError] = {}
    for expect in listed:
        key = _circumstances(expect)
        if key not in answers:
            rules = CompiledRules(program, target_of(expect, program, target))
            answers[key] = graphs.ask(expect, rules, asked[key], tokens)
        yield _held(expect, answers[key])


def target_of(expect: ir.Expect, program: ir.Program, base: Target) -> Target:
    """What a contract is about: `base`, and what the contract gives."""
    facts = {name: value for name, value in expect.given if name in ENV_FACTS}
    said = [Said(name, bool(v)) for name, v in expect.given if name in program.predicates]
    return target_with(base, facts, said)


def tokens_of(expect: ir.Expect, otherwise: range | None) -> range | None:
    if expect.tokens is None:
        return otherwise
    low, high = expect.tokens
    return range(low, high + 1)


def _circumstances(expect: ir.Expect) -> object:
    return expect.path, expect.given, expect.tokens


class _Graphs:
    """The graphs of files, each file read once."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._read: dict[str, list[tuple[int, ReadGraph]]] = {}

    def ask(
        self, expect: ir.Expect, rules: CompiledRules, asked: list[str], tokens: range | None
    ) -> _Told | FusionError:
        counts = tokens_of(expect, tokens)
        try:
            return [
                (graph.name, rules.why(graph.gm, tokens=counts, rules=asked, top=0))
                for graph in self._named(expect.path)
            ]
        except FusionError as error:
            return error

    def _named(self, path: str) -> list[ReadGraph]:
        file = file_of(path)
        if file not in self._read:
            found = read(file, program=self._program)
            self._read[file] = list(enumerate(found, start=1))
        return [graph for _, graph in select(path, file, self._read[file])]


def _held(expect: ir.Expect, told: _Told | FusionError) -> Held:
    if isinstance(told, FusionError):
        first, *_ = told.diagnostics
        placed = tuple(item for item in told.diagnostics if item.span is not None)
        return Held(expect, None, first.message, placed)
    found = sum(audit_of(answer).of(expect.rule).sites for _, answer in told)
    if found < expect.sites:
        return Held(expect, found, _missing(expect, told))
    return Held(expect, found, _known(expect, told) if found > expect.sites else "")


def _missing(expect: ir.Expect, told: _Told) -> str:
    """The first cause of the nearest miss; else what there is to say about the rule."""
    near = [
        (name, site)
        for name, answer in told
        for site in answer.of(expect.rule).near
        if site.is_near and site.causes
    ]
    if near:
        name, site = min(near, key=_rank)
        return f"{_where(name, site, told)}: {in_short(site)}"
    causes = [cause for _, answer in told for cause in answer.of(expect.rule).causes]
    return f"{causes[0].code}: {causes[0].message}" if causes else "nothing comes close"


def _rank(near: tuple[str, SiteAnswer]) -> tuple[float, int]:
    site = near[1]
    return -site.matched / max(site.calls, 1), len(site.causes)


def _known(expect: ir.Expect, told: _Told) -> str:
    nodes = [
        site.node
        for _, answer in told
        for site in answer.of(expect.rule).sites
        if site.fired or site.is_fused
    ]
    return f"at {several(nodes)}"


def _where(name: str, site: SiteAnswer, told: Sequence[object]) -> str:
    return f"at {site.node}" if len(told) == 1 else f"at {site.node} of {name}"
