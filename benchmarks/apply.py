"""What applying rules to a large graph costs, against the same rules in `register_replacement`.

`python -m benchmarks.apply` prints two Markdown tables; with `--check` it fails below the targets.
CPU time of one process with one torch thread; medians of repetitions run in turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import fx
from torch._inductor.pattern_matcher import PatternMatcherPass

import fusiondsl
from benchmarks import rule_sets
from benchmarks.baseline import static_quant_patterns
from benchmarks.compare_graphs import compare
from benchmarks.model_graph import Shape, clone, decoder_graph
from benchmarks.rule_sets import RuleSet
from benchmarks.timing import Pair, Spread, cpu_ms, interleave

TARGET = fusiondsl.Target(arch="gfx950", tp_size=2)

GRAPHS = ("op forms", "decomposed")
IN_PASS = ", in a `PatternMatcherPass`"
MIN_RATIO = {
    "op forms": 200.0,
    "decomposed": 50.0,
    "op forms" + IN_PASS: 45.0,
    "decomposed" + IN_PASS: 20.0,
}
RUNS = 5
"""How often a repetition applies our rules."""
MAX_GROWTH = 1.5
"""How much longer matching 400 rules may take than matching 7."""


@dataclass(frozen=True)
class ApplyRow:
    name: str
    nodes: int
    sites: int
    times: Pair
    cold_ms: float
    """The first apply, when the fake of every fused op is run once and checked."""
    equal: bool

    @property
    def good(self) -> bool:
        return self.equal and self.times.ratio.median >= MIN_RATIO[self.name]


@dataclass(frozen=True)
class MatchRow:
    name: str
    rules: int
    compile_ms: float
    match: Spread
    growth: Spread
    """Against the first row, repetition by repetition."""

    @property
    def good(self) -> bool:
        return self.growth.median <= MAX_GROWTH


def compare_apply(name: str, shape: Shape, repetitions: int, *, native: bool) -> list[ApplyRow]:
    """Rewrite copies of one graph by hand-written patterns and both ways by rules, in turn."""
    graph = decoder_graph(shape, native=native)
    patterns = static_quant_patterns(shape.eps, native=native)
    theirs = clone(graph)
    patterns.apply(theirs.graph)
    sites = len(_rules().apply(clone(graph), rewrite=False).fired)
    ways = {name: _rules().apply, name + IN_PASS: _in_pass(_rules())}
    ours = {way: clone(graph) for way in ways}
    cold = {way: cpu_ms(partial(apply, ours[way].graph)) for way, apply in ways.items()}
    times = interleave(
        lambda: _baseline_ms(patterns, graph),
        [partial(_apply_ms, apply, graph) for apply in ways.values()],
        repetitions,
    )
    nodes = len(graph.graph.nodes)
    return [
        ApplyRow(way, nodes, sites, pair, cold[way], compare(theirs, ours[way]).equal)
        for way, pair in zip(ways, times, strict=True)
    ]


def _rules() -> fusiondsl.CompiledRules:
    return fusiondsl.load(rule_sets.RULES / "static_quant.fuse").compile(TARGET)


def _in_pass(rules: fusiondsl.CompiledRules) -> Callable[[fx.Graph], object]:
    patterns = PatternMatcherPass(pass_name="static_quant")
    rules.register(patterns)
    return patterns.apply


def _baseline_ms(patterns: PatternMatcherPass, graph: fx.GraphModule) -> float:
    copy = clone(graph)
    return cpu_ms(lambda: patterns.apply(copy.graph))


def _apply_ms(apply: Callable[[fx.Graph], object], graph: fx.GraphModule) -> float:
    """The median of a few runs: one is too short to time beside the baseline's."""
    copies = [clone(graph) for _ in range(RUNS)]
    return median(cpu_ms(partial(apply, copy.graph)) for copy in copies)


def compare_rule_counts(shape: Shape, sets: Sequence[RuleSet], repetitions: int) -> list[MatchRow]:
    """Match without rewriting, with few rules and with many, in turn."""
    graph = decoder_graph(shape)
    compiled = [_compile(rule_set) for rule_set in sets]
    times: list[list[float]] = [[] for _ in sets]
    for _ in range(repetitions):
        for (rules, _), measured in zip(compiled, times, strict=True):
            measured.append(_match_ms(rules, graph))
    return [
        MatchRow(
            rule_set.name,
            rule_set.rules,
            compile_ms,
            Spread.of(measured),
            Spread.of(a / b for a, b in zip(measured, times[0], strict=True)),
        )
        for rule_set, (_, compile_ms), measured in zip(sets, compiled, times, strict=True)
    ]


def _compile(rule_set: RuleSet) -> tuple[fusiondsl.CompiledRules, float]:
    rules = fusiondsl.load(*rule_set.files).compile(TARGET)
    return rules, cpu_ms(lambda: rules.plan)


def _match_ms(rules: fusiondsl.CompiledRules, graph: fx.GraphModule) -> float:
    return median(cpu_ms(lambda: rules.apply(graph, rewrite=False)) for _ in range(RUNS))


def print_apply(rows: Sequence[ApplyRow]) -> None:
    print(
        "| 80-layer graph | nodes | sites | `register_replacement`, ms | fusiondsl, ms |"
        " first apply, ms | ratio | same graph |\n|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row.name} | {row.nodes:,} | {row.sites} | {row.times.left.format(0)} |"
            f" {row.times.right.format()} | {row.cold_ms:.1f} | {row.times.ratio.format(0)} |"
            f" {'yes' if row.equal else 'NO'} |"
        )


def print_match(rows: Sequence[MatchRow]) -> None:
    print("\n| rules | compile, ms | match only, ms | against 7 rules |\n|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.name} | {row.compile_ms:.0f} | {row.match.format()} | {row.growth.format(2)} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apply", description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail below the targets")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    shape = Shape(layers=options.layers)
    applied = [
        row
        for name in GRAPHS
        for row in compare_apply(name, shape, options.repetitions, native=name == "decomposed")
    ]
    print_apply(applied)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sets = (
            rule_sets.seven(),
            rule_sets.distinct_ops(directory),
            rule_sets.one_anchor(directory),
        )
        matched = compare_rule_counts(shape, sets, max(options.repetitions, 9))
    print_match(matched)
    good = all(row.good for row in applied) and all(row.good for row in matched)
    return int(options.check and not good)


if __name__ == "__main__":
    sys.exit(main())
