"""The rules that write the key-value cache: what they compute, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fusiondsl
from fusiondsl import Answer, CompiledRules, Report
from fusiondsl.engine.report import Refusal, RefusalKind
from fusiondsl.graphs import read
from fusiondsl.ops.references.attention import LayerCache, reference_caches
from fusiondsl.resources import patterns_root
from fusiondsl.rules import RuleSet
from tests.patterns.harness import NEW_AITER, compiled, rows, vector
from tests.support import spellings as s
from tests.support.capture import Captured, post_grad, traced

N, M, H = 4, 2, 64
SLOTS, POSITIONS = 300, 400
LAYER = "layers.0"
SECTIONS = (8, 12, 12)
ROPE, MROPE = "qk_norm_rope_kv_cache_update", "qk_norm_mrope_kv_cache_update"
PREDICATES = {ROPE: f"has_{ROPE}", MROPE: f"has_{MROPE}"}
FROM_CACHE = Answer("keys_from_cache", True, {"l": LAYER})

Rope = Callable[[Tensor, Tensor, Tensor, Tensor], None]


@pytest.fixture(autouse=True)
def _ops(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()  # registers what the sources call
    monkeypatch.setenv("FUSIONDSL_REFERENCE_OPS", "1")


# --- rules, inputs and caches --------------------------------------------------------------------


def answer(rule: str, value: bool = True, layer: str = LAYER, heads: int = N) -> Answer:
    args = {"l": layer, "heads": heads, "kv_heads": M, "head_size": H}
    return Answer(PREDICATES[rule], value, args)


@cache
def pack() -> RuleSet:
    return fusiondsl.load(patterns_root())


def rules(*answers: Answer) -> CompiledRules:
    target = fusiondsl.Target(arch="gfx950", tp_size=8, facts=NEW_AITER, answers=answers)
    return pack().compile(target)


def apply(captured: Captured, answers: Iterable[Answer] | None = None) -> Report:
    given = (answer(ROPE), answer(MROPE), FROM_CACHE) if answers is None else tuple(answers)
    report = rules(*given).apply(captured.gm, tokens=range(1, 257))
    captured.gm.graph.lint()
    return report


def refusal(report: Report, rule: str) -> Refusal:
    """Of the one place where all of the source stands."""
    (only,) = (r for r in report.refusals_of(rule) if r.matched == r.calls)
    return only


def inputs(tokens: int) -> tuple[Tensor, ...]:
    angles = 3 * rows(POSITIONS, H // 2, 3).float()
    cos_sin = torch.cat([angles.cos(), angles.sin()], -1).to(torch.bfloat16)
    return rows(tokens, (N + 2 * M) * H), vector(H, 1) / 4, vector(H, 2) / 4, cos_sin


def layer_cache(tokens: int, padding: int = 0) -> LayerCache:
    """A sequence that began before the batch, scattered over the slots; then padding."""
    order = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(tokens))
    sequence = order[: tokens - padding + 5]
    slots = torch.cat([sequence[5:], torch.full((padding,), -1)])
    before = rows(SLOTS, M * H, 4).view(SLOTS, M, H)
    return LayerCache(before, before.flip(0).clone(), slots, sequence)


def same_turned(actual: Tensor, expected: Tensor) -> None:
    """A product of the rotation is off by a rounding of its factor; their sum may be small."""
    assert actual.dtype is expected.dtype
    error = (actual.float() - expected.float()).abs()
    largest = expected.float().abs().max()
    assert error.max() <= 2**-6 * largest
    assert error.mean() <= 2**-10 * largest


def same_but_for_codes(actual: Tensor, expected: Tensor) -> None:
    """A flipped code of the query moves what its head attends to."""
    assert actual.dtype is expected.dtype
    error = (actual.float() - expected.float()).abs()
    largest = expected.float().abs().max()
    assert error.max() <= 2**-2 * largest
    assert error.mean() <= 2**-7 * largest


# --- sources -------------------------------------------------------------------------------------


def rope_custom(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    torch.ops._C.rotary_embedding(positions, q, k, H, cos_sin, True)


def rope_custom_adjacent(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    torch.ops._C.rotary_embedding(positions, q, k, H, cos_sin, False)


def rope_aiter(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    torch.ops.vllm.rocm_aiter_triton_rotary_embedding(positions, q, k, H, cos_sin, True)


def rope_inverse(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    torch.ops._C.rotary_embedding(positions, q, k, H, cos_sin, True, 0, True)


def mrope(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    three = torch.stack([positions, positions + 3, 2 * positions])
    torch.ops.vllm.mrope(three, q, k, cos_sin, H, H, *SECTIONS, True, True)


def mrope_in_a_row(positions: Tensor, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    three = torch.stack([positions, positions + 3, 2 * positions])
    torch.ops.vllm.mrope(three, q, k, cos_sin, H, H, *SECTIONS, False, False)


def heads(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, rope: Rope, norm: Any
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv.split([N * H, M * H, M * H], -1)
    q = norm(q.reshape(-1, N, H), q_weight).reshape(-1, N * H)
    k = norm(k.reshape(-1, M, H), k_weight).reshape(-1, M * H)
    rope(torch.arange(qkv.shape[0]) + 5, q, k, cos_sin)
    return q, k, v


def attend(
    q: Tensor, k: Tensor, v: Tensor, layer: str = LAYER, attending: str | None = None
) -> Tensor:
    q, k, v = q.view(-1, N, H), k.view(-1, M, H), v.view(-1, M, H)
    output = torch.empty(q.shape, dtype=k.dtype)
    done = torch.ops.vllm.unified_kv_cache_update(k, v, layer)
    torch.ops.vllm.unified_attention_with_output(
        q, k, v, output, attending or layer, None, None, done
    )
    return output.view(-1, N * H)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Without a write of the cache."""
    q, k, v = q.view(-1, N, H), k.view(-1, M, H), v.view(-1, M, H)
    attended: Tensor = torch.ops.fusiondsl.attention(q, k, v, torch.empty_like(q), LAYER, None)
    return attended


