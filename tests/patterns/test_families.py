"""The rules of SiLU-mul, static scales, MLA, gated norms and padding, as `test_rules` has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fusiondsl.engine.report import RefusalKind
from fusiondsl.ops.references.mx import decode_scales
from tests.patterns.harness import (
    ADD_NORMS,
    GROUP_QUANTS,
    NORMS,
    SILUS,
    TOKEN_QUANTS,
    H,
    Source,
    add_inputs,
    add_norms,
    apply,
    check,
    compiled,
    fp8_then_values,
    names,
    norms,
    pairs,
    plain_inputs,
    rows,
    same_values,
    vector,
)
from tests.support import spellings as s
from tests.support.capture import post_grad, traced

SCALE = torch.tensor([0.013])
STATIC_QUANTS = [
    s.static_custom,
    s.static_custom_per_tensor,
    s.static_custom_gpu,
    s.static_native,
]


@pytest.fixture(autouse=True)
def _ops() -> None:
    compiled()  # registers what the spellings call


# --- SiLU-mul -------------------------------------------------------------------------------------


@pairs(SILUS, GROUP_QUANTS)
def test_silu_mul_group_quant(norm: Source, quant: Source) -> None:
    check(
        lambda x: quant(norm(x)),
        lambda t: (rows(t, 2 * H),),
        "silu_mul_group_quant",
        fp8_then_values,
    )


def static_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Few codes flip, and those by one step: an eighth at most, or the smallest step there is."""
    codes, wanted = actual[0].float(), expected[0].float()
    assert actual[0].dtype is expected[0].dtype
    assert (codes != wanted).float().mean() <= 0.1
    torch.testing.assert_close(codes, wanted, rtol=0.15, atol=2**-8)
    same_values(actual[1:], expected[1:])


@pairs(SILUS, STATIC_QUANTS)
def test_silu_mul_static_quant(norm: Source, quant: Source) -> None:
    check(
        lambda x, scale: quant(norm(x), scale),
        lambda t: (rows(t, 2 * H), SCALE),
        "silu_mul_static_quant",
        static_values,
    )


# --- RMSNorm with a given scale -------------------------------------------------------------------


@pairs(NORMS, STATIC_QUANTS)
def test_rms_norm_static_quant(norm: Source, quant: Source) -> None:
    check(
        lambda x, weight, scale: quant(norm(x, weight), scale),
        lambda t: (*plain_inputs(t), SCALE),
        "rms_norm_static_quant",
        static_values,
    )


