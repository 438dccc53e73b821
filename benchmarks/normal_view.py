"""What the normal view costs: applying rules with it and without, on a graph that needs none of it.

`python -m benchmarks.normal_view` prints a Markdown table; with `--check` it fails above the limit.
Without, every operation is taken literally: no reshape or no-op is looked through, operands stay in
their order, calls that are the same are two, symbols that must be equal are not, and bases are what
they are. The graph is spelled as the rules have it, but for casts that change nothing and that no
graph has, so both ways find the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import fx

from benchmarks.apply import GRAPHS, RUNS, TARGET
from benchmarks.compare_graphs import compare
from benchmarks.model_graph import Shape, clone, decoder_graph
from benchmarks.rule_sets import RULES
from benchmarks.timing import Pair, cpu_ms, interleave
from fusiondsl import CompiledRules, load
from fusiondsl.engine import apply, match, site
from fusiondsl.engine.sizes import Sizes
from fusiondsl.engine.view import View

MOST = 1.25
"""How much longer applying may take with the normal view."""


@dataclass(frozen=True)
class Row:
    name: str
    nodes: int
    sites: int
    times: Pair
    """With the normal view and literally."""
    equal: bool
    """Both end in the same graph."""

    @property
    def ratio(self) -> float:
        """Of the fastest runs: other work only ever adds to a time."""
        return self.times.left.low / self.times.right.low

    @property
    def good(self) -> bool:
        return self.equal and self.ratio <= MOST


def _itself(view: View, value: Any, *, regroup: bool = False) -> Any:
    return value


LITERAL: tuple[tuple[Any, str, Any], ...] = (
    (View, "strip", _itself),
    (View, "canonical", _itself),
    (View, "behind_views", lambda view, value: [value]),
    (match, "orders", lambda call: (call.args,)),
    (site, "_collect_between", lambda view, found, arg: None),
    (site, "_duplicate", lambda view, found, user: None),
    (site, "_twins", lambda found, user: []),
    (Sizes, "equal", lambda sizes, bindings: {}),
    (apply, "opened_bases", lambda graph, bindings: nullcontext()),
)
"""What is looked through, and what stands there instead of looking."""


@contextmanager
def literally() -> Iterator[None]:
    """Within, graphs are taken as they are written."""
    with ExitStack() as stack:
        for owner, name, instead in LITERAL:
            stack.enter_context(patch.object(owner, name, instead))
        yield


def rules() -> CompiledRules:
    return load(RULES / "static_quant.fuse").compile(TARGET)


def measure(name: str, shape: Shape, repetitions: int, *, native: bool) -> Row:
    """Both ways in turn, each repetition on fresh copies of one graph."""
    graph = decoder_graph(shape, native=native)
    ways: tuple[Callable[[], Any], ...] = (nullcontext, literally)
    ready = [rules() for _ in ways]
    ends = [clone(graph) for _ in ways]
    sites = []
    for way, compiled, copy in zip(ways, ready, ends, strict=True):
        with way():
            sites.append(len(compiled.apply(copy.graph).fired))
    first, second = (
        partial(_apply_ms, way, compiled, graph) for way, compiled in zip(ways, ready, strict=True)
    )
    (times,) = interleave(first, [second], repetitions)
    same = sites[0] == sites[1] and compare(*ends).equal
    return Row(name, len(graph.graph.nodes), sites[0], times, same)


def _apply_ms(way: Callable[[], Any], compiled: CompiledRules, graph: fx.GraphModule) -> float:
    copies = [clone(graph) for _ in range(RUNS)]
    with way():
        return min(cpu_ms(partial(compiled.apply, copy.graph)) for copy in copies)


def print_rows(rows: Sequence[Row], layers: int) -> None:
    print(
        f"| {layers}-layer graph | nodes | sites | literally, ms | normal view, ms |"
        " ratio of the fastest | same graph |\n|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row.name} | {row.nodes:,} | {row.sites} | {row.times.right.format()} |"
            f" {row.times.left.format()} | {row.ratio:.2f} |"
            f" {'yes' if row.equal else 'NO'} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.normal_view", description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--check", action="store_true", help="fail above the limit")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    shape = Shape(layers=options.layers)
    rows = [
        measure(name, shape, options.repetitions, native=name == "decomposed") for name in GRAPHS
    ]
    print_rows(rows, options.layers)
    return int(options.check and not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
