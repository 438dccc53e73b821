"""Rules applied to random graphs, in every way there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch._inductor.pattern_matcher import PatternMatcherPass

from benchmarks.compare_graphs import compare
from fusiondsl import ir
from fusiondsl.diagnostics.source import Source
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind, Report
from fusiondsl.graphs.saved import dumps, loads
from fusiondsl.ir.strata import PRIMITIVE
from tests.fuzz import oracle, planted, shipped_graphs
from tests.fuzz.case import Case, Target
from tests.fuzz.rule_sets import compiled, rule_set
from tests.fuzz.shipped_graphs import shipped

_SETS = 40
_LAB, _SHIPPED = "lab", "shipped"
_MOST_RUNS = 6


def _make(rng: Random) -> Case:
    while True:
        header, gm = (_of_shipped if rng.random() < 0.35 else _of_lab)(rng)
        # A change that is taken back may have left its guard: a size is a large number since.
        if planted.elements(gm.graph) <= planted.LARGEST:
            return _case(header, gm)


_Made: TypeAlias = tuple[dict[str, Any], fx.GraphModule]


def _of_lab(rng: Random) -> _Made:
    rules = rule_set(min(rng.randrange(_SETS), rng.randrange(_SETS)))
    gm = planted.graph_for(rules, rng)
    planted.changed(gm, rng)
    return {"rules": _LAB, "text": rules.text, "tokens": rng.choice(_TOKENS)}, gm


_TOKENS = (None, None, (2, 8), (2, 9), (8, 8), (9, 40))
"""First and last number of rows a graph is said to run with, or nothing is said."""


def _of_shipped(rng: Random) -> _Made:
    """What vLLM hands to its passes, or the source of a rule, changed a little."""
    arch, gm = shipped_graphs.source(rng)
    with oracle.on(arch):
        planted.changed(gm, rng)
    return {"rules": _SHIPPED, "arch": arch}, gm


def _case(header: dict[str, Any], gm: fx.GraphModule) -> Case:
    return Case((json.dumps(header) + "\n" + dumps(gm)).encode(), ".graph")


def _smaller(case: Case) -> Iterator[Case]:
    """Without a rule, without a result, without operations that nobody reads."""
    head, _, text = case.data.decode().partition("\n")
    header = json.loads(head)
    parts = header.get("text", "").split("\nrule ")
    for i in range(1, len(parts)):
        less = "\nrule ".join(parts[:i] + parts[i + 1 :])
        yield Case((json.dumps({**header, "text": less}) + "\n" + text).encode(), case.suffix)
    gm, _ = loads(Source("fuzzed.graph", text))
    gm.graph.eliminate_dead_code()
    if dumps(gm) != text:
        yield _case(header, gm)
    nodes = list(gm.graph.nodes)
    for i in reversed(range(len(nodes))):
        less_gm = _without(text, i)
        if less_gm is not None:
            yield _case(header, less_gm)


def _without(text: str, number: int) -> fx.GraphModule | None:
    """Without a node: its users read what it read first; the output loses a result."""
    gm, _ = loads(Source("fuzzed.graph", text))
    node = list(gm.graph.nodes)[number]
    output = gm.graph.output_node()
    (results,) = output.args
    if node in results:  # type: ignore[operator]
        output.args = (tuple(item for item in results if item is not node),)  # type: ignore[union-attr]
    elif node.users and node.all_input_nodes:
        node.replace_all_uses_with(node.all_input_nodes[0])
    elif node.users or node is output:
        return None
    if not node.users:
        gm.graph.erase_node(node)
    try:
        gm.graph.lint()
        planted.propagate(gm.graph)
    except Exception:
        return None
    return gm


# --- what must hold ------------------------------------------------------------------------------


def check_rewriting(case: Case) -> str:
    head, _, text = case.data.decode().partition("\n")
    header = json.loads(head)
    if header["rules"] == _LAB:
        tokens = header.get("tokens")
        return Check(compiled(header["text"]), text, tokens, LAB_KINDS).outcome(header["text"])
    with oracle.on(header["arch"]):
        return of_shipped(header["arch"], text).outcome(None)


def _writes_sources(program: ir.Program) -> bool:
    """Some rule writes a primitive that some source has."""
    written = {call.op for rule in program.rules for call in rule.replace}
    read = {call.op for rule in program.rules for call in rule.match}
    return any(op.startswith(PRIMITIVE) for op in written & read)


def of_shipped(arch: str, text: str) -> Check:
    kinds = _shipped_rescaled if "-224.0" in text else _shipped
    return Check(shipped(arch), text, shipped_graphs.TOKENS, kinds)


@dataclass(frozen=True)
class Kind:
    """A way to run a graph, and when two runs are the same."""

    rounded: bool
    same: oracle.Compare


LAB_KINDS = (Kind(True, oracle.exactly),)
_shipped = (Kind(True, oracle.nearly), Kind(False, oracle.unrounded))
_shipped_rescaled = (Kind(True, oracle.nearly), Kind(False, oracle.unrounded_rescaled))


class Check:
    """All that must hold for one graph; what computes another thing raises `AssertionError`."""

    def __init__(
        self,
        rules: CompiledRules,
        text: str,
        tokens: tuple[int, int] | None,
        kinds: tuple[Kind, ...],
    ) -> None:
        self.rules = rules
        self.text = text
        self.tokens = None if tokens is None else range(tokens[0], tokens[1] + 1)
        self.kinds = kinds
        first, last = tokens or (oracle.SIZE, oracle.SIZE)
        self.sizes = sorted({max(first, 2), min(last, 11)}) if last < 100 else [oracle.SIZE]
        self.small = not oracle.has_gates(text)
        # What a rule leaves where it is, or writes anew in primitives, can be part of another
        # source afterwards: only rules for what an op is the target of run after that op's rule.
        program = rules.program
        self.settles = not (any(rule.kept for rule in program.rules) or _writes_sources(program))
        self.settled = True

    def graph(self) -> fx.GraphModule:
        """Another copy, with a `ShapeEnv` of its own."""
        return loads(Source("fuzzed.graph", self.text))[0]

    def outcome(self, text: str | None) -> str:
        expected = self.expected()
        self._dry_run()
        gm = self.graph()
        report = self.rewritten(gm)
        self.compare(gm, expected)
        if text is not None:
            self._in_another_order(text, gm, report)
        self._in_a_pass(gm, expected)
        if not report.fired:
            return "untouched"
        return "fired" if expected else "fired, cannot run"

    def expected(self) -> list[tuple[Kind, int, Any]]:
        """What the graph computes, in every way and at every size; nothing where it cannot run."""
        try:
            return [
                (kind, size, self._run(self.graph(), kind, size))
                for kind in self.kinds
                for size in self.sizes
            ]
        except oracle.CannotRun:
            return []

    def compare(self, gm: fx.GraphModule, expected: list[tuple[Kind, int, Any]]) -> None:
        for kind, size, values in expected:
            kind.same(self._run(gm, kind, size), values)

    def _run(self, gm: fx.GraphModule, kind: Kind, size: int) -> tuple[Any, ...]:
        return oracle.run(gm, size, rounded=kind.rounded, small=self.small)

    def _dry_run(self) -> None:
        gm = self.graph()
        before, nodes = oracle.guards(gm.graph), list(gm.graph.nodes)
        printed = dumps(gm)
        self.rules.apply(gm, tokens=self.tokens, rewrite=False)
        assert oracle.guards(gm.graph) == before, "the ShapeEnv has changed"
        assert list(gm.graph.nodes) == nodes
        assert dumps(gm) == printed

    def rewritten(self, gm: fx.GraphModule) -> Report:
        before, nodes, printed = oracle.guards(gm.graph), set(gm.graph.nodes), dumps(gm)
        report = self.rules.apply(gm, tokens=self.tokens)
        assert oracle.guards(gm.graph) == before, "the ShapeEnv has changed"
        gm.graph.lint()
        oracle.check_new([node for node in gm.graph.nodes if node not in nodes])
        oracle.check_values(loads(Source("rewritten.graph", dumps(gm)))[0].graph)
        assert str(report)
        if not report.fired:
            assert dumps(gm) == printed
        again, _ = loads(Source("rewritten.graph", dumps(gm)))
        printed = str(again.graph)
        more = self.rules.apply(again, tokens=self.tokens).fired
        # An effect that stood in between may be gone once all is rewritten.
        blocked = any(refusal.kind is RefusalKind.EFFECT for refusal in report.settled)
        assert not more or not self.settles or blocked, "there was more to do"
        assert more or str(again.graph) == printed
        # In a pass another rule may come first to what a rule keeps.
        keeping = {rule.name for rule in self.rules.program.rules if rule.kept}
        self.settled = not more and not keeping & report.counts.keys()
        return report

    def _in_another_order(self, text: str, ours: fx.GraphModule, report: Report) -> None:
        """The order of rules in their file decides nothing."""
        parts = text.split("\nrule ")
        other = self.graph()
        shuffled = "\nrule ".join([parts[0], *reversed(parts[1:])])
        found = compiled(shuffled).apply(other, tokens=self.tokens)
        assert found.counts == report.counts
        assert str(other.graph) == str(ours.graph)
        assert set(found.refused) == set(report.refused)

    def _in_a_pass(self, ours: fx.GraphModule, expected: list[tuple[Kind, int, Any]]) -> None:
        """Registered in a pass of Inductor, and then as a graph pass for what that cannot do."""
        gm = self.graph()
        patterns = PatternMatcherPass()
        registration = self.rules.register(patterns, tokens=self.tokens)
        before = oracle.guards(gm.graph)
        for _ in range(_MOST_RUNS):
            patterns.apply(gm)
            if not registration.again:
                break
        assert oracle.guards(gm.graph) == before, "the ShapeEnv has changed"
        gm.graph.lint()
        parts = any(map(_writes_parts, self.graph().graph.nodes))
        if registration.needs_graph_pass or parts:
            self.rules.apply(gm, tokens=self.tokens)
        # What the pass has rewritten before the parts are seen may be some of a larger site.
        if self.settled and not parts:
            found = compare(ours, gm)
            assert found.equal, (found.only_left, found.only_right)
        else:
            self.compare(gm, expected)


def _writes_parts(node: fx.Node) -> bool:
    """The graph pass alone sees calls that write parts of their bases."""
    return node.target is auto_functionalized_v2 and any(
        name.endswith(("_storage_offset", "_slice_dim")) for name in node.kwargs
    )


ENGINE = Target("engine", _make, check_rewriting, 14, frozenset({"fired"}), 6, _smaller)
