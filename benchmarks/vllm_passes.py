"""What vLLM 0.32's own passes for AITER cost, against rules that do the same, on the same graph.

`python -m benchmarks.vllm_passes`, with the Python of an environment that has vLLM, prints Markdown
tables; with `--check` it fails below the targets. CPU time with one torch thread; each side has a
process of its own, as in use, and they are measured in turn: medians of the repetitions. Passes are
made and rules loaded when an engine starts, so that is measured where there are no graphs yet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import torch
from torch import fx
from torch._inductor.fx_utils import FakeTensorUpdater
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch._inductor.virtualized import V

import fusiondsl
from benchmarks.sides import Questions, Side
from benchmarks.timing import Pair, Spread, cpu_ms, interleave
from fusiondsl import artifact, ir
from fusiondsl.resources import patterns_root
from tests.pairs.values import Values
from tests.support.rocm_vllm import CACHING, PASSES, TP_GROUP, TP_SIZE, RocmVllm

CUSTOM_OPS = ("+quant_fp8", "+silu_and_mul")
TOKENS = range(1, 8193)
RUNS = 5
"""How often a repetition runs what takes milliseconds."""

FACTS = ("env.aiter", "env.vllm", "env.aiter_dynamic_hidden", "env.aiter_allreduce_group_quant")
TARGET = fusiondsl.Target(
    arch="gfx950", tp_size=TP_SIZE, tp_group=TP_GROUP, facts=dict.fromkeys(FACTS, True)
)

EQUIVALENT = (
    "allreduce_rms_norm",
    "allreduce_add_rms_norm",
    "allreduce_gemma_rms_norm",
    "allreduce_add_gemma_rms_norm",
    "allreduce_rms_norm_group_quant",
    "allreduce_add_rms_norm_group_quant",
    "allreduce_add_rms_norm_group_quant_with_norm",
    "rms_norm_per_token_quant",
    "add_rms_norm_per_token_quant",
    "rms_norm_group_quant",
    "add_rms_norm_group_quant",
    "gated_rms_norm_group_quant",
    "gated_rms_norm_flat_group_quant",
    "silu_mul_group_quant",
    "add_rms_norm_pad_beside",
    "mla_dual_rms_norm",
    "mla_dual_rms_norm_per_token_quant",
    "mla_dual_rms_norm_group_quant",
)
"""The rules for what the five passes have patterns for."""

LOAD, LOAD_IN_PASS = "equivalent rules, ready", "equivalent rules, registered"
LOAD_ALL = "full library, ready"
APPLY, APPLY_IN_PASS = "as a graph pass", "in a `PatternMatcherPass`"
NOTHING, FUSED = "another model", "the same graph, fused"

PATTERNS = "patterns"

LOADING = {LOAD: LOAD, LOAD_IN_PASS: LOAD, LOAD_ALL: LOAD}
APPLYING = {APPLY: APPLY, APPLY_IN_PASS: APPLY, NOTHING: NOTHING, FUSED: FUSED}
"""What is measured of rules, and of vLLM's passes beside it."""

MIN_RATIO = {
    LOAD: 100.0,
    APPLY: 200.0,
    APPLY_IN_PASS: 45.0,
    NOTHING: 100.0,
}


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    """Patterns, sites or nodes: what the time is spent on."""
    times: Pair
    equal: bool = True

    @property
    def target(self) -> float | None:
        return MIN_RATIO.get(self.name)

    @property
    def good(self) -> bool:
        return self.equal and (self.target is None or self.times.ratio.median >= self.target)


# --- the rules ------------------------------------------------------------------------------------


def equivalent(program: ir.Program) -> ir.Program:
    """The program with those rules only, and with the ops they need."""
    rules = tuple(rule for rule in program.rules if rule.name in EQUIVALENT)
    assert len(rules) == len(EQUIVALENT)
    needed: set[str] = set()
    found = [op for rule in rules for op in (*_called(rule.match), *_called(rule.replace))]
    while found:
        name = found.pop()
        if name not in needed and name in program.ops:
            needed.add(name)
            found += _mentioned(program.ops[name])
    ops = {name: decl for name, decl in program.ops.items() if name in needed}
    return replace(program, rules=rules, ops=ops)


def _mentioned(decl: ir.OpDecl) -> Iterator[str]:
    for form in decl.forms:
        yield from _called(form.body)
    yield from _called(decl.means or ())


