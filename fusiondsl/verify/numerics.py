"""How far two results are apart: ulps for floats, code flips and dequantised error for codes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fusiondsl.ops.references.mx import GROUP, decode_scales, mxfp4_dequant, unpack

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found; `max_error` and `mean_error` are relative to the largest magnitude."""

    equal: bool
    max_ulp: int
    """In units of the dtype's own spacing; 0 for integer tensors, which have none."""
    max_error: float
    mean_error: float
    flip_rate: float
    """Share of elements that are not the same bit pattern, NaNs counting as equal."""


def compare(actual: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Compares two tensors of one shape and dtype element by element."""
    check_alike(actual, expected)
    maximum, mean = relative_error(actual, expected)
    floating = actual.dtype.is_floating_point
    return Comparison(
        equal=bitwise_equal(actual, expected),
        max_ulp=max_ulp(actual, expected) if floating else 0,
        max_error=maximum,
        mean_error=mean,
        flip_rate=flip_rate(actual, expected),
    )


def check_alike(actual: torch.Tensor, expected: torch.Tensor) -> None:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise AssertionError(
            f"{actual.dtype}{list(actual.shape)} compared with "
            f"{expected.dtype}{list(expected.shape)}"
        )


def bits(x: torch.Tensor) -> torch.Tensor:
    """The bit patterns as signed integers of the same width."""
    return x.detach().contiguous().view(_INTEGERS[x.dtype.itemsize])


def bitwise_equal(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    check_alike(actual, expected)
    return torch.equal(bits(actual), bits(expected))


# --- floats ------------------------------------------------------------------------------------


def ulp_distance(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How many representable values lie between, as int64. `-0.0` and `0.0` are 0 apart.

    Two NaNs are 0 apart, a NaN and a number the largest distance there is.
    """
    check_alike(actual, expected)
    distance = (_ordered(actual) - _ordered(expected)).abs()
    nan, other = torch.isnan(actual.float()), torch.isnan(expected.float())
    distance = torch.where(nan & other, torch.zeros_like(distance), distance)
    return torch.where(nan ^ other, torch.full_like(distance, 2**63 - 1), distance)


def max_ulp(actual: torch.Tensor, expected: torch.Tensor) -> int:
    distance = ulp_distance(actual, expected)
    return int(distance.max()) if distance.numel() else 0


def _ordered(x: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the floats: negative ones are mirrored below zero."""
    pattern = bits(x).to(torch.int64)
    width = 8 * x.dtype.itemsize
    magnitude = pattern & ((1 << (width - 1)) - 1)
    return torch.where(pattern < 0, -magnitude, magnitude)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over finite values, relative to the largest magnitude."""
    left, right = actual.double(), expected.double()
    finite = torch.isfinite(left) & torch.isfinite(right)
    if not bool(finite.any()):
        return 0.0, 0.0
    error = (left - right)[finite].abs()
    scale = float(right[finite].abs().max()) or 1.0
    return float(error.max()) / scale, float(error.mean()) / scale


def flip_rate(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of elements whose bit patterns differ."""
    check_alike(actual, expected)
    differ = bits(actual) != bits(expected)
    if actual.dtype.is_floating_point:
        differ &= ~(torch.isnan(actual.float()) & torch.isnan(expected.float()))
    return _share(differ)


def _share(flags: torch.Tensor) -> float:
    return float(flags.double().mean()) if flags.numel() else 0.0


# --- packed outputs ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackedComparison:
    """Quantised results: how many codes and scales differ, and what that does to the values."""

    code_flips: float
    """Share of codes that differ."""
    code_steps: int
    """The most codes that one moved; for MX formats under equal scales only, as a scale that moves
    doubles or halves what its codes stand for."""
    scale_flips: float
    """Share of scales that differ."""
    scale_error: float
    """The largest difference of two scales, relative to the larger one."""
    max_error: float
    """Of the dequantised values, relative to the largest magnitude."""
    mean_error: float

    @property
    def equal(self) -> bool:
        return not self.code_flips and not self.scale_flips


def compare_mxfp4(
    actual: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> PackedComparison:
    """Compares (codes, scales) of MXFP4."""
    maximum, mean = relative_error(mxfp4_dequant(*actual), mxfp4_dequant(*expected))
    left, right = unpack(actual[0]), unpack(expected[0])
    alike = (actual[1] == expected[1]).repeat_interleave(GROUP, dim=-1)
    steps = (_signed(left) - _signed(right)).abs() * alike
    return PackedComparison(
        code_flips=_share(left != right),
        code_steps=int(steps.max()) if steps.numel() else 0,
        scale_flips=flip_rate(actual[1], expected[1]),
        scale_error=_scale_error(decode_scales(actual[1]), decode_scales(expected[1])),
        max_error=maximum,
        mean_error=mean,
    )


def compare_fp8(
    actual: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> PackedComparison:
    """Compares (codes, scales) of FP8; one scale for each row or group of columns."""
    maximum, mean = relative_error(fp8_dequant(*actual), fp8_dequant(*expected))
    return PackedComparison(
        code_flips=flip_rate(actual[0], expected[0]),
        code_steps=max_ulp(actual[0], expected[0]),
        scale_flips=flip_rate(actual[1], expected[1]),
        scale_error=_scale_error(actual[1], expected[1]),
        max_error=maximum,
        mean_error=mean,
    )


def fp8_dequant(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The f32 values; the last dimension of `scale` counts the groups of a row."""
    values = codes.float()
    if scale.numel() == 1:
        return values * scale.reshape(())
    group = values.shape[-1] // scale.shape[-1]
    return values * scale.repeat_interleave(group, dim=-1)


def _signed(codes: torch.Tensor) -> torch.Tensor:
    """Numbers of e2m1 codes in the order of their values; both zeros are 0."""
    magnitude = (codes & 7).to(torch.int8)
    return torch.where(codes > 7, -magnitude, magnitude)


def _scale_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    left, right = actual.double(), expected.double()
    larger = torch.maximum(left.abs(), right.abs())
    error = torch.where(larger == 0, larger, (left - right).abs() / larger)
    return float(error.max()) if error.numel() else 0.0
