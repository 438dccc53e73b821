"""Fakes from result types: shapes, dtypes, strides, symbolic sizes without guards, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from fusiondsl import ops
from fusiondsl.dims.expr import Binary, Call, Literal, Name, Sequence, Spread
from fusiondsl.ir.program import Branch, Computed, ListOf, OpDecl
from fusiondsl.ops.dtypes import to_torch
from fusiondsl.ops.errors import ArgumentError
from tests.ops.build import F32, H, N, T, binary, call, expr, op, param, program, result, tensor


def registered(decl: OpDecl, **extra: Any) -> torch._ops.OpOverload:
    ops.register(program(decl, **extra))
    found = ops.overload(decl)
    assert found is not None
    return found


def symbolic(mode: FakeTensorMode, *sizes: tuple[int, bool]) -> torch.Tensor:
    """A fake tensor; each size with whether it is dynamic."""
    context = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC if d else DimDynamic.STATIC for _, d in sizes]
    )
    real = torch.empty([size for size, _ in sizes], dtype=torch.bfloat16)
    fake: torch.Tensor = mode.from_tensor(
        real, symbolic_context=context, source=ConstantSource(f"input{id(real)}")
    )
    return fake


HALVES = op(
    [param("x", tensor("D", T, binary("*", 2, N))), param("w", tensor("W", N))],
    [
        result("y", tensor("D", T, N)),
        result("s", tensor("f32", Name("t"), Call("ceil_div", (N, expr(32))), strides=(1, "t"))),
        result("c", tensor("u8", T, Call("round_up", (N, expr(64))))),
    ],
    where={"even": binary("==", binary("%", N, 2), 0)},
)


def test_shapes_dtypes_and_strides() -> None:
    function = registered(HALVES)
    with FakeTensorMode():
        x = torch.empty(2, 3, 200, dtype=torch.bfloat16)
        y, s, c = function(x, torch.empty(100))
    assert (y.shape, y.dtype, y.stride()) == ((2, 3, 100), torch.bfloat16, (300, 100, 1))
    assert (s.shape, s.dtype, s.stride()) == ((6, 4), torch.float32, (1, 6))
    assert (c.shape, c.dtype) == ((2, 3, 128), torch.uint8)


def test_results_are_contiguous_for_transposed_inputs() -> None:
    function = registered(HALVES)
    with FakeTensorMode():
        y, _, _ = function(torch.empty(200, 7).t(), torch.empty(100))
    assert y.stride() == (100, 1)


def test_device_is_that_of_the_first_tensor() -> None:
    function = registered(HALVES)
    results = function(torch.empty(7, 200, device="meta"), torch.empty(100, device="meta"))
    assert {r.device.type for r in results} == {"meta"}


@pytest.mark.parametrize("rows", [(7,), (1,), (3, 5)])
def test_symbolic_sizes_flow_and_add_no_guard(rows: tuple[int, ...]) -> None:
    function = registered(HALVES)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x = symbolic(mode, *((r, True) for r in rows), (200, True))
    w = symbolic(mode, (100, True))
    with mode:
        before = (len(env.guards), dict(env.replacements), dict(env.var_to_range))
        y, s, c = function(x, w)
    assert (len(env.guards), dict(env.replacements), dict(env.var_to_range)) == before
    assert not env.deferred_runtime_asserts
    assert [str(size) for size in y.shape[:-1]] == [str(size) for size in x.shape[:-1]]
    assert isinstance(y.shape[-1], torch.SymInt)
    # torch specialises a size of one by itself.
    assert isinstance(s.shape[0], torch.SymInt) == (rows != (1,))
    assert isinstance(c.shape[-1], torch.SymInt)


def test_symbolic_rows_with_static_columns() -> None:
    function = registered(HALVES)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x = symbolic(mode, (7, True), (200, False))
    with mode:
        y, s, _ = function(x, torch.empty(100))
    assert (y.shape[1], s.shape[1]) == (100, 4)
    assert isinstance(y.shape[0], torch.SymInt)
    assert not env.guards


BAD = {
    "condition": ((3, 202), (101,), torch.float32, r"condition `even`"),
    "exact division": ((3, 201), (100,), torch.float32, r"201 / 2 must be whole"),
    "size": ((3, 200), (99,), torch.float32, r"argument `w` has size 99, expected 100"),
    "rank": ((3, 200), (1, 100), torch.float32, r"`w` has 2 dims, expected 1"),
    "no dims": ((), (100,), torch.float32, r"`x` has 0 dims, expected at least 1"),
}


@pytest.mark.parametrize(("x", "w", "dtype", "message"), BAD.values(), ids=BAD)
def test_what_disagrees_is_named(
    x: tuple[int, ...], w: tuple[int, ...], dtype: torch.dtype, message: str
) -> None:
    function = registered(HALVES)
    with FakeTensorMode(), pytest.raises(ArgumentError, match=message):
        function(torch.empty(x, dtype=dtype), torch.empty(w))
    with pytest.raises(ArgumentError, match=message):
        function(torch.empty(x, dtype=dtype), torch.empty(w))


TYPED = op(
    [
        param("a", tensor("half", T)),
        param("b", tensor("D", T)),
        param("c", tensor("D", T)),
        param("q", tensor("fp8", T)),
        param("d", "dtype"),
    ],
    [result("y", tensor("d", T))],
    where={"wide": Binary("in", Name("d"), Sequence((Name("f32"), Name("f64"))))},
)


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ("f32 f32 f32 f8e4m3fn f32", "`a` is f32, expected bf16 or f16"),
        ("f16 f32 bf16 f8e4m3fn f32", "`c` is bf16, expected f32"),
        ("f16 f32 f32 f8e5m2 f32", "`q` is f8e5m2, expected f8e4m3fn or f8e4m3fnuz"),
        ("f16 f32 f32 f8e4m3fnuz f16", "condition `wide`"),
        ("bf16 u8 u8 f8e4m3fnuz f64", None),
    ],
)
def test_dtypes(dtypes: str, message: str | None) -> None:
    function = registered(TYPED, dtype_sets={"half": ("bf16", "f16")})
    *tensors, last = (to_torch(name) for name in dtypes.split())
    with FakeTensorMode():
        args = [torch.empty(4, dtype=d) for d in tensors]
        if message is None:
            assert function(*args, last).dtype == last
            return
        with pytest.raises(ArgumentError, match=message):
            function(*args, last)


OPTIONAL = op(
    [
        param("x", tensor("D", T, H)),
        param("res", tensor("D", T, H, optional=True), None),
        param("extra", "bool", False),
    ],
    [
        result("y", tensor("D", T, H)),
        result("r", tensor("D", T, H, optional=True)),
        result("z", tensor("f32", T, H, optional=True)),
    ],
    [
        Branch(
            Binary("==", Name("res"), Literal(None)),
            (call("prim.neg", "x", to="y"),),
            (call("prim.add", "x", "res", to="r"), call("prim.neg", "r", to="y")),
        ),
        Branch(Name("extra"), (call("prim.cast", "x", F32, to="z"),), ()),
    ],
)


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("extra", [False, True])
def test_optional_results_depend_on_arguments(with_residual: bool, extra: bool) -> None:
    function = registered(OPTIONAL)
    x = torch.randn(3, 4)
    args = (x, x if with_residual else None, extra)
    real = function(*args)
    with FakeTensorMode() as mode:
        fake = function(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
    assert [r is None for r in real] == [False, not with_residual, not extra]
    assert [r is None for r in fake] == [r is None for r in real]
    torch.library.opcheck(function, args)


def test_dims_solve_in_any_order() -> None:
    decl = op(
        [
            param("a", tensor("D", binary("+", "P", "Q"))),
            param("b", tensor("D", binary("*", 3, "Q"))),
            param("k", "int"),
            param("c", tensor("D", binary("/", "R", "k"))),
            param("d", tensor("D", binary("-", "S", 1))),
        ],
        [result("y", tensor("D", "P", "Q", "R", "S"))],
    )
    function = registered(decl)
    with FakeTensorMode():
        y = function(torch.empty(10), torch.empty(12), 2, torch.empty(5), torch.empty(7))
    assert y.shape == (6, 4, 10, 8)


def test_a_spread_binds_any_rank() -> None:
    decl = op(
        [param("x", tensor("D", Spread("t")))],
        [result("y", tensor("D", Spread("t"))), result("n", tensor("D", "t"))],
        [
            call("prim.neg", "x", to="y"),
            call("prim.view", "x", ListOf((Computed(Name("t")),)), to="n"),
        ],
    )
    function = registered(decl)
    for shape in ((), (3,), (2, 3, 4)):
        y, n = function(torch.ones(shape))
        assert y.shape == shape
        assert n.shape == (torch.Size(shape).numel(),)