def _called(steps: Sequence[ir.Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, ir.Call):
            yield step.op
        else:
            yield from _called(step.then)
            yield from _called(step.otherwise)


def ready(data: bytes) -> fusiondsl.CompiledRules:
    """Rules from an artifact's bytes, so far that the next graph can be rewritten."""
    loaded = artifact.loads(data)
    rules = fusiondsl.CompiledRules(loaded.program, loaded.target)
    assert rules.plan.strata
    return rules


# --- both sides -----------------------------------------------------------------------------------


def compare(left: Side, right: Side, ways: Mapping[str, str], repetitions: int) -> dict[str, Pair]:
    """Asks both sides in turn; `ways` are questions for the right one, with the left one's."""
    pairs: dict[str, Pair] = {}
    for question in dict.fromkeys(ways.values()):
        names = [name for name, asked in ways.items() if asked == question]
        times = interleave(
            partial(left.ask, question), [partial(right.ask, name) for name in names], repetitions
        )
        pairs.update(zip(names, times, strict=True))
    return pairs


def their_loading() -> Questions:
    """How long vLLM takes to make its passes, which it has done once before."""
    build = partial(_build_all, _prepared())
    passes = build()
    return {PATTERNS: lambda: sum(map(_patterns, passes)), LOAD: lambda: cpu_ms(build)}


def our_loading() -> Questions:
    """How long rules take to load; artifacts are in memory, and all was done once before."""
    _prepared()
    ours, library = map(artifact_of, (equivalent(all_rules()), all_rules()))
    loads: dict[str, Callable[[], object]] = {
        LOAD: partial(ready, ours),
        LOAD_IN_PASS: partial(registered, ours),
        LOAD_ALL: partial(ready, library),
    }
    return _asked_once({name: partial(_median_ms, load) for name, load in loads.items()})


def their_applying(layers: int) -> Questions:
    """How long vLLM's passes take."""
    vllm = _prepared()
    passes = _build_all(vllm)
    models = _models(layers)
    bench = Bench(vllm, passes, models[APPLY])
    plain = Bench(vllm, passes, models[NOTHING])
    again = Bench(vllm, passes, bench.rewritten(bench.theirs))
    return {
        APPLY: lambda: bench.ms(bench.theirs, 1),
        NOTHING: lambda: plain.ms(plain.theirs, 1),
        FUSED: lambda: again.ms(again.theirs, 1),
    }


def our_applying(layers: int) -> Questions:
    """How long rules take to rewrite graphs, which was done once before."""
    vllm = _prepared()
    models = _models(layers)
    rules, shipped = map(ready, map(artifact_of, (equivalent(all_rules()), all_rules())))
    bench, plain = Bench(vllm, (), models[APPLY]), Bench(vllm, (), models[NOTHING])
    again = Bench(vllm, (), bench.rewritten(graph_pass(rules)))
    for nothing in (plain, again):
        assert not shipped.apply(nothing.copy(), tokens=TOKENS).fired
    applied = {
        APPLY: (bench, graph_pass(rules)),
        APPLY_IN_PASS: (bench, pattern_pass(rules)),
        NOTHING: (plain, graph_pass(shipped)),
        FUSED: (again, graph_pass(shipped)),
    }
    return _asked_once(
        {name: partial(graph.ms, rewrite, RUNS) for name, (graph, rewrite) in applied.items()}
    )


def _asked_once(questions: Questions) -> Questions:
    for question in questions.values():
        question()
    return questions


def _prepared() -> RocmVllm:
    torch.set_num_threads(1)
    return RocmVllm("gfx950")


def _models(layers: int) -> dict[str, fx.GraphModule]:
    graphs = import_module("benchmarks.vllm_graph")  # its ops stand in where vLLM has none
    shape = graphs.LatentShape(layers=layers)
    return {
        APPLY: graphs.LatentDecoder(shape, TP_GROUP).build(),
        NOTHING: graphs.PlainDecoder(shape, TP_GROUP).build(),
    }


def all_rules() -> ir.Program:
    return fusiondsl.load(patterns_root()).program


def artifact_of(program: ir.Program) -> bytes:
    return artifact.dumps(program, TARGET)


# --- loading --------------------------------------------------------------------------------------


def load_rows(program: ir.Program, patterns: int, pairs: Mapping[str, Pair]) -> list[Row]:
    sizes = {name: len(artifact_of(equivalent(program))) for name in (LOAD, LOAD_IN_PASS)}
    sizes[LOAD_ALL] = len(artifact_of(program))
    return [
        Row(name, f"{patterns} patterns, {size:,} bytes", pairs[name])
        for name, size in sizes.items()
    ]


def registered(data: bytes) -> None:
    ready(data).register(PatternMatcherPass(), tokens=TOKENS)


def _build_all(vllm: RocmVllm) -> list[Any]:
    """All but one: latent attention has no keys that it turns and writes into a cache."""
    return [vllm.build(name, CUSTOM_OPS) for name in PASSES if name != CACHING]


def _patterns(fusion_pass: Any) -> int:
    return sum(map(len, _matcher(fusion_pass).patterns.values()))


def _matcher(fusion_pass: Any) -> PatternMatcherPass:
    matcher: PatternMatcherPass = (
        fusion_pass.pm_pass if hasattr(fusion_pass, "pm_pass") else fusion_pass.patterns
    )
    return matcher


def _median_ms(action: Callable[[], object]) -> float:
    return median(cpu_ms(action) for _ in range(RUNS))


# --- applying -------------------------------------------------------------------------------------


Rewrite = Callable[[fx.GraphModule], object]


class Bench:
    """One graph, and the ways to rewrite it."""

    def __init__(self, vllm: RocmVllm, passes: Sequence[Any], graph: fx.GraphModule) -> None:
        self.vllm = vllm
        self.passes = passes
        self.graph = graph
        self._clone = import_module("benchmarks.model_graph").clone

    def theirs(self, module: fx.GraphModule) -> None:
        for fusion_pass in self.passes:
            fusion_pass(module.graph)

    def rewritten(self, rewrite: Rewrite) -> fx.GraphModule:
        copy = self.copy()
        rewrite(copy)
        self.vllm.clean_up(copy)
        return copy

    def copy(self) -> fx.GraphModule:
        copy: fx.GraphModule = self._clone(self.graph)
        return copy

    def ms(self, rewrite: Rewrite, runs: int) -> float:
        copies = [self.copy() for _ in range(runs)]
        return median(cpu_ms(partial(rewrite, copy)) for copy in copies)


def graph_pass(rules: fusiondsl.CompiledRules) -> Rewrite:
    return lambda module: rules.apply(module.graph, tokens=TOKENS)


def pattern_pass(rules: fusiondsl.CompiledRules) -> Rewrite:
    """The registrations, run as often as they ask for: one of the fusions is a chain."""
    patterns = PatternMatcherPass()
    registration = rules.register(patterns, tokens=TOKENS)

    def run(module: fx.GraphModule) -> None:
        patterns.apply(module.graph)
        while registration.again:
            patterns.apply(module.graph)

    return run


def apply_rows(
    bench: Bench, fused: fx.GraphModule, rules: fusiondsl.CompiledRules, pairs: Mapping[str, Pair]
) -> list[Row]:
    """Whether the graphs are the same; `fused` is what vLLM makes of it."""
    ways = {APPLY: graph_pass(rules), APPLY_IN_PASS: pattern_pass(rules)}
    expected = described(fused, rules.program)
    assert expected != described(bench.graph, rules.program)
    equal = {
        name: described(bench.rewritten(rewrite), rules.program) == expected
        for name, rewrite in ways.items()
    }
    fired = sum(rules.apply(bench.copy(), tokens=TOKENS).counts.values())
    what = f"{len(bench.graph.graph.nodes):,} nodes, {fired} rewritings"
    return [Row(name, what, pairs[name], equal[name]) for name in ways]


def nothing_rows(graphs: Mapping[str, fx.GraphModule], pairs: Mapping[str, Pair]) -> list[Row]:
    """Graphs in which neither side finds anything, with all shipped rules loaded."""
    return [
        Row(name, f"{len(module.graph.nodes):,} nodes", pairs[name])
        for name, module in graphs.items()
    ]


# --- the same graph -------------------------------------------------------------------------------


class _Shared(Values):
    """Expressions in which a value that is used again is named, not repeated."""

    def __init__(self, program: ir.Program) -> None:
        defaults: dict[str, list[list[Any]]] = {
            "vllm::rocm_aiter_fused_allreduce_rmsnorm": [[4, False]]
        }
        super().__init__(program, defaults)
        self.names: dict[Any, tuple[str, int]] = {}

    def _value(self, node: fx.Node) -> tuple[Any, ...]:
        value = super()._value(node)
        if value[0] not in ("call", "item", "slice"):
            return value
        return self.names.setdefault(value, ("value", len(self.names)))


def described(module: fx.GraphModule, program: ir.Program) -> tuple[object, object]:
    """All that a graph computes and returns, sizes by their value and our ops by the kernel."""
    shared = _Shared(program)
    outputs = shared.outputs(module.graph)
    written: dict[tuple[str, int], object] = {}
    for value, name in shared.names.items():
        written[name] = hash(_resolved(value, written))
    return sorted(map(str, written.values())), [_resolved(value, written) for value in outputs]


def _resolved(value: Any, written: dict[tuple[str, int], object]) -> Any:
    """The value with names that do not depend on the order of nodes."""
    if value in written:
        return written[value]
    if isinstance(value, tuple):
        return tuple(_resolved(part, written) for part in value)
    return value


# --- what follows in Inductor ---------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """A pass and Inductor's FakeTensorUpdater behind it."""

    name: str
    total: Spread
    update: Spread
    redone: int
    """Nodes whose value the updater replaced."""


def measure_updates(bench: Bench, ways: dict[str, Rewrite], repetitions: int) -> list[Update]:
    measured: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, rewrite in ways.items():
            measured[name].append(_update(bench, rewrite))
    return [
        Update(
            name,
            Spread.of(a + b for a, b, _ in rows),
            Spread.of(b for _, b, _ in rows),
            rows[0][2],
        )
        for name, rows in measured.items()
    ]


def _update(bench: Bench, rewrite: Rewrite) -> tuple[float, float, int]:
    """Milliseconds of the pass, of the update, and how many values changed in it."""
    copy = bench.copy()
    updater = FakeTensorUpdater(copy)
    rewriting = cpu_ms(partial(rewrite, copy))
    bench.vllm.clean_up(copy)
    redone: list[int] = []
    with V.set_fake_mode(_fake_mode(copy)):
        updating = cpu_ms(lambda: redone.append(updater.incremental_update()))
    return rewriting, updating, redone[0]


def _fake_mode(module: fx.GraphModule) -> Any:
    return next(
        node.meta["val"].fake_mode
        for node in module.graph.nodes
        if isinstance(node.meta.get("val"), torch._subclasses.FakeTensor)
    )


def without_values(rewrite: Rewrite) -> Rewrite:
    """The same rewriting by a pass that leaves it to Inductor what its new nodes are."""

    def run(module: fx.GraphModule) -> None:
        before = set(module.graph.nodes)
        rewrite(module)
        for node in module.graph.nodes:
            if node not in before:
                node.meta.pop("val", None)

    return run


# --- printing -------------------------------------------------------------------------------------


def print_rows(title: str, rows: Sequence[Row], digits: int = 1) -> None:
    print(f"| {title} | | vLLM, ms | fusiondsl, ms | ratio | target | same graph |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        target = "" if row.target is None else f">= {row.target:.0f}"
        missed = "" if row.good else " missed"
        print(
            f"| {row.name} | {row.what} | {row.times.left.format(0)} |"
            f" {row.times.right.format(digits)} | {row.times.ratio.format(0)} |"
            f" {target}{missed} | {'yes' if row.equal else 'NO'} |"
        )
    print()


def print_updates(updates: Sequence[Update]) -> None:
    print("| pass and FakeTensorUpdater | together, ms | updater, ms | values replaced |")
    print("|---|---|---|---|")
    for update in updates:
        print(
            f"| {update.name} | {update.total.format(0)} | {update.update.format(0)} |"
            f" {update.redone:,} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_passes", description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail below the targets")
    options = parser.parse_args(argv)
    with Side(their_loading) as theirs, Side(our_loading) as ours:
        patterns: int = theirs.ask(PATTERNS)
        pairs = compare(theirs, ours, LOADING, options.repetitions)
    layers = options.layers
    with Side(their_applying, layers) as theirs, Side(our_applying, layers) as ours:
        pairs |= compare(theirs, ours, APPLYING, options.repetitions)

    vllm, models, program = _prepared(), _models(options.layers), all_rules()
    loads = load_rows(program, patterns, pairs)
    print_rows("load", loads)
    bench = Bench(vllm, _build_all(vllm), models[APPLY])
    rules = ready(artifact_of(equivalent(program)))
    fused = bench.rewritten(bench.theirs)
    applied = apply_rows(bench, fused, rules, pairs)
    print_rows("apply", applied)
    nothing = nothing_rows({NOTHING: models[NOTHING], FUSED: fused}, pairs)
    print_rows("nothing to match", nothing)
    sys.stdout.flush()
    ways = {
        "vLLM": bench.theirs,
        "fusiondsl": graph_pass(rules),
        "fusiondsl, without values of its new nodes": without_values(graph_pass(rules)),
        "nothing": lambda _module: None,
    }
    print_updates(measure_updates(bench, ways, min(options.repetitions, 3)))
    good = all(row.good for row in (*loads, *applied, *nothing))
    return int(options.check and not good)


if __name__ == "__main__":
    sys.exit(main())
