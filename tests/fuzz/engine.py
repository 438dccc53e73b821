"""Rules applied to random graphs, in every way there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from torch import fx
from torch._inductor.pattern_matcher import PatternMatcherPass

from benchmarks.compare_graphs import compare
from fusiondsl.diagnostics.source import Source
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Report
from fusiondsl.graphs import read
from fusiondsl.graphs.saved import dumps, loads
from fusiondsl.ops.registry import register
from tests.fuzz import oracle, planted
from tests.fuzz.case import Case, Target
from tests.fuzz.rule_sets import compiled, rule_set
from tests.pairs import test_pairs as pairs
from tests.support.extern_ops import register_extern_ops

_SETS = 40
_LAB, _SHIPPED = "lab", "shipped"
_MOST_RUNS = 6
_LARGEST = 60_000


def _make(rng: Random) -> Case:
    if rng.random() < 0.3:
        return _of_shipped(rng)
    rules = rule_set(min(rng.randrange(_SETS), rng.randrange(_SETS)))
    gm = planted.graph_for(rules, rng)
    planted.changed(gm, rng)
    return _case({"rules": _LAB, "text": rules.text}, gm)


def _of_shipped(rng: Random) -> Case:
    """What vLLM hands to its passes, changed a little."""
    stem = rng.choice(sorted(pairs.PAIRS))
    arch = pairs.PAIRS[stem]["arch"]
    shipped(arch)
    text = _on_cpu((pairs.CASES / f"{stem}.before.txt").read_text())
    (graph,) = read(text, program=pairs.rules(arch).program, device="cpu")
    planted.changed(graph.gm, rng)
    return _case({"rules": _SHIPPED, "arch": arch}, graph.gm)


def _on_cpu(text: str) -> str:
    return text.replace("cuda:0", "cpu").replace("device(type='cuda', index=0)", "'cpu'")


def _case(header: dict[str, Any], gm: fx.GraphModule) -> Case:
    return Case((json.dumps(header) + "\n" + dumps(gm)).encode(), ".graph")


@cache
def shipped(arch: str) -> CompiledRules:
    """The shipped rules; every op of theirs can be called."""
    rules = pairs.rules(arch)
    register_extern_ops(rules.program)
    register(rules.program)
    return rules


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
        return _Check(compiled(header["text"]), text, None, oracle.exactly).outcome(header["text"])
    first, last = pairs.INDEX["tokens"]
    rules = shipped(header["arch"])
    return _Check(rules, text, range(first, last + 1), oracle.nearly).outcome(None)


class _Check:
    def __init__(
        self, rules: CompiledRules, text: str, tokens: range | None, same: oracle.Compare
    ) -> None:
        self.rules = rules
        self.text = text
        self.tokens = tokens
        self.same = same
        # What a rule leaves where it is can be part of another source afterwards.
        self.settles = not any(rule.kept for rule in rules.program.rules)

    def graph(self) -> fx.GraphModule:
        """Another copy, with a `ShapeEnv` of its own."""
        return loads(Source("fuzzed.graph", self.text))[0]

    def outcome(self, text: str | None) -> str:
        try:
            expected = oracle.run(self.graph())
        except oracle.CannotRun:
            expected = None
        self._dry_run()
        gm = self.graph()
        report = self._rewritten(gm)
        if expected is not None:
            self.same(oracle.run(gm), expected)
        if text is not None:
            self._in_another_order(text, gm, report)
        self._in_a_pass(gm, expected)
        if not report.fired:
            return "untouched"
        return "fired" if expected is not None else "fired, cannot run"

    def _dry_run(self) -> None:
        gm = self.graph()
        before, nodes = oracle.guards(gm.graph), list(gm.graph.nodes)
        printed = dumps(gm)
        self.rules.apply(gm, tokens=self.tokens, rewrite=False)
        assert oracle.guards(gm.graph) == before, "the ShapeEnv has changed"
        assert list(gm.graph.nodes) == nodes
        assert dumps(gm) == printed

    def _rewritten(self, gm: fx.GraphModule) -> Report:
        before, nodes, printed = oracle.guards(gm.graph), set(gm.graph.nodes), dumps(gm)
        report = self.rules.apply(gm, tokens=self.tokens)
        assert oracle.guards(gm.graph) == before, "the ShapeEnv has changed"
        gm.graph.lint()
        oracle.check_new([node for node in gm.graph.nodes if node not in nodes])
        oracle.check_values(loads(Source("rewritten.graph", dumps(gm)))[0].graph)
        assert str(report)
        if not report.fired:
            assert dumps(gm) == printed
        if self.settles:
            again = str(gm.graph)
            assert not self.rules.apply(gm, tokens=self.tokens).fired, "there was more to do"
            assert str(gm.graph) == again
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

    def _in_a_pass(self, ours: fx.GraphModule, expected: Any) -> None:
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
        if registration.needs_graph_pass:
            self.rules.apply(gm, tokens=self.tokens)
        if self.settles:
            found = compare(ours, gm)
            assert found.equal, (found.only_left, found.only_right)
        elif expected is not None:
            self.same(oracle.run(gm), expected)


ENGINE = Target("engine", _make, check_rewriting, 14, frozenset({"fired"}), 6, _smaller)
