"""MXFP4 references: AITER's own results bit for bit, and each rule of the encoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.references import mx
from fusiondsl.verify.samples import SPECIAL_ROWS, special_rows

CASES = Path(__file__).parent.parent / "cases" / "numerics"
SILU = sorted(CASES.glob("silu_mul_mxfp4_*.npz"))
NORM = sorted(CASES.glob("add_rms_norm_mxfp4_*.npz"))


def case(path: Path) -> dict[str, torch.Tensor]:
    with np.load(path) as data:
        return {name: torch.from_numpy(np.asarray(data[name])) for name in data}


@pytest.mark.parametrize("path", SILU, ids=lambda p: p.stem)
def test_silu_mul_as_plain_torch(path: Path) -> None:
    data = case(path)
    a, b = data["x"].chunk(2, -1)
    codes, scales = mx.mxfp4_quant(a / (1 + torch.exp2(a * -1.44269504089)) * b, "even")
    assert torch.equal(codes, data["codes"])
    assert torch.equal(scales, data["scales"])


@pytest.mark.parametrize("path", NORM, ids=lambda p: p.stem)
def test_add_rms_norm_as_plain_torch(path: Path) -> None:
    data = case(path)
    h = data["x"] + data["residual"]
    mean = h.square().double().mean(-1, keepdim=True).float()
    normed = h * torch.rsqrt(mean + float(data["eps"])) * data["weight"]
    codes, scales = mx.mxfp4_quant(normed, "even")
    assert torch.equal(codes, data["codes"])
    assert torch.equal(scales, data["scales"])
    assert torch.equal(h.half().float(), data["residual_out"])
    assert torch.equal(normed.half().float(), data["normed"])


# --- elements ----------------------------------------------------------------------------------

MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def group(*values: float) -> torch.Tensor:
    """A group whose scale is 1: its largest magnitude is 6."""
    return torch.tensor([*values, 6.0] + [0.0] * (31 - len(values)))


def codes_of(mode: str, *values: float) -> list[int]:
    codes, scales = mx.mxfp4_quant(group(*values), mode)
    assert scales.tolist() == [127]
    return mx.unpack(codes).tolist()[: len(values)]


@pytest.mark.parametrize("mode", ["even", "round_up", "half_up"])
def test_representable_values_are_exact(mode: str) -> None:
    assert codes_of(mode, *MAGNITUDES) == list(range(8))
    negative = [-m for m in MAGNITUDES[1:]]
    assert codes_of(mode, *negative) == list(range(9, 16))


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]


def test_ties_go_to_the_even_code_or_up() -> None:
    assert codes_of("even", *TIES) == [0, 2, 2, 4, 4, 6, 6]
    assert codes_of("round_up", *TIES) == [0, 2, 2, 4, 4, 6, 6]
    assert codes_of("half_up", *TIES) == [1, 2, 3, 4, 5, 6, 7]


def test_negative_zero_keeps_its_sign_only_where_the_kernel_copies_it() -> None:
    assert codes_of("even", -0.0, -0.1) == [8, 8]
    assert codes_of("half_up", -0.0, -0.1) == [0, 8]


def test_the_even_column_is_in_the_low_half() -> None:
    codes, _ = mx.mxfp4_quant(group(0.5, 1.0), "even")
    assert codes[0] == 1 | 2 << 4
    assert torch.equal(mx.pack(mx.unpack(codes)), codes)


# --- scales ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amax", "even", "round_up"),
    [
        (6.0, 127, 127),
        (4.0, 127, 127),
        (7.0, 128, 128),  # mantissa 1.75 rounds to the next power
        (6.9, 127, 128),  # saturates under `even`, under `round_up` it may not
        (6.001, 127, 128),
        (3.0, 126, 126),
        (1.0, 125, 125),
        (0.0, 0, 92),  # 1e-10 / 6 is just above 2 ** -36
        (2.0**-126, 0, 92),
        (2.0**-140, 0, 92),
        (float(torch.finfo(torch.float32).max), 253, 253),
        (float("inf"), 253, 255),
    ],
)
def test_scales(amax: float, even: int, round_up: int) -> None:
    x = torch.zeros(32)
    x[3] = -amax
    assert mx.mxfp4_quant(x, "even")[1].tolist() == [even]
    assert mx.mxfp4_quant(x, "round_up")[1].tolist() == [round_up]
    assert mx.mxfp4_quant(x, "half_up")[1].tolist() == [even]


def test_large_values_saturate() -> None:
    codes, scales = mx.mxfp4_quant(torch.full((32,), 6.9), "even")
    assert mx.unpack(codes).unique().tolist() == [7]
    assert scales.tolist() == [127]


def test_the_two_modes_often_choose_other_scales() -> None:
    x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    even, up = mx.mxfp4_quant(x, "even")[1], mx.mxfp4_quant(x, "round_up")[1]
    assert 0.05 < float((even != up).float().mean()) < 0.2


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ArgumentError, match="even, round_up, half_up, not 'down'"):
        mx.mxfp4_quant(torch.zeros(32), "down")


# --- dequantisation ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["even", "round_up", "half_up"])
def test_the_error_of_a_round_trip_is_bounded(mode: str) -> None:
    x = torch.randn(SPECIAL_ROWS + 2, 256, generator=torch.Generator().manual_seed(0))
    special_rows(x)
    codes, scales = mx.mxfp4_quant(x, mode)
    error = (mx.mxfp4_dequant(codes, scales) - x).abs().unflatten(-1, (-1, 32))
    amax = x.abs().unflatten(-1, (-1, 32)).amax(-1, keepdim=True)
    # Half the widest step is amax / 6 at worst, and `even` lets magnitudes up to 7/6 saturate.
    bound = (amax / 4).clamp_min(1e-10 if mode == "round_up" else 2.0**-127)
    assert bool((error <= bound).all())


def test_what_is_representable_survives_a_round_trip() -> None:
    codes = torch.arange(256, dtype=torch.uint8).reshape(1, -1)
    scales = torch.tensor([[0, 1, 64, 126, 127, 128, 200, 240] * 2], dtype=torch.uint8)
    values = mx.mxfp4_dequant(codes, scales)
    assert torch.equal(mx.mxfp4_dequant(*mx.mxfp4_quant(values, "even")), values)


def test_e8m0() -> None:
    scales = torch.tensor([0, 1, 126, 127, 128, 254, 255], dtype=torch.uint8)
    decoded = mx.decode_scales(scales)
    assert decoded[:6].tolist() == [2.0**-127, 2.0**-126, 0.5, 1.0, 2.0, 2.0**127]
    assert bool(decoded[6].isnan())
    assert torch.equal(mx.decode_scales(scales.view(torch.float8_e8m0fnu))[:6], decoded[:6])


def test_matmul_is_that_of_the_dequantised_matrices() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(5, 64, generator=generator), torch.randn(7, 64, generator=generator))
    codes, scales = mx.mxfp4_quant(x, "even")
    weight, weight_scale = mx.mxfp4_quant(w, "even")
    y = mx.mxfp4_matmul(codes, scales, weight, weight_scale.t(), torch.bfloat16)
    expected = (
        mx.mxfp4_dequant(codes, scales).double()
        @ mx.mxfp4_dequant(weight, weight_scale).double().t()
    )
    assert torch.allclose(y.double(), expected, rtol=1e-5, atol=1e-5)
    assert (y - x @ w.t()).abs().max() < 6


# --- layouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (32, 8), (300, 20), (256, 8)])
def test_shuffled_scales(shape: tuple[int, int]) -> None:
    rows, columns = shape
    generator = torch.Generator().manual_seed(0)
    scales = torch.randint(1, 255, shape, generator=generator).to(torch.uint8)
    shuffled = mx.shuffle_scales(scales)
    assert (shuffled.shape[0] % 256, shuffled.shape[1] % 8) == (0, 0)
    assert torch.equal(mx.unshuffle_scales(shuffled, rows, columns), scales)
    width, flat = shuffled.shape[1], shuffled.flatten()
    for x, y in {(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)}:
        block = (x // 32 * width) * 32 + (y // 8) * 256 + (y % 4) * 64
        position = block + (x % 16) * 4 + (y % 8) // 4 * 2 + (x % 32) // 16
        assert flat[position] == scales[x, y]


def test_mxfp8_scales_put_the_largest_magnitude_near_the_largest_code() -> None:
    """448 is 1.75 * 2**8: from mantissa 1.75 on the scale is the next power of two."""
    tops = torch.tensor([448.0, 447.0, 1.0, 0.0, 2.0**-130])
    x = torch.zeros(5, 32)
    x[:, 3] = -tops
    codes, scales = mx.mxfp8_quant(x)
    assert scales.flatten().tolist() == [128, 127, 119, 0, 0]
    values = codes.float() * mx.decode_scales(scales)
    torch.testing.assert_close(values[:3, 3], -tops[:3], rtol=2**-4, atol=0.0)
    assert torch.equal(values[3], torch.zeros(32))


def test_mxfp8_never_saturates() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(64, 256, generator=generator) * torch.logspace(-20, 20, 64).unsqueeze(-1)
    codes, scales = mx.mxfp8_quant(x)
    values = codes.float().unflatten(-1, (-1, 32)) * mx.decode_scales(scales).unsqueeze(-1)
    top = x.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True)
    assert ((values.flatten(-2) - x).unflatten(-1, (-1, 32)).abs() <= top * 2**-4).all()
