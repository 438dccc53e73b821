"""Every shipped rule fires in every admitted form of its source, and computes the source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fusiondsl.engine.report import RefusalKind, Report
from tests.patterns.harness import (
    ADD_NORMS,
    BF16,
    GROUP_QUANTS,
    NORMS,
    TOKEN_QUANTS,
    H,
    Source,
    add_inputs,
    add_norms,
    apply,
    check,
    compiled,
    fp8_then_values,
    group_quants,
    mxfp4_then_values,
    names,
    norms,
    pairs,
    plain_inputs,
    product_then_values,
    rows,
    same_values,
    silus,
    vector,
)
from tests.support import spellings as s
from tests.support.capture import post_grad


@pytest.fixture(autouse=True)
def _ops() -> None:
    compiled()  # registers what the spellings call


# --- all-reduce and norm -------------------------------------------------------------------------


@norms
def test_allreduce_rms_norm(norm: Source) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        reduced = s.reduce_vllm(x)
        return norm(reduced, weight), reduced

    check(source, plain_inputs, "allreduce_rms_norm", same_values)


@add_norms
def test_allreduce_add_rms_norm(norm: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        return norm(s.reduce_vllm(x), residual, weight)

    check(source, add_inputs, "allreduce_add_rms_norm", same_values)


def test_allreduce_add_rms_norm_with_a_dead_residual() -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        return s.add_norm_vllm_ir(s.reduce_vllm(x), residual, weight)[0]

    check(source, add_inputs, "allreduce_add_rms_norm", same_values)


@add_norms
def test_allreduce_add_rms_norm_in_f32(norm: Source) -> None:
    """Two in a row: casts are not in the graph, and the sums have readers besides the norms."""

    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        first, total = norm(s.reduce_vllm(x), residual, weight)
        second, last = norm(s.reduce_vllm(first), total, weight)
        return second, last, residual * 2

    def make(tokens: int) -> tuple[Tensor, ...]:
        return tuple(value.float() for value in add_inputs(tokens))

    captured = post_grad(source, *make(7))
    assert apply(captured).counts == {"allreduce_add_rms_norm": 2}
    for tokens in (7, 128):
        for left, right in zip(
            captured.run(make(tokens), tokens), source(*make(tokens)), strict=True
        ):
            torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


def test_f32_rows_that_the_kernel_does_not_take() -> None:
    """It needs 64 packs of 16 bytes."""

    def report(width: int) -> Report:
        inputs = rows(7, width), rows(7, width, 1), vector(width)
        return apply(post_grad(ar_source, *(value.float() for value in inputs)))

    assert report(256).counts == {"allreduce_add_rms_norm": 1}
    assert report(248).counts == {}
    (refusal,) = report(248).refusals_of("allreduce_add_rms_norm")
    assert "H * itemsize(D) is 992, under the minimum 1024" in refusal.message


def test_narrow_rows_of_16_bits_that_need_one_stage() -> None:
    """It takes few rows, and is taken for certain with two ranks only."""
    inputs = rows(7, 256), rows(7, 256, 1), vector(256)

    def report(most: int, tp_size: int) -> Report:
        return apply(post_grad(ar_source, *inputs), range(1, most + 1), tp_size=tp_size)

    assert report(80, 2).counts == {"allreduce_add_rms_norm": 1}
    for most, tp_size, why in ((81, 2, "over the limit 80"), (80, 8, "env.tp_size is 8, not 2")):
        found = report(most, tp_size)
        assert found.counts == {}
        (refusal,) = found.refusals_of("allreduce_add_rms_norm")
        assert why in refusal.message


@pytest.mark.parametrize("functionalized", [1, 2])
def test_a_norm_that_writes_in_place(functionalized: int) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        reduced, total = s.reduce_vllm(x), residual * 2
        torch.ops._C.fused_add_rms_norm(reduced, total, weight, s.EPS)
        return reduced, total

    captured = post_grad(source, *add_inputs(7), functionalized=functionalized)
    assert apply(captured).counts == {"allreduce_add_rms_norm": 1}
    for tokens in (7, 128):
        same_values(captured.run(add_inputs(tokens), tokens), source(*add_inputs(tokens)))


@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_tensor_parallel_sizes(tp_size: int) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        return s.add_norm_vllm_ir(s.reduce_vllm(x), residual, weight)

    check(source, add_inputs, "allreduce_add_rms_norm", same_values, tp_size=tp_size)


def gemma_ir(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.vllm_ir.rms_norm(x, weight.float() + 1.0, s.EPS)


def gemma_native(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + s.EPS)
    return (h * (1.0 + weight.float())).to(x.dtype)


@pytest.mark.parametrize("norm", [gemma_ir, gemma_native])
def test_allreduce_gemma_rms_norm(norm: Source) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        reduced = s.reduce_vllm(x)
        return norm(reduced, weight), reduced

    check(source, plain_inputs, "allreduce_gemma_rms_norm", same_values)


@pytest.mark.parametrize("dead", [False, True])
def test_allreduce_add_gemma_rms_norm(dead: bool) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        gain = weight.float() + 1.0
        pair = torch.ops.vllm_ir.fused_add_rms_norm(s.reduce_vllm(x), residual, gain, s.EPS)
        return pair[0] if dead else pair

    captured = check(source, add_inputs, "allreduce_add_gemma_rms_norm", same_values)
    fused = next(n for n in captured.gm.graph.nodes if "fused_allreduce" in str(n.target))
    assert fused.args[2].meta["val"].dtype is BF16  # the weight itself, not the sum


@pairs(NORMS, GROUP_QUANTS)
def test_allreduce_rms_norm_group_quant(norm: Source, quant: Source) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        return quant(norm(s.reduce_vllm(x), weight))

    check(source, plain_inputs, "allreduce_rms_norm_group_quant", fp8_then_values)


@pairs(ADD_NORMS, GROUP_QUANTS)
def test_allreduce_add_rms_norm_group_quant(norm: Source, quant: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = norm(s.reduce_vllm(x), residual, weight)
        return (*quant(y), total)

    check(source, add_inputs, "allreduce_add_rms_norm_group_quant", fp8_then_values)


@group_quants
def test_the_norm_is_kept_for_a_second_consumer(quant: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor, indexer: Tensor) -> Any:
        y, total = s.add_norm_vllm_ir(s.reduce_vllm(x), residual, weight)
        return (*quant(y), total, y, torch.ops.vllm.rocm_unquantized_gemm(y, indexer))

    def compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        fp8_then_values(actual[:4], expected[:4])
        torch.testing.assert_close(actual[4], expected[4], rtol=0.05, atol=0.5)

    check(
        source,
        lambda t: (*add_inputs(t), rows(32, H, 5)),
        "allreduce_add_rms_norm_group_quant_with_norm",
        compare,
    )


# --- norm and quantisation -----------------------------------------------------------------------


@pairs(NORMS, TOKEN_QUANTS)
def test_rms_norm_per_token_quant(norm: Source, quant: Source) -> None:
    check(
        lambda x, weight: quant(norm(x, weight)),
        plain_inputs,
        "rms_norm_per_token_quant",
        fp8_then_values,
    )


@pairs(ADD_NORMS, TOKEN_QUANTS)
def test_add_rms_norm_per_token_quant(norm: Source, quant: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = norm(x, residual, weight)
        return (*quant(y), total)

    check(source, add_inputs, "add_rms_norm_per_token_quant", fp8_then_values)


@pairs(NORMS, GROUP_QUANTS)
def test_rms_norm_group_quant(norm: Source, quant: Source) -> None:
    check(
        lambda x, weight: quant(norm(x, weight)),
        plain_inputs,
        "rms_norm_group_quant",
        fp8_then_values,
    )


@pairs(ADD_NORMS, GROUP_QUANTS)
def test_add_rms_norm_group_quant(norm: Source, quant: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = norm(x, residual, weight)
        return (*quant(y), total)

    check(source, add_inputs, "add_rms_norm_group_quant", fp8_then_values)


@group_quants
def test_one_norm_feeds_two_quants(quant: Source) -> None:
    """Equal calls are one value: the fused op runs once."""

    def source(x: Tensor, weight: Tensor) -> Any:
        y = s.norm_vllm_ir(x, weight)
        return (*quant(y), *quant(y))

    def compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        fp8_then_values(actual[:2], expected[:2])
        fp8_then_values(actual[2:], expected[2:])

    captured = check(source, plain_inputs, "rms_norm_group_quant", compare)
    fused = [t for t in captured.targets() if "aiter_rms_norm_group_quant" in t]
    assert len(fused) == 1


@pytest.mark.parametrize("quant", [*TOKEN_QUANTS, *GROUP_QUANTS], ids=names)
def test_a_view_between_norm_and_quant(quant: Source) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        return quant(s.norm_vllm_ir(x, weight).reshape(-1, H))

    kind = "per_token" if quant in TOKEN_QUANTS else "group"
    check(
        source,
        lambda t: (rows(t, 2 * H).unflatten(-1, (2, H)), vector(H)),
        f"rms_norm_{kind}_quant",
        fp8_then_values,
    )


@pytest.mark.parametrize("quant", [s.token_aiter, s.group_custom])
def test_three_dimensional_activations(quant: Source) -> None:
    kind = "per_token" if quant is s.token_aiter else "group"
    check(
        lambda x, weight: quant(s.norm_vllm_ir(x, weight)),
        lambda t: (rows(t, 2 * H).unflatten(-1, (2, H)), vector(H)),
        f"rms_norm_{kind}_quant",
        fp8_then_values,
    )


# --- MXFP4 ---------------------------------------------------------------------------------------


@silus
def test_silu_mul_mxfp4_quant(silu: Source) -> None:
    check(
        lambda x: s.mx_own(silu(x)),
        lambda t: (rows(t, 2 * H),),
        "silu_mul_mxfp4_quant",
        mxfp4_then_values,
    )


@add_norms
def test_add_rms_norm_mxfp4_quant(norm: Source) -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        y, total = norm(x, residual, weight)
        return (*s.mx_own(y), total)

    check(source, add_inputs, "add_rms_norm_mxfp4_quant", mxfp4_then_values)


def packed_weight(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 256, (outputs, inputs // 2), generator=generator, dtype=torch.uint8)
    scales = torch.randint(
        124, 130, (inputs // 32, outputs), generator=generator, dtype=torch.uint8
    )
    return codes, scales


@silus
def test_silu_mul_mxfp4_gemm(silu: Source) -> None:
    def source(x: Tensor, weight: Tensor, weight_scale: Tensor) -> Any:
        return s.mx_gemm_vllm(silu(x), weight, weight_scale)

    check(
        source,
        lambda t: (rows(t, 2 * H), *packed_weight(48, H)),
        "silu_mul_mxfp4_gemm",
        product_then_values,
    )


@add_norms
def test_add_rms_norm_mxfp4_gemm(norm: Source) -> None:
    def source(
        x: Tensor, residual: Tensor, gain: Tensor, weight: Tensor, weight_scale: Tensor
    ) -> Any:
        y, total = norm(x, residual, gain)
        return s.mx_gemm_vllm(y, weight, weight_scale), total

    check(
        source,
        lambda t: (*add_inputs(t), *packed_weight(48, H)),
        "add_rms_norm_mxfp4_gemm",
        product_then_values,
    )


# --- what must not fire --------------------------------------------------------------------------


def refusals(report: Report, rule: str) -> list[tuple[RefusalKind, str | None]]:
    return [(r.kind, r.label) for r in report.refusals_of(rule)]


def ar_source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
    return s.add_norm_vllm_ir(s.reduce_vllm(x), residual, weight)


def test_token_limit() -> None:
    """64 MiB of bf16 rows of 512 are 65,536 tokens."""
    rule = "allreduce_add_rms_norm"
    captured = post_grad(ar_source, *add_inputs(7))
    report = apply(captured, tokens=range(65_537, 70_000))
    assert report.counts == {}
    assert (RefusalKind.PREDICATE_FALSE, "limit") in refusals(report, rule)
    report = apply(captured, tokens=range(1, 70_000))
    assert report.counts == {}
    assert (RefusalKind.PREDICATE_UNKNOWN, "limit") in refusals(report, rule)
    assert apply(captured, tokens=range(1, 65_537)).counts == {rule: 1}


def test_hidden_sizes_of_old_and_new_builds() -> None:
    def inputs(width: int) -> tuple[Tensor, ...]:
        return rows(7, width), rows(7, width, 1), vector(width)

    odd = post_grad(ar_source, *inputs(2880))
    report = apply(odd, new_aiter=False)
    assert report.counts == {}
    assert (RefusalKind.PREDICATE_FALSE, "hidden") in refusals(report, "allreduce_add_rms_norm")
    assert apply(odd).counts == {"allreduce_add_rms_norm": 1}
    listed = post_grad(ar_source, *inputs(1024))
    assert apply(listed, new_aiter=False).counts == {"allreduce_add_rms_norm": 1}


def test_another_group_is_left_alone() -> None:
    def source(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        return s.add_norm_vllm_ir(torch.ops.vllm.all_reduce(x, "dp:0"), residual, weight)

    report = apply(post_grad(source, *add_inputs(7)))
    assert report.counts == {}
    assert (RefusalKind.PREDICATE_FALSE, "tp_group") in refusals(report, "allreduce_add_rms_norm")


def test_an_f32_weight_is_left_alone() -> None:
    def inputs(tokens: int) -> tuple[Tensor, ...]:
        return rows(tokens, H), vector(H).float()

    captured = post_grad(lambda x, weight: s.token_aiter(s.norm_vllm_ir(x, weight)), *inputs(7))
    report = apply(captured)
    assert report.counts == {}
    kinds = [r.kind for r in report.refusals_of("rms_norm_per_token_quant")]
    assert RefusalKind.DTYPE in kinds


def test_a_second_reader_of_the_norm() -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        y = s.norm_vllm_ir(x, weight)
        return (*s.token_aiter(y), y)

    report = apply(post_grad(source, *plain_inputs(7)))
    assert report.counts == {}
    kinds = [r.kind for r in report.refusals_of("rms_norm_per_token_quant")]
    assert RefusalKind.EXTRA_USER in kinds


def test_scales_of_another_layout_or_group_are_left_alone() -> None:
    def transposed(x: Tensor, weight: Tensor) -> Any:
        return torch.ops.vllm.rocm_aiter_group_fp8_quant(s.norm_vllm_ir(x, weight), 128, True)

    def powers_of_two(x: Tensor, weight: Tensor) -> Any:
        y = s.norm_vllm_ir(x, weight)
        out = torch.empty(y.shape, dtype=s.FN)
        scale = torch.empty(y.shape[0], H // 128)
        torch.ops._C.per_token_group_fp8_quant(
            y, out, scale, 128, 1e-10, -448.0, 448.0, True, False, False
        )
        return out, scale

    def groups_of_64(x: Tensor, weight: Tensor) -> Any:
        y = s.norm_vllm_ir(x, weight)
        out = torch.empty(y.shape, dtype=s.FN)
        scale = torch.empty(y.shape[0], H // 64)
        torch.ops._C.per_token_group_fp8_quant(
            y, out, scale, 64, 1e-10, -448.0, 448.0, False, False, False
        )
        return out, scale

    for source in (transposed, powers_of_two, groups_of_64):
        report = apply(post_grad(source, *plain_inputs(7)))
        assert report.counts == {}, source.__name__


def test_the_assembler_gemm_is_left_alone() -> None:
    def source(x: Tensor, weight: Tensor, weight_scale: Tensor) -> Any:
        y = s.silu_sliced(x)
        return torch.ops.vllm.gemm_with_dynamic_quant(y, weight, weight_scale, True, BF16)

    captured = post_grad(source, rows(7, 2 * H), *packed_weight(48, H))
    assert apply(captured).counts == {}


def test_mxfp4_needs_the_hardware() -> None:
    captured = post_grad(lambda x: s.mx_own(s.silu_sliced(x)), rows(7, 2 * H))
    report = apply(captured, arch="gfx942")
    assert report.counts == {}
    assert "silu_mul_mxfp4_quant" in {item.rule for item in report.ineligible}


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 3e-4])
def test_every_eps_is_handed_over(eps: float) -> None:
    def source(x: Tensor, weight: Tensor) -> Any:
        return s.token_aiter(torch.ops.vllm_ir.rms_norm(x, weight, eps))

    captured = post_grad(source, *plain_inputs(7))
    assert apply(captured).counts == {"rms_norm_per_token_quant": 1}
    fused = next(n for n in captured.gm.graph.nodes if "per_token" in str(n.target))
    assert eps in fused.args or eps in fused.kwargs.values()
