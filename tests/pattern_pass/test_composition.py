"""Rules beside hand-written patterns of the same `PatternMatcherPass`: whose turn is when."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._inductor import pattern_matcher
from torch._inductor.pattern_matcher import PatternMatcherPass

from fusiondsl.engine.registration import Registration
from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import EPS, L, called, equal, rows, rules, vector
from tests.pattern_pass.support import in_pass
from tests.properties.graphs import Fakes, random_graphs
from tests.properties.test_rewriting import CHECKS, all_rules, run
from tests.support.capture import Captured, traced

X, W = rows(), vector()
aten = torch.ops.aten

TWICE = """
rule twice(x: D[t..]) {
  match { y = lab.other(lab.act(x)) }
  replace { y = lab.twice(x) }
}
"""
CODES = """
rule codes(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, 128) }
  replace { codes, scale = lab.norm_codes(x, w, eps, 128) }
}
"""


def by_hand(
    patterns: PatternMatcherPass,
    search: Callable[..., Any],
    replacement: Callable[..., Any],
    *shapes: tuple[int, ...],
) -> None:
    """A pattern traced from example inputs of these shapes."""
    with Fakes(False).mode:
        inputs = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
        pattern_matcher.register_replacement(
            search, replacement, inputs, pattern_matcher.fwd_only, patterns
        )


def act_alone(patterns: PatternMatcherPass) -> None:
    """`other(act(x))`, which is the source of `twice`, becomes another thing."""
    by_hand(patterns, lambda x: L.other(L.act(x)), lambda x: L.act(x) * 3, (4, 64))


def norm_alone(patterns: PatternMatcherPass) -> None:
    """Like the rule `codes`, with the fused op for two results that stays apart."""

    def search(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(x, w, EPS), 128)

    def replacement(x: Tensor, w: Tensor) -> Any:
        codes, scale, _ = L.norm_codes_keep(x, w, EPS, 128)
        return codes, scale

    by_hand(patterns, search, replacement, (4, 512), (512,))


def half(patterns: PatternMatcherPass) -> None:
    by_hand(patterns, lambda x: x * 0.5, lambda x: x / 2.0, (4, 64))


# --- the same source -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "fused"),
    [
        ("rules first", ["twice"]),
        ("by hand first", ["act"]),
        ("by hand first, rules prepended", ["twice"]),
    ],
)
def test_at_one_node_the_order_of_registration_decides(order: str, fused: list[str]) -> None:
    captured = traced(lambda x: L.other(L.act(x)), X)
    patterns = PatternMatcherPass()
    if order == "rules first":
        registration = rules(TWICE).register(patterns)
        act_alone(patterns)
    else:
        act_alone(patterns)
        registration = rules(TWICE).register(patterns, prepend="prepended" in order)
    assert patterns.apply(captured.gm) == 1
    assert called(captured.gm.graph) == fused
    assert registration.reports[0].counts == ({"twice": 1} if "twice" in fused else {})
    assert not registration.again or "act" in fused


@pytest.mark.parametrize("first", ["rules", "by hand"])
def test_results_that_are_items_are_one_node_too(first: str) -> None:
    """Patterns of several results are anchored at the item that is their first result."""
    captured = traced(lambda x, w: L.group_codes(L.norm(x, w, EPS), 128), X, W)
    patterns = PatternMatcherPass()
    if first == "by hand":
        norm_alone(patterns)
    rules(CODES).register(patterns)
    if first == "rules":
        norm_alone(patterns)
    assert patterns.apply(captured.gm) == 1
    expected = "norm_codes" if first == "rules" else "norm_codes_keep"
    assert called(captured.gm.graph) == [expected]


def test_the_latest_node_is_first_whatever_was_registered_first() -> None:
    """The pass goes from the end of the graph to its beginning."""
    captured = traced(lambda x: L.other(L.act(x)).sin(), X)
    patterns = PatternMatcherPass()
    registration = rules(TWICE).register(patterns)
    by_hand(patterns, lambda x: L.other(L.act(x)).sin(), lambda x: L.act(x).cos(), (4, 64))
    assert patterns.apply(captured.gm) == 1
    assert called(captured.gm.graph) == ["act"]
    assert not registration.reports[0].counts


# --- side by side --------------------------------------------------------------------------------


@pytest.mark.parametrize("rules_first", [False, True])
def test_both_fire_at_their_own_sites(rules_first: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        results = []
        for _ in range(3):
            x = L.other(L.act(x)) * 0.5
            results += L.group_codes(L.norm(x, w, EPS), 128)
        return results

    captured = traced(function, X, W)
    expected = captured.run((X, W))
    patterns = PatternMatcherPass()
    if not rules_first:
        half(patterns)
    registration = rules(TWICE + CODES).register(patterns)
    if rules_first:
        half(patterns)
    assert patterns.apply(captured.gm) == 9
    captured.gm.graph.lint()
    assert registration.reports[0].counts == {"codes": 3, "twice": 3}
    assert sum(node.target is aten.div.Tensor for node in captured.gm.graph.nodes) == 3
    assert equal(captured.run((X, W)), expected)


def test_two_registrations_in_one_pass() -> None:
    captured = traced(lambda x, w: L.group_codes(L.norm(L.other(L.act(x)), w, EPS), 128), X, W)
    patterns = PatternMatcherPass()
    first, second = rules(TWICE).register(patterns), rules(CODES).register(patterns)
    assert patterns.apply(captured.gm) == 2
    assert first.reports[0].counts == {"twice": 1}
    assert second.reports[0].counts == {"codes": 1}


@CHECKS
@given(random_graphs(plants=4), st.randoms(use_true_random=False))
def test_whatever_fires_in_between_the_result_is_the_same(
    drawn: tuple[fx.GraphModule, list[str]], numbers: random.Random
) -> None:
    gm, _ = drawn
    expected = run(gm)
    patterns = PatternMatcherPass()
    hand = [half_of_a_product, act_again, norm_apart]
    numbers.shuffle(hand)
    mine = numbers.randrange(4)
    for register in hand[:mine]:
        register(patterns)
    registration = all_rules().register(patterns)
    for register in hand[mine:]:
        register(patterns)
    patterns.apply(gm)
    gm.graph.lint()
    assert equal(run(gm), expected)
    for _ in range(5):
        if not registration.again:
            break
        patterns.apply(gm)
    left = all_rules().apply(gm, rewrite=False)
    waiting = {refusal.rule for refusal in registration.needs_graph_pass}
    assert left.counts.keys() <= waiting, "what is not done is reported"


def _handler(
    patterns: PatternMatcherPass, target: Any, rewrite: Callable[[fx.Node], fx.Node | None]
) -> None:
    pattern = pattern_matcher.CallFunctionVarArgs(target)

    def handler(match: Any, *args: Any, **kwargs: Any) -> None:
        node = match.nodes[-1]
        new = rewrite(node)
        if new is not None:
            new.meta.update(node.meta)
            node.replace_all_uses_with(new)
            node.graph.erase_node(node)

    pattern_matcher.register_graph_pattern(pattern, pass_dict=patterns)(handler)


def half_of_a_product(patterns: PatternMatcherPass) -> None:
    """`0.5 * x` is `x / 2`."""

    def rewrite(node: fx.Node) -> fx.Node | None:
        if node.args[1] != 0.5:
            return None
        return node.graph.call_function(aten.div.Tensor, (node.args[0], 2.0))

    _handler(patterns, aten.mul.Tensor, rewrite)


def act_again(patterns: PatternMatcherPass) -> None:
    """Each call of `other` is made anew: sites that were known are others now."""

    def rewrite(node: fx.Node) -> fx.Node | None:
        return node.graph.call_function(L.other.default, node.args)

    _handler(patterns, L.other.default, rewrite)


def norm_apart(patterns: PatternMatcherPass) -> None:
    """A norm that only one thing reads is fused by hand with what reduces in front of it."""

    def rewrite(node: fx.Node) -> fx.Node | None:
        source = node.args[0]
        if not isinstance(source, fx.Node) or source.target is not L.reduce.default:
            return None
        x, group = source.args
        w, eps = node.args[1:]
        return node.graph.call_function(L.reduce_norm.default, (x, w, eps, group))

    _handler(patterns, L.norm.default, rewrite)


# --- one makes what the other wants --------------------------------------------------------------


def test_a_site_that_a_later_pattern_sets_free() -> None:
    """Matched anew after another pattern fired: the extra user of `act` is gone."""

    def function(x: Tensor) -> Any:
        inner = L.act(x)
        return L.other(inner), aten.sin(inner)

    captured = traced(function, X)
    patterns = PatternMatcherPass()

    def rewrite(node: fx.Node) -> fx.Node | None:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return node.graph.call_function(aten.cos.default, source.args)

    _handler(patterns, aten.sin.default, rewrite)
    registration = rules(TWICE).register(patterns)
    assert patterns.apply(captured.gm) == 2
    assert called(captured.gm.graph) == ["twice"]
    assert not registration.again


def turned_into_act(captured: Captured) -> tuple[PatternMatcherPass, Registration]:
    patterns = PatternMatcherPass()
    registration = rules(TWICE).register(patterns)
    by_hand(patterns, lambda x: x.relu(), lambda x: L.act(x), (4, 64))
    return patterns, registration


def test_a_site_that_is_made_behind_the_back_of_the_pass() -> None:
    """What a pattern writes is not visited in the same run."""
    captured = traced(lambda x: L.other(x.relu()), X)
    patterns, registration = turned_into_act(captured)
    assert patterns.apply(captured.gm) == 1
    assert called(captured.gm.graph) == ["act", "other"]
    assert registration.again
    assert patterns.apply(captured.gm) == 1
    assert called(captured.gm.graph) == ["twice"]
    assert not registration.again


def test_a_site_the_pass_is_past_is_reported() -> None:
    captured = traced(lambda x: L.other((L.act(x) * 2).relu()), X)
    patterns, registration = turned_into_act(captured)
    patterns.apply(captured.gm)
    (refusal,) = registration.needs_graph_pass
    assert refusal.kind is RefusalKind.GRAPH_PASS
    assert "run the pass again" in refusal.message
    assert registration.again


def test_a_pass_that_only_has_rules_is_run_to_its_end() -> None:
    captured = traced(lambda x: L.other(L.act(L.other(L.act(x)))), X)
    done = in_pass(captured.gm, rules(TWICE))
    assert done.matches == (2,)
