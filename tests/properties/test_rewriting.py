"""Whatever the graph, rewriting keeps what it computes, adds no guard and depends on no order."""

from __future__ import annotations

import random
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import fx

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import L, apply_once, called, equal, rules
from tests.properties.graphs import (
    EPS,
    GROUP,
    RULES,
    aten,
    finish,
    inputs,
    noise,
    plant,
    random_graphs,
    start,
)

CHECKS = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def all_rules(order: tuple[str, ...] = tuple(RULES)) -> CompiledRules:
    return rules("".join(RULES[name] for name in order))


def run(gm: fx.GraphModule) -> Any:
    with torch.no_grad():
        return fx.Interpreter(gm).run(*inputs())


@CHECKS
@given(random_graphs())
def test_the_rewritten_graph_computes_the_same(drawn: tuple[fx.GraphModule, list[str]]) -> None:
    gm, _ = drawn
    expected = run(gm)
    apply_once(gm, all_rules())
    assert equal(run(gm), expected)
    text = str(gm.graph)
    assert not all_rules().apply(gm).fired, "a second time there is nothing to do"
    assert str(gm.graph) == text


@CHECKS
@given(random_graphs(plants=5), st.integers(0, 5039))
def test_the_order_of_rules_in_files_does_not_matter(
    drawn: tuple[fx.GraphModule, list[str]], seed: int
) -> None:
    gm, _ = drawn
    order = list(RULES)
    random.Random(seed % 8).shuffle(order)
    other = fx.GraphModule(gm, copy_graph(gm.graph))
    first = all_rules().apply(gm)
    second = all_rules(tuple(order)).apply(other)
    assert first.counts == second.counts
    assert str(gm.graph) == str(other.graph)
    assert set(first.refused) == set(second.refused)


def copy_graph(graph: fx.Graph) -> fx.Graph:
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph, {}))
    return copied


# --- what is planted fires -----------------------------------------------------------------------


@CHECKS
@given(st.sampled_from(sorted(RULES)), st.randoms(use_true_random=False), st.booleans())
def test_a_planted_source_fires(rule: str, numbers: random.Random, symbolic: bool) -> None:
    choose = numbers.randrange
    built = start(symbolic)
    a, b = built.values
    built.values += [built.call(aten.mul.Tensor, a, 0.25), built.call(aten.mul.Tensor, b, 0.5)]
    plant(built, rule, lambda n: 0 if n == 1 else choose(n))
    for _ in range(choose(3)):
        node = built.call(aten.mul.Tensor, a, 2.0)
        built.results.append(node)
    gm = finish(built, choose)
    expected = run(gm)
    applied = apply_once(gm, rules(RULES[rule]))
    distinct = rule not in ("added", "pair") or applied.counts
    assert applied.counts == {rule: 1} or not distinct, str(applied.report)
    assert equal(run(gm), expected)


@CHECKS
@given(
    st.sampled_from(["codes", "both", "reduced", "twice", "into"]),
    st.sampled_from(["user", "output", "constant", "dtype", "between"]),
    st.randoms(use_true_random=False),
)
def test_a_broken_source_is_refused(rule: str, broken: str, numbers: random.Random) -> None:
    choose = numbers.randrange
    built = start(bool(choose(2)))
    inner = plant(built, rule, choose)
    if broken == "user":
        built.results.append(built.call(aten.mul.Tensor, inner, 3.0))
    elif broken == "output":
        built.results.append(inner)
    else:
        consumer = _consumer(inner)
        if not _spoil(built, consumer, broken):
            return
    gm = finish(built, choose)
    gm.graph.lint()
    expected = run(gm)
    applied = apply_once(gm, rules(RULES[rule]))
    assert not applied.counts
    kinds = {refusal.kind for refusal in applied.report.refusals_of(rule)}
    assert kinds, "no refusal is recorded"
    if broken in ("user", "output"):
        assert RefusalKind.EXTRA_USER in kinds
    assert equal(run(gm), expected)


def _consumer(inner: fx.Node) -> fx.Node:
    """The matched call that reads the inner value, behind what changes nothing."""
    node = inner
    while node is inner or "lab" not in str(node.target):
        node = next(iter(node.users))
    return node


def _spoil(built: Any, consumer: fx.Node, broken: str) -> bool:
    """One change that makes the source another one."""
    source = consumer.args[0]
    if broken == "constant":
        if "group_codes" not in str(consumer.target):
            return False
        given = dict(consumer.kwargs)
        given.pop("group", None)
        group = consumer.kwargs.get("group", consumer.args[1] if len(consumer.args) > 1 else 0)
        consumer.args = (source, group, True)
        consumer.kwargs = {}
        return True
    with built.graph.inserting_before(consumer):
        if broken == "dtype":
            low = built.call(aten._to_copy.default, source, dtype=torch.bfloat16)
            spoiled = built.call(aten._to_copy.default, low, dtype=torch.float32)
        else:
            spoiled = built.call(aten.mul.Tensor, source, 1.5)
    consumer.replace_input_with(source, spoiled)
    return True


# --- overlaps ------------------------------------------------------------------------------------


@CHECKS
@given(st.randoms(use_true_random=False), st.integers(2, 5))
def test_overlapping_sources_are_settled_once(numbers: random.Random, count: int) -> None:
    """Reduce, norm and codes in a row compete for their nodes, with shared parts."""
    choose = numbers.randrange
    built = start(bool(choose(2)))
    x = built.values[0]
    for _ in range(count):
        reduced = built.call(L.reduce.default, x, "tp")
        normed = built.call(L.norm.default, reduced, built.weights[choose(2)], EPS)
        if choose(3):
            codes = built.call(L.group_codes.default, normed, (16, GROUP)[choose(2)])
            built.results += built.items(codes)
        if not choose(3):
            built.results.append(built.call(aten.mul.Tensor, (reduced, normed)[choose(2)], 3.0))
        done = built.call(L.act.default, normed if not choose(3) else x)
        x = built.call(aten.add.Tensor, x, done)
        built.values.append(x)
        noise(built, choose)
    gm = finish(built, choose)
    expected = run(gm)
    calls = called(gm.graph)
    applied = apply_once(gm, all_rules())
    assert equal(run(gm), expected)
    left = called(applied.graph)
    fused = sum(applied.counts.values())
    assert len(left) <= len(calls)
    assert all(site.new_nodes for site in applied.report.fired)
    lost = [r for r in applied.report.refused if r.kind is RefusalKind.LOST]
    assert all(refusal.message in applied.counts for refusal in lost)
    assert fused or not lost
