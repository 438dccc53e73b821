"""The limits hold for what they are derived from, and something beyond them is noticed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fusiondsl.demo.limits import exceeded, limit_of, whole_limit
from fusiondsl.demo.sites import Quantity, SiteComparison
from fusiondsl.ops.references import fp8, mx
from fusiondsl.verify.numerics import (
    Comparison,
    PackedComparison,
    compare,
    compare_fp8,
    compare_mxfp4,
)

FP8 = torch.float8_e4m3fn
WIDTH = 512


def site(quantity: Quantity, found: Comparison | PackedComparison) -> SiteComparison:
    return SiteComparison("rule", "node", "result", quantity, WIDTH, found)


def problems(quantity: Quantity, found: Comparison | PackedComparison) -> list[str]:
    return list(exceeded(found, limit_of(site(quantity, found))))


def products(seed: int) -> tuple[Tensor, Tensor]:
    """Rows times a weight: rounded to bf16 before and after, and not rounded at all."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(256, WIDTH, generator=generator) * 2.0 ** float(seed)
    weight = (1 + 0.3 * torch.randn(WIDTH, generator=generator)).bfloat16()
    return rows.bfloat16() * weight, rows * weight.float()


@pytest.mark.parametrize("seed", range(8))
def test_one_rounding_or_two(seed: int) -> None:
    twice, unrounded = products(seed)
    assert problems("bf16", compare(unrounded.bfloat16(), twice)) == []
    codes = compare_fp8(fp8.per_token_quant(unrounded, FP8), fp8.per_token_quant(twice, FP8))
    assert problems("fp8", codes) == []
    packed = compare_mxfp4(mx.mxfp4_quant(unrounded, "even"), mx.mxfp4_quant(twice, "even"))
    assert problems("mxfp4", packed) == []


@pytest.mark.parametrize("seed", range(8))
def test_means_in_any_order(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(64, WIDTH, generator=generator) * torch.logspace(-3, 3, WIDTH)

    def norm(mean: Tensor) -> Tensor:
        return rows * torch.rsqrt(mean[:, None] + 1e-6)

    squares = rows.square()
    one_by_one = torch.zeros(64)
    for column in squares.unbind(1):
        one_by_one = one_by_one + column
    found = compare(norm(one_by_one / WIDTH), norm(squares.double().mean(1).float()))
    assert not found.equal
    assert problems("f32", found) == []


def test_what_is_beyond_a_limit() -> None:
    one = torch.ones(1, 32, dtype=torch.bfloat16)
    assert problems("bf16", compare(one + 2**-7, one)) == []
    found = problems("bf16", compare(one + 2**-6, one))
    assert found == ["moved by 2, over 1", "largest error 0.0156, over 0.00781"]
    assert problems("sum", compare(one + 2**-7, one))
    codes = torch.full((1, 32), 100.0)
    scale = torch.ones(1, 1)
    moved = compare_fp8((codes.to(FP8), scale * math.nan), (codes.to(FP8), scale))
    assert problems("fp8", moved) == ["difference of scales nan, over 0.00781"]


def test_differences_of_fused_calls_add_up_and_grow_as_those_of_the_input() -> None:
    def error(mean: float) -> Comparison:
        return Comparison(False, 1, 2 * mean, mean, 1.0)

    sites = [site("bf16", error(0.25)), site("product", error(0.5)), site("mxfp4", error(9.0))]
    limit = whole_limit(sites, nudge=error(0.125), nudged=error(0.375))
    assert (limit.mean_error, limit.max_error) == (3 * 0.75, 3 * 1.5)
    assert whole_limit(sites, error(0.5), error(0.25)).mean_error == 0.75
    assert list(exceeded(error(2.0), limit)) == []
    assert list(exceeded(error(2.5), limit)) == [
        "mean error 2.5, over 2.25",
        "largest error 5, over 4.5",
    ]
