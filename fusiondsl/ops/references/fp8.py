"""FP8 quantisation with a given scale, one a row, or one a group of columns."""

from __future__ import annotations

import torch

from fusiondsl.ops.references import axiom

AMAX_FLOOR = 1e-10


def largest(dtype: torch.dtype) -> float:
    """The largest finite value: 448 for f8e4m3fn, 240 for f8e4m3fnuz; 127 for i8."""
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return float(info.max)


@axiom("fp8_static_quant")
def static_quant(x: torch.Tensor, scale: torch.Tensor, quant_dtype: torch.dtype) -> torch.Tensor:
    return quantise(x.float(), scale.float().reshape(()), quant_dtype)


@axiom("fp8_per_token_quant")
def per_token_quant(x: torch.Tensor, quant_dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.float()
    scale = scale_of(wide, quant_dtype)
    return quantise(wide, scale, quant_dtype), scale


@axiom("fp8_group_quant")
def group_quant(
    x: torch.Tensor,
    group_size: int,
    quant_dtype: torch.dtype,
    column_major: bool = False,
    ue8m0: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.float().unflatten(-1, (-1, group_size))
    scale = scale_of(groups, quant_dtype)
    if ue8m0:
        scale = next_power_of_two(scale)
    codes = quantise(groups, scale, quant_dtype).flatten(-2)
    flat = scale.squeeze(-1)
    return codes, transposed_in_memory(flat) if column_major else flat


def scale_of(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`max(amax(|x|), 1e-10) / MAX` over the last dimension, which stays with size one."""
    amax = x.abs().amax(-1, keepdim=True)
    return amax.clamp_min(AMAX_FLOOR) / largest(dtype)


def quantise(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x / scale`, clamped to the finite range, in `dtype`."""
    limit = largest(dtype)
    scaled = (x / scale).clamp(-limit, limit)
    return scaled.to(dtype) if dtype.is_floating_point else scaled.round().to(dtype)


def next_power_of_two(x: torch.Tensor) -> torch.Tensor:
    """The smallest power of two that is not below `x`, exactly."""
    mantissa, exponent = torch.frexp(x.double())
    rounded = torch.where(mantissa == 0.5, exponent - 1, exponent)
    return torch.ldexp(torch.ones_like(x, dtype=torch.float64), rounded).float()


def transposed_in_memory(scale: torch.Tensor) -> torch.Tensor:
    """The same shape, but the bytes of a row-major tensor hold the columns one after another."""
    rows = scale.reshape(-1, scale.shape[-1])
    return rows.t().contiguous().reshape(scale.shape)
