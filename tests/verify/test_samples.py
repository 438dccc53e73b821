"""Samples satisfy the conditions they are made for and contain the awkward rows."""

from __future__ import annotations

import pytest
import torch

from fusiondsl.dims.expr import Binary, DType, Name, Sequence
from fusiondsl.ops.context import Context
from fusiondsl.verify.samples import SPECIAL_ROWS, NoSample, sample_inputs
from tests.ops.build import H, N, T, binary, op, param, result, tensor

CONTEXT = Context(dtype_sets={"half": ("bf16", "f16")})

GROUPED = op(
    [
        param("x", tensor("D", T, H)),
        param("w", tensor("u8", N, binary("/", H, 2))),
        param("scale", tensor("f32", 1)),
        param("group", "int", 128),
        param("eps", "float"),
        param("q", "dtype", DType("f8e4m3fn")),
    ],
    [result("y", tensor("q", T, binary("/", H, "group")))],
    where={
        "dtypes": Binary("in", Name("D"), Sequence((Name("half"), Name("f16")))),
        "wide": binary(">=", H, 300),
        "tokens": binary("<=", "t", 4),
    },
)


def test_conditions_hold() -> None:
    sample = sample_inputs(GROUPED, CONTEXT)
    x, w = sample.arguments["x"], sample.arguments["w"]
    assert x.dtype in (torch.bfloat16, torch.float16)
    assert (x.shape[1] % 128, x.shape[1] >= 300, x.shape[0] <= 4) == (0, True, True)
    assert w.shape[1] == x.shape[1] // 2
    assert sample.arguments["group"] == 128
    assert sample.arguments["q"] == torch.float8_e4m3fn
    assert bool((sample.arguments["scale"] > 0).all())
    assert sample.positional(GROUPED)[0] is x


def test_fixed_values_are_kept() -> None:
    fixed = {"t": (2, 2), "H": 384, "D": "f16", "eps": 1e-5}
    sample = sample_inputs(GROUPED, CONTEXT, fixed=fixed)
    assert sample.arguments["x"].shape == (2, 2, 384)
    assert sample.arguments["x"].dtype == torch.float16
    assert sample.arguments["eps"] == 1e-5


def test_what_cannot_be_satisfied_is_said() -> None:
    with pytest.raises(NoSample, match=GROUPED.name):
        sample_inputs(GROUPED, CONTEXT, fixed={"H": 100})


def test_one_seed_one_sample() -> None:
    one, same, other = (sample_inputs(GROUPED, CONTEXT, seed=s).arguments["w"] for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


PLAIN = op([param("x", tensor("f32", T, H))], [result("y", tensor("f32", T, H))])


def test_special_rows() -> None:
    fixed = {"t": (SPECIAL_ROWS + 2,), "H": 64}
    x = sample_inputs(PLAIN, CONTEXT, fixed=fixed).arguments["x"]
    plain = sample_inputs(PLAIN, CONTEXT, fixed=fixed, special=False).arguments["x"]
    assert torch.equal(x[0], plain[0])
    assert torch.equal(x[-1], plain[-1])
    assert not x[1].any()
    assert not torch.signbit(x[1]).any()
    assert not x[2].any()
    assert torch.signbit(x[2]).all()
    assert x[3].abs().max() < 1e-30
    assert x[4].abs().max() > 1e3
    assert torch.equal(x[5] * 4, (x[5] * 4).round())
    assert x[6].abs().max() > 10 * x[6].abs().median()
    assert torch.isfinite(x).all()


def test_extreme_rows_on_request() -> None:
    fixed = {"t": (SPECIAL_ROWS + 4,), "H": 64}
    x = sample_inputs(PLAIN, CONTEXT, fixed=fixed, extreme=True).arguments["x"]
    assert torch.isinf(x).any()
    assert (x == torch.finfo(torch.float32).max).any()


def test_declared_strides() -> None:
    decl = op(
        [param("x", tensor("f32", "A", "B", strides=(1, "A")))],
        [result("y", tensor("f32", 1))],
    )
    x = sample_inputs(decl, CONTEXT).arguments["x"]
    assert x.stride() == (1, x.shape[0])
