"""MX formats: e2m1 codes with one e8m0 scale for 32 columns."""

from __future__ import annotations

import torch

from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.references import axiom

GROUP = 32

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of the codes 0 to 7; bit 3 is the sign."""

_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Between neighbouring codes. Nearest-even gives a tie to the even code: up at every second one."""

_ROUND_UP_FLOOR = 1e-10

_LARGEST_E2M1, _LARGEST_E4M3 = 2, 8
"""Exponents of the largest codes: 4 * 1.5 and 256 * 1.75."""


@axiom("mxfp4_quant")
def mxfp4_quant(x: torch.Tensor, scale_mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes `[..., H / 2]` and scale bytes `[..., H / 32]`."""
    if scale_mode not in _SCALES:
        known = ", ".join(_SCALES)
        raise ArgumentError(f"mxfp4_quant: scale_mode is one of {known}, not {scale_mode!r}")
    groups = x.float().unflatten(-1, (-1, GROUP))
    amax = groups.abs().amax(-1)
    exponents = _SCALES[scale_mode](amax)
    scaled = groups * _power_of_two(127 - exponents).unsqueeze(-1)
    encode = _encode_half_up if scale_mode == "half_up" else _encode_nearest_even
    return pack(encode(scaled).flatten(-2)), exponents.to(torch.uint8)


@axiom("mxfp8_quant")
def mxfp8_quant(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes in f8e4m3fn `[..., H]` and scale bytes `[..., H / 32]`."""
    groups = x.float().unflatten(-1, (-1, GROUP))
    exponents = _even_exponents(groups.abs().amax(-1), _LARGEST_E4M3)
    scaled = groups * _power_of_two(127 - exponents).unsqueeze(-1)
    return scaled.flatten(-2).to(torch.float8_e4m3fn), exponents.to(torch.uint8)


@axiom("mxfp4_dequant")
def mxfp4_dequant(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The f32 values of codes and row-major scales."""
    values = decode(unpack(codes)).unflatten(-1, (-1, GROUP))
    scaled: torch.Tensor = values * decode_scales(scales).unsqueeze(-1)
    return scaled.flatten(-2)


@axiom("mxfp4_matmul")
def mxfp4_matmul(
    codes: torch.Tensor,
    scales: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """`dequant(x) @ dequant(weight).T` in f32; `weight_scale` is stored `[K / 32, N]`."""
    left = mxfp4_dequant(codes, scales)
    right = mxfp4_dequant(weight, weight_scale.t())
    return torch.matmul(left, right.t())


# --- e8m0 scales -------------------------------------------------------------------------------


def decode_scales(scales: torch.Tensor) -> torch.Tensor:
    """Byte E is `2 ** (E - 127)`; 255 is NaN."""
    exponents = scales.view(torch.uint8).to(torch.int32)
    powers = _power_of_two(exponents - 127)
    return torch.where(exponents == 255, torch.full_like(powers, float("nan")), powers)


def _power_of_two(exponents: torch.Tensor) -> torch.Tensor:
    """`2.0 ** exponents` in f32, exact, subnormals included."""
    return torch.ldexp(torch.ones_like(exponents, dtype=torch.float64), exponents).float()


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.float().view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def _scale_even(amax: torch.Tensor) -> torch.Tensor:
    return _even_exponents(amax, _LARGEST_E2M1)


def _even_exponents(amax: torch.Tensor, largest: int) -> torch.Tensor:
    """Rounds the magnitude up to a power of two from mantissa 1.75 on, and takes `largest` off."""
    rounded = (_bits(amax) + 0x200000) & 0xFF800000
    return ((rounded >> 23) - largest).clamp(0, 254)


def _scale_round_up(amax: torch.Tensor) -> torch.Tensor:
    """The smallest power of two not below `amax / 6`."""
    sixth = torch.tensor(1.0) / 6.0
    bits = _bits(amax.clamp_min(_ROUND_UP_FLOOR) * sixth)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    bump = (mantissa != 0) & (exponent < 255)
    return exponent + bump.to(torch.int64)


_SCALES = {
    "even": _scale_even,
    "round_up": _scale_round_up,
    "half_up": _scale_even,
}


# --- e2m1 codes --------------------------------------------------------------------------------


def _encode_nearest_even(x: torch.Tensor) -> torch.Tensor:
    """Nearest code, ties to the even one, saturating; the sign of zero is kept."""
    magnitude = x.abs()
    code = torch.zeros_like(magnitude, dtype=torch.uint8)
    for index, midpoint in enumerate(_MIDPOINTS):
        above = magnitude >= midpoint if index % 2 else magnitude > midpoint
        code += above.to(torch.uint8)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def _encode_half_up(x: torch.Tensor) -> torch.Tensor:
    """Nearest code, ties away from zero, saturating; negative zero becomes zero."""
    magnitude = x.abs()
    code = torch.zeros_like(magnitude, dtype=torch.uint8)
    for midpoint in _MIDPOINTS:
        code += (magnitude >= midpoint).to(torch.uint8)
    return code | ((x < 0).to(torch.uint8) << 3)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """The f32 values of unpacked codes."""
    table = torch.tensor(_MAGNITUDES + tuple(-m for m in _MAGNITUDES), device=codes.device)
    return table[codes.to(torch.int64)]


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte, the even column in the low half."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    data = packed.view(torch.uint8)
    return torch.stack((data & 0xF, data >> 4), dim=-1).flatten(-2)


# --- scale layouts -----------------------------------------------------------------------------


def shuffle_scales(scales: torch.Tensor) -> torch.Tensor:
    """AITER's shuffled layout of `[M, N / 32]` scale bytes, rows padded to 256, columns to 8.

    Padding bytes are zero here; kernels leave them unwritten.
    """
    rows, columns = scales.shape
    padded = torch.zeros(
        _padded(rows, 256), _padded(columns, 8), dtype=scales.dtype, device=scales.device
    )
    padded[:rows, :columns] = scales
    return padded.flatten()[_source_of(padded)].reshape(padded.shape)


def unshuffle_scales(shuffled: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The plain scales of a shuffled buffer, without the padding."""
    plain = torch.empty_like(shuffled).flatten()
    plain[_source_of(shuffled)] = shuffled.flatten()
    return plain.reshape(shuffled.shape)[:rows, :columns]


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _source_of(padded: torch.Tensor) -> torch.Tensor:
    """For each byte of the shuffled buffer: the flat position of the scale it holds."""
    rows, columns = padded.shape
    x = torch.arange(rows, device=padded.device).unsqueeze(1)
    y = torch.arange(columns, device=padded.device).unsqueeze(0)
    block = (x // 32 * columns) * 32 + (y // 8) * 256
    target = block + (y % 4) * 64 + (x % 16) * 4 + (y % 8) // 4 * 2 + (x % 32) // 16
    source = torch.empty(rows * columns, dtype=torch.int64, device=padded.device)
    source[target.flatten()] = torch.arange(rows * columns, device=padded.device)
    return source
