"""Rules in a `PatternMatcherPass` do what the graph pass does, or say that they need it."""

from __future__ import annotations

import gc
import inspect
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from weakref import ref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._inductor import config
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch.fx.experimental.proxy_tensor import _MakefxTracer

import fusiondsl
from benchmarks import rule_sets
from benchmarks.apply import TARGET
from benchmarks.model_graph import Shape, decoder_graph
from fusiondsl.engine import CompiledRules
from fusiondsl.engine.report import RefusalKind
from fusiondsl.graphs import read
from fusiondsl.resources import patterns_root
from tests.engine import test_normal_view as spelled
from tests.engine.lab import EPS, L, called, equal, mx_codes, rows, rules, vector
from tests.graphs.test_reader import CASES, INDEX
from tests.pairs import test_pairs as pairs
from tests.pattern_pass.support import copied, in_pass, same_as_graph_pass
from tests.properties.graphs import random_graphs, reordered
from tests.properties.test_rewriting import CHECKS, all_rules, run
from tests.support.capture import post_grad, traced

X, R, W = rows(), rows(salt=1), vector()

PLAIN = """
rule plain(x: D[t.., H], w: D[H], eps: float, by: int) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale = lab.norm_codes(x, w, eps, by) }
}
"""
TWICE = """
rule twice(x: D[t..]) {
  match { y = lab.other(lab.act(x)) }
  replace { y = lab.twice(x) }
}
"""
MX = """
rule mx(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.mx_codes(n) }
  replace { codes, scale = lab.norm_mx(x, w, eps) }
}
"""

# --- the same graph ------------------------------------------------------------------------------


@cache
def shipped() -> CompiledRules:
    return fusiondsl.load(patterns_root()).compile(fusiondsl.Target(arch="gfx950", tp_size=2))


@pytest.mark.parametrize("stem", sorted(pairs.PAIRS), ids=lambda stem: stem.partition("__")[2])
def test_the_shipped_rules_on_what_vllm_hands_to_its_passes(stem: str) -> None:
    row = pairs.PAIRS[stem]
    before = pairs.graph(f"{stem}.before.txt", row["arch"])
    run = same_as_graph_pass(before.gm, pairs.rules(row["arch"]), pairs.tokens(stem))
    assert run.counts == row["rules"]


@pytest.mark.parametrize("case", spelled.cases("reciprocals"), ids=lambda case: case.title)
def test_other_spellings(case: spelled.Case) -> None:
    run = same_as_graph_pass(spelled.graph_of(case).gm, spelled.rules_for(case))
    assert run.counts == ({case.rule: 1} if case.seen else {})
    fired = [site for report in run.registration.reports for site in report.fired]
    assert [site.differs for site in fired] == [case.differs] * case.seen


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_the_shipped_rules_on_graphs_of_whole_models(stem: str) -> None:
    for graph in read(CASES / f"{stem}.txt", program=shipped().program):
        same_as_graph_pass(graph.gm, shipped())


@pytest.mark.parametrize("native", [False, True])
def test_the_graph_of_a_decoder(native: bool) -> None:
    graph = decoder_graph(Shape(layers=3), native=native)
    compiled = fusiondsl.load(rule_sets.RULES / "static_quant.fuse").compile(TARGET)
    run = same_as_graph_pass(graph, compiled)
    assert run.matches == (9,), "a match each site"


@CHECKS
@given(random_graphs(plants=5), st.randoms(use_true_random=False), st.booleans())
def test_random_graphs_with_overlaps(
    drawn: tuple[fx.GraphModule, list[str]], numbers: random.Random, shuffled: bool
) -> None:
    gm, _ = drawn
    if shuffled:
        reordered(gm.graph, numbers.randrange)
    expected = run(gm)
    done = same_as_graph_pass(gm, all_rules())
    assert equal(run(done.gm), expected)


# --- sites that depend on each other -------------------------------------------------------------

PAIR = """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
"""
SUM = """
rule sum(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); n = lab.other(done); s = b + n }
  replace { done, s = lab.act_sum(a, b) }
}
"""


