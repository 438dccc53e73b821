"""FP8 references against the formulas written out."""

from __future__ import annotations

import pytest
import torch

from fusiondsl.ops.references import fp8
from fusiondsl.verify.samples import SPECIAL_ROWS, special_rows

FLAVOURS = {torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 240.0}
both = pytest.mark.parametrize("dtype", FLAVOURS, ids=str)


def rows(dtype: torch.dtype = torch.bfloat16, width: int = 256) -> torch.Tensor:
    x = torch.randn(SPECIAL_ROWS + 2, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    special_rows(x)
    return x


@both
def test_static(dtype: torch.dtype) -> None:
    limit = FLAVOURS[dtype]
    x, scale = rows(), torch.tensor([0.25])
    q = fp8.static_quant(x, scale, dtype)
    assert q.dtype == dtype
    assert torch.equal(q.float(), (x.float() / 0.25).clamp(-limit, limit).to(dtype).float())
    assert q.float().abs().max() == limit


@both
def test_per_token(dtype: torch.dtype) -> None:
    x = rows()
    q, scale = fp8.per_token_quant(x, dtype)
    assert scale.shape == (x.shape[0], 1)
    expected = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-10) / FLAVOURS[dtype]
    assert torch.equal(scale, expected)
    largest = q.float().abs().amax(-1)
    filled = x.float().abs().amax(-1) > 1e-10
    assert largest[filled].unique().tolist() == [FLAVOURS[dtype]]
    assert not largest[~filled].any()


@both
def test_group(dtype: torch.dtype) -> None:
    x = rows()
    q, scale = fp8.group_quant(x, 64, dtype)
    assert scale.shape == (x.shape[0], 4)
    for group in range(4):
        part = slice(64 * group, 64 * (group + 1))
        codes, one = fp8.per_token_quant(x[:, part], dtype)
        assert torch.equal(q[:, part].float(), codes.float())
        assert torch.equal(scale[:, group], one.squeeze(-1))


def test_column_major_scales_say_contiguous_but_lie_transposed() -> None:
    x = rows()
    _, plain = fp8.group_quant(x, 64, torch.float8_e4m3fn)
    _, scale = fp8.group_quant(x, 64, torch.float8_e4m3fn, column_major=True)
    assert scale.shape == plain.shape
    assert scale.is_contiguous()
    assert torch.equal(scale.flatten().view(4, -1).t(), plain)


def test_power_of_two_scales() -> None:
    _, scale = fp8.group_quant(rows(), 64, torch.float8_e4m3fn, ue8m0=True)
    mantissa, _ = torch.frexp(scale)
    assert mantissa.unique().tolist() == [0.5]
    values = torch.tensor([1.0, 1.5, 2.0, 3.0, 0.25, 0.26, 448.0, 2.0**-40])
    powers = [1.0, 2.0, 2.0, 4.0, 0.25, 0.5, 512.0, 2.0**-40]
    assert fp8.next_power_of_two(values).tolist() == powers


def test_no_rows() -> None:
    x = torch.empty(0, 256)
    q, scale = fp8.group_quant(x, 128, torch.float8_e4m3fn)
    assert (q.shape, scale.shape) == ((0, 256), (0, 2))