@pairs(ADD_NORMS, STATIC_QUANTS)
def test_add_rms_norm_static_quant(norm: Source, quant: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> Any:
        y, total = norm(x, residual, weight)
        return quant(y, scale), total

    check(
        source,
        lambda t: (*add_inputs(t), SCALE),
        "add_rms_norm_static_quant",
        static_values,
    )


def test_a_scale_for_each_column_is_left_alone() -> None:
    def source(x: Tensor, weight: Tensor, scale: Tensor) -> Any:
        return s.static_native(s.norm_vllm_ir(x, weight), scale)

    report = apply(post_grad(source, *plain_inputs(7), vector(H).float().abs() + 1))
    assert report.counts == {}


# --- padding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [64, 192])
@add_norms
def test_add_rms_norm_pad(norm: Source, extra: int) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = norm(x, residual, weight)
        return torch.nn.functional.pad(y, (0, extra)), total

    def inputs(tokens: int) -> tuple[Tensor, ...]:
        return rows(tokens, 576), rows(tokens, 576, 1), vector(576)

    check(source, inputs, "add_rms_norm_pad", same_values)


def routed(x: Tensor, residual: Tensor, weight: Tensor, router: Tensor, bias: Tensor) -> Any:
    y, total = s.add_norm_vllm_ir(x, residual, weight)
    logits = torch.ops.vllm.rocm_unquantized_gemm(y, router, bias)
    return torch.nn.functional.pad(y, (0, 64)), total, logits


def routed_inputs(tokens: int, width: int = 576) -> tuple[Tensor, ...]:
    wide = rows(tokens, width), rows(tokens, width, 1), vector(width)
    return (*wide, rows(32, width, 5), vector(32))


def test_the_router_reads_a_slice_of_the_padded_norm() -> None:
    def compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        same_values(actual[:2], expected[:2])
        torch.testing.assert_close(actual[2], expected[2], rtol=0.05, atol=0.5)

    captured = check(routed, routed_inputs, "add_rms_norm_pad_beside", compare)
    gemms = [n for n in captured.gm.graph.nodes if "rocm_unquantized_gemm" in str(n.target)]
    (gemm,) = gemms
    assert gemm.args[0].meta["val"].shape[1] == 576
    assert gemm.args[0].meta["val"].stride()[0] == 640


def test_a_pad_that_fills_no_tile_is_left_alone() -> None:
    report = apply(post_grad(routed, *routed_inputs(7, 600)))
    assert report.counts == {}
    labels = {(r.kind, r.label) for r in report.refusals_of("add_rms_norm_pad_beside")}
    assert (RefusalKind.PREDICATE_FALSE, "multiple") in labels


def test_a_pad_in_front_or_with_a_value_is_left_alone() -> None:
    for pads, value in (((64, 0), 0.0), ((0, 64), 1.0)):

        def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
            y, total = s.add_norm_vllm_ir(x, residual, weight)
            return torch.nn.functional.pad(y, pads, value=value), total  # noqa: B023

        report = apply(post_grad(source, rows(7, 576), rows(7, 576, 1), vector(576)))
        assert report.counts == {}, pads


def test_the_norm_itself_as_an_output_stays_contiguous() -> None:
    """A graph's output keeps its strides: no slice of the padded norm can stand for it."""

    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = s.add_norm_vllm_ir(x, residual, weight)
        return torch.nn.functional.pad(y, (0, 64)), total, y

    captured = post_grad(source, rows(7, 576), rows(7, 576, 1), vector(576))
    apply(captured)
    (outputs,) = captured.gm.graph.output_node().args
    assert outputs[2].meta["val"].is_contiguous()
    result = captured.run((rows(7, 576), rows(7, 576, 1), vector(576)), 7)
    assert result[2].is_contiguous()
    same_values(result, source(rows(7, 576), rows(7, 576, 1), vector(576)))


# --- gated norm -----------------------------------------------------------------------------------

HEADS = 4


def heads(tokens: int) -> tuple[Tensor, ...]:
    x, z = rows(tokens, HEADS * 128), rows(tokens, HEADS * 128, 1)
    return x.unflatten(-1, (HEADS, 128)), z.unflatten(-1, (HEADS, 128)), vector(128)


def loosely(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """A small value times a small gate: its group has another scale once it is not rounded."""
    fp8_then_values(tuple(a.flatten(1) for a in actual), tuple(e.flatten(1) for e in expected))


@pytest.mark.parametrize("capture", [post_grad, traced])
@pytest.mark.parametrize("quant", [s.group_custom, s.group_aiter], ids=names)
def test_gated_rms_norm_with_heads_apart(quant: Source, capture: Any) -> None:
    def source(x: Tensor, z: Tensor, weight: Tensor) -> Any:
        return quant(s.gated_norm(x, z, weight).reshape(-1, HEADS * 128))

    check(source, heads, "gated_rms_norm_flat_group_quant", loosely, capture)


@pytest.mark.parametrize("quant", [s.group_custom, s.group_aiter], ids=names)
def test_gated_rms_norm_with_flat_heads(quant: Source) -> None:
    def source(x: Tensor, z: Tensor, weight: Tensor) -> Any:
        normed = s.gated_norm(x.reshape(-1, 128), z.reshape(-1, 128), weight)
        return quant(normed.reshape(-1, HEADS * 128))

    check(source, heads, "gated_rms_norm_flat_group_quant", loosely)


def test_gated_rms_norm_with_groups_that_are_heads() -> None:
    """Views of views are gone from the graph, and the quantisation is one of single heads."""

    def source(x: Tensor, z: Tensor, weight: Tensor) -> Any:
        return s.group_native(s.gated_norm(x, z, weight).reshape(-1, HEADS * 128))

    check(source, heads, "gated_rms_norm_group_quant", loosely)


def test_an_rms_norm_of_another_head_size_is_left_alone() -> None:
    def source(x: Tensor, z: Tensor, weight: Tensor) -> Any:
        return s.group_custom(s.gated_norm(x, z, weight).reshape(-1, 512))

    x, z = (rows(7, 512, salt).unflatten(-1, (8, 64)) for salt in (0, 1))
    report = apply(post_grad(source, x, z, vector(64)))
    assert report.counts == {}
    labels = {r.label for r in report.refusals_of("gated_rms_norm_flat_group_quant")}
    assert "aligned" in labels


def test_broken_groups_are_left_alone_with_the_reason() -> None:
    """AITER's op has a scale for what is left of a row; the op that rules are about has none."""
    captured = post_grad(
        lambda x, weight: s.group_aiter(s.norm_vllm_ir(x, weight)), rows(7, 500), vector(500)
    )
    report = apply(captured)
    assert report.counts == {}
    (refusal,) = report.close()
    assert refusal.rule == "rms_norm_group_quant"
    assert refusal.message == (
        "vllm.rocm_aiter_group_fp8_quant is not fp8_group_quant here (form aiter): "
        "500 / 128 is not whole"
    )


# --- MLA ------------------------------------------------------------------------------------------

Q, KV, PE = 256, 128, 64


def latents(tokens: int) -> tuple[Tensor, ...]:
    return rows(tokens, Q + KV + PE), vector(Q), vector(KV, 8)


def split(projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, kv = projected.split([Q, KV + PE], -1)
    c, pe = kv.split([KV, PE], -1)
    return q, c, pe


@norms
def test_mla_dual_rms_norm(norm: Source) -> None:
    def source(projected: Tensor, q_weight: Tensor, kv_weight: Tensor) -> Any:
        q, c, pe = split(projected * 2)
        return norm(q, q_weight), norm(c, kv_weight), pe

    check(source, latents, "mla_dual_rms_norm", same_values)
    if norm is not s.norm_functional:  # make_fx leaves it as it is, Inductor never
        check(source, latents, "mla_dual_rms_norm", same_values, traced)


def test_mla_norms_without_the_rotary_part() -> None:
    """Nobody reads it, so the graph has no such part of the split."""

    def source(projected: Tensor, q_weight: Tensor, kv_weight: Tensor) -> Any:
        q, c, _ = split(projected * 2)
        return s.norm_vllm_ir(q, q_weight), s.norm_vllm_ir(c, kv_weight)

    check(source, latents, "mla_dual_rms_norm", same_values)


def quantised(norm: Source, quant: Source) -> Source:
    def source(projected: Tensor, q_weight: Tensor, kv_weight: Tensor) -> Any:
        q, c, pe = split(projected * 2)
        return (*quant(norm(q, q_weight)), norm(c, kv_weight), pe)

    return source


@pairs(NORMS, TOKEN_QUANTS)
def test_mla_dual_rms_norm_per_token_quant(norm: Source, quant: Source) -> None:
    rules = ("rms_norm_per_token_quant", "mla_dual_rms_norm_per_token_quant")
    check(quantised(norm, quant), latents, rules, fp8_then_values)


@pairs(NORMS, GROUP_QUANTS)
def test_mla_dual_rms_norm_group_quant(norm: Source, quant: Source) -> None:
    rules = ("rms_norm_group_quant", "mla_dual_rms_norm_group_quant")
    check(quantised(norm, quant), latents, rules, fp8_then_values)


def mxfp8_then_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Few codes flip, and those by one step; a group at the edge has the next scale."""
    assert (actual[0].float() != expected[0].float()).float().mean() <= 0.1
    values, wanted = mxfp8_values(actual), mxfp8_values(expected)
    torch.testing.assert_close(values, wanted, rtol=0.15, atol=2**-6)
    same_values(actual[2:], expected[2:])


def mxfp8_values(result: tuple[Any, ...]) -> Tensor:
    groups: Tensor = result[0].float().unflatten(-1, (-1, 32))
    return (groups * decode_scales(result[1]).unsqueeze(-1)).flatten(-2)


@norms
def test_rms_norm_mxfp8_quant(norm: Source) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        return torch.ops.fusiondsl.mxfp8_quant(norm(x, weight))

    check(source, plain_inputs, "rms_norm_mxfp8_quant", mxfp8_then_values)


def test_mla_dual_rms_norm_mxfp8_quant() -> None:
    rules = ("rms_norm_mxfp8_quant", "mla_dual_rms_norm_mxfp8_quant")
    source = quantised(s.norm_vllm_ir, torch.ops.fusiondsl.mxfp8_quant)
    check(source, latents, rules, mxfp8_then_values)


def test_norms_of_two_projections_are_left_alone() -> None:
    def source(a: Tensor, b: Tensor, q_weight: Tensor, kv_weight: Tensor) -> Any:
        q, _, pe = split(a)
        _, c, _ = split(b)
        return s.norm_vllm_ir(q, q_weight), s.norm_vllm_ir(c, kv_weight), pe

    width = Q + KV + PE
    captured = post_grad(source, rows(7, width), rows(7, width, 1), vector(Q), vector(KV, 8))
    assert apply(captured).counts == {}


def test_mla_kernels_are_hip() -> None:
    def source(projected: Tensor, q_weight: Tensor, kv_weight: Tensor) -> Any:
        q, c, pe = split(projected)
        return s.norm_vllm_ir(q, q_weight), s.norm_vllm_ir(c, kv_weight), pe

    report = apply(post_grad(source, *latents(7)), arch="gfx1201")
    assert report.counts == {}
    assert "mla_dual_rms_norm" in {item.rule for item in report.ineligible}