def crossed(a: Tensor, b: Tensor) -> Any:
    """Either of two sites can be one call, not both: each reads what the other gives."""
    first, second = L.act(a), L.act(b)
    return second * 2 + L.other(first), first * 3 + second


@pytest.mark.parametrize("swap", [False, True])
def test_the_better_rule_wins_also_where_the_pass_comes_to_the_other_first(swap: bool) -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        return crossed(b, a)[::-1] if swap else crossed(a, b)

    run = same_as_graph_pass(traced(function, X, R).gm, rules(PAIR + SUM))
    assert sum(run.counts.values()) == 1
    (report,) = run.registration.reports
    assert any("a cycle" in refusal.message for refusal in report.refused)


def test_sites_that_depend_on_each_other_are_one_match() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        first, second = L.act(a), L.act(b)
        early = first * 5, second * 7
        third = L.act(early[0])
        return early, b * 2 + first, a * 3 + second, third + a, third

    gm = traced(function, X, R).gm
    run = same_as_graph_pass(gm, rules(PAIR))
    assert run.matches[0] < sum(run.counts.values()) == 3


# --- chains --------------------------------------------------------------------------------------

CHAIN = (
    PAIR.replace("rule pair", "rule first")
    + """
rule second(a: D[t..], b: D[t..]) {
  match { done, s = lab.act_sum(a, b); y = lab.other(s) }
  replace { y = lab.other(lab.mix(a, [1], b)) }
}
"""
)


def test_a_chain_takes_a_run_each_step() -> None:
    gm = traced(lambda a, b: L.other(b + L.act(a)), X, R).gm
    compiled = rules(CHAIN)
    assert len(compiled.plan.strata) == 2
    run = same_as_graph_pass(gm, compiled)
    assert run.counts == {"first": 1, "second": 1}
    assert run.matches[:2] == (1, 1)


def test_without_chains_one_run_is_all() -> None:
    run = same_as_graph_pass(traced(lambda x: L.other(L.act(x)), X).gm, rules(TWICE))
    assert run.matches == (1,)


def test_a_result_that_stays_may_be_rewritten_by_another_rule() -> None:
    text = """
    rule keeps(x: D[t.., H], by: int) {
      match { n = lab.act(x); codes, scale = lab.group_codes(n, by) }
      replace { n = n; codes, scale = lab.group_codes(lab.mix(n, [1]), by) }
    }
    rule takes(x: D[t..]) {
      match { y = lab.act(x) }
      replace { y = lab.other(x) }
    }
    """

    def function(x: Tensor) -> Any:
        n = L.act(x)
        return (*L.group_codes(n, 32), n)

    run = same_as_graph_pass(traced(function, X).gm, rules(text))
    assert run.counts == {"keeps": 1, "takes": 1}
    assert run.matches == (2,)


# --- what the pass cannot do ---------------------------------------------------------------------


def left_to_the_graph_pass(gm: fx.GraphModule, text: str, *words: str) -> None:
    """The pass leaves the only site alone and says so; the graph pass then rewrites it."""
    before = str(gm.graph)
    run = in_pass(gm, rules(text))
    assert run.matches == (0,)
    assert str(gm.graph) == before
    (refusal,) = run.registration.needs_graph_pass
    assert refusal.kind is RefusalKind.GRAPH_PASS
    for word in words:
        assert word in refusal.message
    assert refusal in run.registration.reports[0].refused
    assert rules(text).apply(gm).counts == {refusal.rule: 1}


BLOCKS = """
extern op lab_blocks.codes(x: D[t.., H])
    -> (codes: f8e4m3fn[t.., H], scale: f8e8m0fnu[t.., H / 32])
"""


@pytest.fixture
def blocks() -> Iterator[None]:
    library = torch.library.Library("lab_blocks", "FRAGMENT")
    library.define("codes(Tensor x) -> (Tensor, Tensor)")
    library.impl("codes", mx_codes, "CompositeExplicitAutograd")
    torch.library.register_fake("lab_blocks::codes", mx_codes, lib=library)
    yield
    library._destroy()


