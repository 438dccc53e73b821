"""The comparison metrics on values with known distances."""

from __future__ import annotations

import math

import pytest
import torch

from fusiondsl.ops.references import fp8, mx
from fusiondsl.verify import numerics

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_neighbours_are_one_ulp_apart(dtype: torch.dtype) -> None:
    one = torch.ones(1).to(dtype)
    bits = numerics.bits(one)
    above, below = (bits + 1).view(dtype), (bits - 1).view(dtype)
    assert numerics.max_ulp(one, above) == 1
    assert numerics.max_ulp(above, below) == 2


def test_ulps_across_zero_and_non_numbers() -> None:
    left = torch.tensor([0.0, 2.0**-149, NAN, NAN, INF])
    right = torch.tensor([-0.0, -(2.0**-149), NAN, 1.0, torch.finfo(torch.float32).max])
    assert numerics.ulp_distance(left, right).tolist() == [0, 2, 0, 2**63 - 1, 1]


def test_comparison() -> None:
    expected = torch.tensor([1.0, 2.0, -4.0, 0.0])
    assert numerics.compare(expected, expected) == numerics.Comparison(True, 0, 0.0, 0.0, 0.0)
    actual = torch.tensor([1.0, 2.5, -4.0, -0.0])
    found = numerics.compare(actual, expected)
    assert not found.equal
    assert (found.max_error, found.mean_error, found.flip_rate) == (0.125, 0.03125, 0.5)


def test_tensors_of_other_shape_or_dtype_are_not_comparable() -> None:
    with pytest.raises(AssertionError, match=r"\[2\] compared with torch.float32\[3\]"):
        numerics.compare(torch.ones(2), torch.ones(3))
    with pytest.raises(AssertionError):
        numerics.compare(torch.ones(2), torch.ones(2).half())


def test_empty_tensors_are_equal() -> None:
    found = numerics.compare(torch.empty(0, 4), torch.empty(0, 4))
    assert found == numerics.Comparison(True, 0, 0.0, 0.0, 0.0)


def test_packed_mxfp4() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    codes, scales = mx.mxfp4_quant(x, "even")
    same = numerics.compare_mxfp4((codes, scales), (codes, scales))
    assert same == numerics.PackedComparison(0.0, 0, 0.0, 0.0, 0.0, 0.0)
    assert same.equal
    changed = codes.clone()
    changed[0, 0] ^= 1
    one = numerics.compare_mxfp4((changed, scales), (codes, scales))
    assert (one.code_flips, one.code_steps, one.scale_flips) == (1 / 256, 1, 0.0)
    assert 0 < one.max_error <= 1
    assert not one.equal


def test_steps_of_mxfp4_codes_go_through_zero() -> None:
    scales = torch.full((1, 1), 127, dtype=torch.uint8)
    zeros = torch.zeros(1, 16, dtype=torch.uint8)
    ends = zeros.clone()
    ends[0, 0] = 0x0F  # -6 and 0
    minus_zero = zeros.clone()
    minus_zero[0, 0] = 0x08
    assert numerics.compare_mxfp4((ends, scales), (zeros, scales)).code_steps == 7
    found = numerics.compare_mxfp4((minus_zero, scales), (zeros, scales))
    assert (found.code_flips, found.code_steps) == (1 / 32, 0)


def test_codes_under_another_scale_take_no_steps() -> None:
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    codes, scales = mx.mxfp4_quant(x, "even")
    doubled = scales.clone()
    doubled[0, 0] += 1
    changed = codes.clone()
    changed[0, 0] ^= 1
    found = numerics.compare_mxfp4((changed, doubled), (codes, scales))
    assert (found.code_steps, found.scale_flips, found.scale_error) == (0, 0.5, 0.5)


def test_steps_and_scales_of_fp8() -> None:
    codes = torch.tensor([[1.0, 2.0, -3.0, 448.0]]).to(torch.float8_e4m3fn)
    moved = torch.tensor([[1.0, 2.25, -3.0, 384.0]]).to(torch.float8_e4m3fn)
    scale = torch.ones(1, 1)
    found = numerics.compare_fp8((moved, scale * 0.75), (codes, scale))
    assert (found.code_flips, found.code_steps, found.scale_error) == (0.5, 2, 0.25)
    lost = numerics.compare_fp8((moved, scale * float("nan")), (codes, scale))
    assert math.isnan(lost.scale_error)
    assert numerics.compare_fp8((codes, scale * 0), (codes, scale * 0)).scale_error == 0


@pytest.mark.parametrize("group", [None, 32, 64])
def test_packed_fp8(group: int | None) -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    dtype = torch.float8_e4m3fn
    pair = fp8.per_token_quant(x, dtype) if group is None else fp8.group_quant(x, group, dtype)
    assert numerics.compare_fp8(pair, pair).max_error == 0
    assert torch.allclose(numerics.fp8_dequant(*pair), x, rtol=0.07, atol=1e-3)


def test_fp8_with_one_scale() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor([0.01])
    q = fp8.static_quant(x, scale, torch.float8_e4m3fn)
    assert torch.allclose(numerics.fp8_dequant(q, scale), x, rtol=0.07, atol=1e-3)