def source(rope: Rope, norm: Any = s.norm_vllm_ir, quantised: bool = False) -> Any:
    def function(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> Tensor:
        q, k, v = heads(qkv, q_weight, k_weight, cos_sin, rope, norm)
        if quantised:
            q = s.static_custom(q, torch.tensor([0.02]))
        return attend(q, k, v)

    return function


def v1(function: Any, *args: Tensor) -> Captured:
    return post_grad(function, *args, functionalized=1)


# --- the same values, the same cache -------------------------------------------------------------


def check(
    function: Any,
    rule: str,
    compare: Callable[[Tensor, Tensor], None] = same_turned,
    capture: Any = v1,
) -> None:
    captured = capture(function, *inputs(7))
    assert apply(captured).counts == {rule: 1}
    assert not any("rotary" in t or t == "mrope.default" for t in captured.targets())
    for tokens, padding in ((7, 0), (128, 0), (7, 3)):
        ours, theirs = layer_cache(tokens, padding), layer_cache(tokens, padding)
        with reference_caches({LAYER: ours}):
            (actual,) = captured.run(inputs(tokens), tokens)
        with reference_caches({LAYER: theirs}):
            expected = function(*inputs(tokens))
        assert torch.equal(ours.values, theirs.values)
        same_turned(ours.keys, theirs.keys)
        compare(actual, expected)


@pytest.mark.parametrize("rope", [rope_custom, rope_custom_adjacent, rope_aiter])
def test_norm_rope_and_cache(rope: Rope) -> None:
    check(source(rope), ROPE)


@pytest.mark.parametrize(("rope", "rule"), [(rope_custom, ROPE), (mrope, MROPE)])
def test_an_embedding_that_turns_reshapes_of_its_bases(rope: Rope, rule: str) -> None:
    """As `auto_functionalized_v2` has it: the norms are the bases, and in another form."""
    check(source(rope), rule, capture=post_grad)


def test_reshapes_of_bases_that_no_rule_takes() -> None:
    captured = post_grad(source(rope_custom), *inputs(7))
    before = str(captured.gm.graph)
    values = {n.name: str(n.meta.get("val")) for n in captured.gm.graph.nodes}
    report = apply(captured, [])
    assert report.counts == {}
    assert str(captured.gm.graph) == before
    assert {n.name: str(n.meta.get("val")) for n in captured.gm.graph.nodes} == values
    answer = rules().why(captured.gm, tokens=range(1, 257), rules=[ROPE])
    assert [c.code for c in answer.of(ROPE).sites[0].causes] == ["predicate-unknown"]
    assert str(captured.gm.graph) == before


@pytest.mark.parametrize("norm", [s.norm_llama, s.norm_weight_upcast])
def test_any_spelling_of_the_norm(norm: Any) -> None:
    check(source(rope_custom, norm), ROPE)


@pytest.mark.parametrize("rope", [mrope, mrope_in_a_row])
def test_norm_mrope_and_cache(rope: Rope) -> None:
    """The keys that the attention is given are not turned; it takes them from the cache."""
    check(source(rope), MROPE)


@pytest.mark.parametrize(("rope", "rule"), [(rope_custom, ROPE), (mrope, MROPE)])
def test_a_quantised_query_reads_the_new_query(rope: Rope, rule: str) -> None:
    check(source(rope, quantised=True), rule, same_but_for_codes)


def test_positions_of_another_symbol() -> None:
    """As vLLM's graphs have it: the rotary embedding needs as many positions as tokens."""
    text = Path(__file__).parents[1] / "cases" / "engine" / "positions_of_another_symbol.txt"
    ready = rules(answer(ROPE), FROM_CACHE)
    (found,) = read(text, program=ready.program)
    assert ready.apply(found.gm, tokens=range(1, 257)).counts == {ROPE: 1}
    assert not found.symbols.shape_env.guards


def test_every_layer_with_its_own_cache() -> None:
    names = (LAYER, "layers.1")

    def stacked(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> Tensor:
        attended = qkv
        for name in names:
            parts = heads(qkv, q_weight, k_weight, cos_sin, rope_custom, s.norm_vllm_ir)
            attended = attend(*parts, name)
            qkv = torch.cat([attended, attended], -1)
        return attended

    captured = v1(stacked, *inputs(7))
    assert apply(captured, [answer(ROPE, layer=name) for name in names]).counts == {ROPE: 2}
    ours, theirs = ({name: layer_cache(7) for name in names} for _ in range(2))
    with reference_caches(ours):
        (actual,) = captured.run(inputs(7), 7)
    with reference_caches(theirs):
        expected = stacked(*inputs(7))
    for name in names:
        same_turned(ours[name].keys, theirs[name].keys)
    same_turned(actual, expected)


# --- left alone ----------------------------------------------------------------------------------


def extended(rope: Rope, more: Callable[[Tensor, Tensor, Tensor], Any]) -> Captured:
    def function(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> Any:
        q, k, v = heads(qkv, q_weight, k_weight, cos_sin, rope, s.norm_vllm_ir)
        return more(q, k, v)

    return v1(function, *inputs(7))


@pytest.mark.parametrize(("rope", "rule"), [(rope_custom, ROPE), (mrope, MROPE)])
@pytest.mark.parametrize(
    "reader", [lambda k: k.view(-1, M, H) * 2, lambda k: k.view(-1, M, H)[:, :1], lambda k: k + 1]
)
def test_turned_keys_that_something_else_reads(rope: Rope, rule: str, reader: Any) -> None:
    captured = extended(rope, lambda q, k, v: (attend(q, k, v), reader(k)))
    report = apply(captured)
    assert report.counts == {}
    assert refusal(report, rule).kind in (RefusalKind.PREDICATE_FALSE, RefusalKind.EXTRA_USER)


def test_the_reason_names_the_condition_and_the_reader() -> None:
    captured = extended(rope_custom, lambda q, k, v: (attend(q, k, v), k.view(-1, M, H).sum(1)))
    found = refusal(apply(captured), ROPE)
    assert (found.kind, found.label) == (RefusalKind.PREDICATE_FALSE, "attended")
    assert found.message.startswith("k is read by ")
    assert found.message.endswith("(aten.sum.dim_IntList)")


def test_keys_that_are_returned_or_read_as_values() -> None:
    for more in (
        lambda q, k, v: (attend(q, k, v), k.view(-1, M, H)),
        lambda q, k, v: (attend(q, k, v), plain_attention(q, v, k)),
    ):
        report = apply(extended(rope_custom, more))
        assert report.counts == {}
        assert refusal(report, ROPE).label == "attended"


@pytest.mark.parametrize(("rope", "rule"), [(rope_custom, ROPE), (mrope, MROPE)])
def test_the_attention_of_another_layer_reads_the_keys(rope: Rope, rule: str) -> None:
    """Its cache does not have them."""
    captured = extended(rope, lambda q, k, v: attend(q, k, v, LAYER, "layers.1"))
    report = apply(captured)
    assert report.counts == {}
    assert refusal(report, rule).label == "attended"


def test_another_geometry() -> None:
    captured = v1(source(rope_custom), *inputs(7))
    report = apply(captured, [answer(ROPE, heads=2 * N)])
    assert report.counts == {}
    found = refusal(report, ROPE)
    assert (found.kind, found.label) == (RefusalKind.PREDICATE_UNKNOWN, "kernel")


@pytest.mark.parametrize("more", [(), (Answer("keys_from_cache", False, {"l": LAYER}),)])
def test_keys_that_the_attention_may_take_from_the_batch(more: tuple[Answer, ...]) -> None:
    """The kernel does not return them, so an attention that reads its argument is left alone."""
    report = apply(v1(source(mrope), *inputs(7)), [answer(MROPE), *more])
    assert report.counts == {}
    kind = RefusalKind.PREDICATE_FALSE if more else RefusalKind.PREDICATE_UNKNOWN
    found = refusal(report, MROPE)
    assert (found.kind, found.label) == (kind, "cached")


def test_layers_that_disagree() -> None:
    given = [answer(ROPE), answer(ROPE, False, "layers.1")]
    report = apply(v1(source(rope_custom), *inputs(7)), given)
    assert report.counts == {}
    assert refusal(report, ROPE).kind is RefusalKind.PREDICATE_UNKNOWN


def test_a_rotation_the_other_way_round_is_another_op() -> None:
    assert apply(v1(source(rope_inverse), *inputs(7))).counts == {}


# --- order of writes -----------------------------------------------------------------------------


def in_order(function: Any) -> Captured:
    """A trace has the operations in the order in which they are written here."""

    def whole(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> Any:
        q, k, v = heads(qkv, q_weight, k_weight, cos_sin, lambda *_: None, s.norm_vllm_ir)
        positions = torch.arange(7)
        q, k = torch.ops.fusiondsl.rotary_embedding(positions, q, k, cos_sin, H, True)
        return function(q, k, v)

    return traced(whole, *inputs(7), dynamic=False)


def written(k: Tensor, v: Tensor, layer: str) -> Tensor:
    done: Tensor = torch.ops.vllm.unified_kv_cache_update(k.view(-1, M, H), v.view(-1, M, H), layer)
    return done


def test_another_write_of_the_cache_in_between() -> None:
    """Both names may stand for one layer, so the writes keep their order."""

    def source(q: Tensor, k: Tensor, v: Tensor) -> Any:
        seen = q.relu()  # the query has to be there before the other write
        other = written(v, v, "layers.1")
        return seen, other, written(k, v, LAYER)

    report = apply(in_order(source))
    assert report.counts == {}
    found = refusal(report, ROPE)
    assert found.kind is RefusalKind.EFFECT
    assert found.message.endswith("uses the same kv_cache in between")


def test_an_attention_in_between() -> None:
    """It reads the cache that the keys are written to afterwards."""

    def source(q: Tensor, k: Tensor, v: Tensor) -> Any:
        early = plain_attention(q, v, v)
        return early, written(k, v, LAYER)

    report = apply(in_order(source))
    assert report.counts == {}
    assert refusal(report, ROPE).kind is RefusalKind.EFFECT


def test_writes_that_keep_their_order() -> None:
    """Nothing has to move across the other write."""

    def source(q: Tensor, k: Tensor, v: Tensor) -> Any:
        other = written(v, v, "layers.1")
        return other, written(k, v, LAYER), q.relu()

    captured = in_order(source)
    assert apply(captured).counts == {ROPE: 1}
    assert [t for t in captured.targets() if "kv_cache_update" in t] == [
        "vllm.unified_kv_cache_update.default",
        "fusiondsl.aiter_qk_norm_rope_kv_cache_update.default",
    ]