@pytest.mark.usefixtures("blocks")
def test_one_call_with_block_scales() -> None:
    text = f"""{BLOCKS}
    rule alone(x: D[t.., H]) {{
      match {{ codes, scale = lab.mx_codes(x) }}
      replace {{ codes, scale = lab_blocks.codes(x) }}
    }}"""
    gm = traced(lambda x: L.mx_codes(x), X).gm
    left_to_the_graph_pass(gm, text, "skips", "kind of tensors")


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("strata", [1, 2])
def test_a_site_that_waits_keeps_what_it_reads(strata: int) -> None:
    """Else another rule has rewritten a matched value before the graph pass comes to the site."""
    keeps = f"""{BLOCKS}
    rule keeps(x: D[t.., H]) {{
      match {{ n = lab.act(x); codes, scale = lab.mx_codes(n) }}
      replace {{ n = n; codes, scale = lab_blocks.codes(n) }}
    }}
    rule takes(x: D[t.., H]) {{
      match {{ y = lab.act(x) }}
      replace {{ y = lab.other(x) }}
    }}
    """
    chain = """
    rule after(x: D[t.., H]) {
      match { y = lab.other(x); z = lab.other(y) }
      replace { z = lab.twice(x) }
    }
    """
    compiled = rules(keeps + (chain if strata == 2 else ""))
    assert len(compiled.plan.strata) == strata
    gm = traced(lambda x: L.mx_codes(L.act(x)), X).gm
    alone = copied(gm)
    assert compiled.apply(alone).counts == {"keeps": 1, "takes": 1}
    run = in_pass(gm, compiled)
    assert {refusal.rule for refusal in run.registration.needs_graph_pass} >= {"keeps"}
    compiled.apply(run.gm)
    assert called(run.gm.graph) == called(alone.graph)


def test_block_scales_beside_a_call_that_is_offered() -> None:
    run = same_as_graph_pass(traced(lambda x, w: L.mx_codes(L.norm(x, w, EPS)), X, W).gm, rules(MX))
    assert run.counts == {"mx": 1}


def test_a_graph_of_meta_tensors() -> None:
    gm = traced(lambda x: L.other(L.act(x)), X).gm
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            with value.fake_mode:  # type: ignore[attr-defined]
                node.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device="meta")
    left_to_the_graph_pass(gm, TWICE, "skips")


def test_a_write_between_the_calls() -> None:
    def function(x: Tensor, r: Tensor) -> Tensor:
        y = L.act(x)
        r.copy_(x)
        return L.other(y)

    left_to_the_graph_pass(traced(function, X, R).gm, TWICE, "across writes")


@pytest.mark.skipif(
    "stream" not in inspect.getsource(PatternMatcherPass),
    reason="before torch 2.12 the pass does not look at streams",
)
def test_calls_on_two_streams() -> None:
    gm = traced(lambda x: L.other(L.act(x)), X).gm
    for node in gm.graph.nodes:
        if node.target is L.act.default:
            node.meta["custom"] = {"stream": 1}
    left_to_the_graph_pass(gm, TWICE, "across streams")


def test_a_graph_with_a_write_elsewhere() -> None:
    def function(x: Tensor, r: Tensor) -> Any:
        r.copy_(x)
        return L.other(L.act(x)), L.other(L.act(r)), L.act(x * 2)

    run = same_as_graph_pass(traced(function, X, R).gm, rules(TWICE))
    assert run.counts == {"twice": 2}


# --- runs, reports -------------------------------------------------------------------------------


def test_a_report_for_every_run() -> None:
    patterns = PatternMatcherPass()
    registration = rules(TWICE + PLAIN).register(patterns)
    assert not registration.reports
    assert not registration.again
    assert not registration.needs_graph_pass
    functions: list[Callable[..., Any]] = [
        lambda x, w: L.other(L.act(x)),
        lambda x, w: x * 2,
        lambda x, w: L.group_codes(L.norm(x, w, EPS), 128),
    ]
    for function in functions:
        patterns.apply(traced(function, X, W).gm)
    counts = [report.counts for report in registration.reports]
    assert counts == [{"twice": 1}, {}, {"plain": 1}]


def test_a_graph_whose_output_the_pass_skips_has_a_report_too() -> None:
    patterns = PatternMatcherPass()
    registration = rules(MX).register(patterns)
    for _ in range(2):
        gm = traced(lambda x, w: L.mx_codes(L.norm(x, w, EPS)), X, W).gm
        patterns.apply(gm)
        gm.graph.lint()
    assert [report.counts for report in registration.reports] == [{"mx": 1}, {"mx": 1}]


def test_refusals_have_their_reasons() -> None:
    gm = traced(lambda x: (L.other(y := L.act(x)), y), X).gm
    run = same_as_graph_pass(gm, rules(TWICE))
    (refusal,) = run.registration.reports[0].refusals_of("twice")
    assert refusal.kind is RefusalKind.EXTRA_USER


def test_the_range_of_token_counts_is_heeded() -> None:
    text = TWICE.replace("}\n}", "}\n  where { few: tokens <= 64 }\n}", 1).replace(
        "D[t..]", "D[tokens.., H]"
    )
    gm = traced(lambda x: L.other(L.act(x)), X).gm
    few, many = range(1, 65), range(1, 129)
    assert same_as_graph_pass(gm, rules(text), few).counts == {"twice": 1}
    assert not same_as_graph_pass(gm, rules(text), many).counts
    with pytest.raises(ValueError, match="no token count"):
        rules(text).register(PatternMatcherPass(), tokens=range(0))


def test_nothing_of_a_rewritten_graph_is_kept() -> None:
    patterns = PatternMatcherPass()
    registration = rules(TWICE).register(patterns)
    gm = traced(lambda x: L.other(L.act(x)), X).gm
    patterns.apply(gm)
    graph = ref(gm.graph)
    del gm
    gc.collect()
    assert graph() is None
    assert registration.reports[0].counts == {"twice": 1}


def test_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = traced(lambda x, w: L.group_codes(L.norm(x, w, EPS), 128), X, W).gm
    traces: list[str] = []
    original = _MakefxTracer.trace

    def counted(self: Any, *args: Any) -> Any:
        traces.append("make_fx")
        return original(self, *args)

    monkeypatch.setattr(_MakefxTracer, "trace", counted)
    assert in_pass(gm, rules(PLAIN)).counts == {"plain": 1}
    assert not traces
    traced(lambda x: x * 2, X)
    assert traces, "a trace would have been seen"


# --- in torch.compile ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_compiled_equals_eager(version: int) -> None:
    def model(x: Tensor, w: Tensor) -> Any:
        y, s = L.other(x), L.act(x)
        L.add_norm_into(y, s, w, EPS)
        return L.group_codes(L.norm(x, w, EPS), 128), y, s, L.other(L.act(s))

    patterns = PatternMatcherPass()
    registration = rules(PLAIN + TWICE).register(patterns)
    settings = {
        "post_grad_custom_post_pass": patterns.apply,
        "fx_graph_cache": False,
        "enable_auto_functionalized_v2": version == 2,
    }
    torch._dynamo.reset()
    with config.patch(settings), torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        for tokens in (7, 33):
            x = rows(tokens)
            torch._dynamo.mark_dynamic(x, 0)
            assert equal(compiled(x, W), model(x, W)), tokens
    assert registration.reports[0].counts == {"plain": 1, "twice": 1}


@pytest.mark.parametrize("version", [1, 2])
def test_functionalised_sources(version: int) -> None:
    text = """
    rule added(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
      match { n, total = lab.add_norm_into(x, r, w, eps); codes, scale = lab.group_codes(n, by) }
      replace { codes, scale, total = lab.add_norm_codes(x, r, w, eps, by) }
    }"""

    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        y, s = L.other(x), L.other(r)
        L.add_norm_into(y, s, w, EPS)
        return (*L.group_codes(y, 128), s)

    gm = post_grad(function, X, R, W, functionalized=version).gm
    run = same_as_graph_pass(gm, rules(text))
    assert run.counts == {"added": 1}
    assert "add_norm_codes" in called(run.gm.graph)
