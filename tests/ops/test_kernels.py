"""Calling kernels as `impl` clauses say: lookup, arguments, results, contracts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusiondsl import ops
from fusiondsl.dims.expr import Call, DType, Literal, Method, Name, Sequence, Wildcard
from fusiondsl.ir.program import Impl, OpDecl
from fusiondsl.ops.dispatch import SWITCH
from fusiondsl.ops.errors import KernelContractError
from tests.ops.build import H, T, binary, call, expr, impl, op, param, program, result, tensor

HERE = "tests.ops.fake_kernels:"
X = param("x", tensor("D", T, H))
Y = result("y", tensor("D", T, H))


@pytest.fixture(autouse=True)
def _without_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)


def registered(decl: OpDecl) -> torch._ops.OpOverload:
    ops.register(program(decl))
    found = ops.overload(decl)
    assert found is not None
    return found


def test_arguments_are_adapted() -> None:
    doubled = binary("*", "scale", Literal(2.0))
    cast = Method(Name("w"), "to", (Name("D"),))
    decl = op(
        [X, param("w", tensor("W", H)), param("scale", "float")],
        [Y],
        impls=[impl(HERE + "add_scaled", "x", cast, scale=doubled)],
    )
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    y = registered(decl)(x, torch.full((3,), 2.0), 0.5)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, torch.full((2, 3), 3.0, dtype=torch.bfloat16))


def test_a_missing_residual_is_filled_with_zeros() -> None:
    zeros = Call("zeros_like", (Name("x"),))
    decl = op([X], [Y], impls=[impl(HERE + "add_scaled", "x", zeros)])
    assert torch.equal(registered(decl)(torch.ones(2, 3)), torch.ones(2, 3))


def test_nested_results() -> None:
    shape = Sequence((Sequence((Name("a"), Name("s"))), Wildcard(), Name("b")))
    results = [
        result("b", tensor("D", T, H)),
        result("a", tensor("D", T, H)),
        result("s", tensor("D", T, 1)),
    ]
    decl = op([X], results, impls=[impl(HERE + "nested", "x", results=shape)])
    x = torch.ones(2, 3)
    b, a, s = registered(decl)(x)
    assert torch.equal(a, x * 2)
    assert torch.equal(b, x * 3)
    assert torch.equal(s, torch.full((2, 1), 3.0))


def test_results_the_kernel_writes() -> None:
    results = [Y, result("s", tensor("f32", "t", 1, strides=(1, "t")))]
    decl = op([X], results, impls=[impl(HERE + "into", "y", "x", "s")])
    y, s = registered(decl)(torch.ones(2, 3))
    assert torch.equal(y, torch.full((2, 3), 2.0))
    assert torch.equal(s, torch.full((2, 1), 7.0))


def test_an_in_place_result_is_not_an_alias_of_the_input() -> None:
    decl = op([X, param("r", tensor("D", T, H))], [Y], impls=[impl(HERE + "in_place", "x", "r")])
    r = torch.ones(2, 3)
    y = registered(decl)(torch.ones(2, 3), r)
    assert y.untyped_storage().data_ptr() != r.untyped_storage().data_ptr()


def test_mutated_arguments_are_written_by_the_kernel() -> None:
    decl = op(
        [X, param("r", tensor("D", T, H), kind="inout")],
        [],
        impls=[impl(HERE + "in_place", "x", "r", results=Wildcard())],
    )
    r = torch.ones(2, 3)
    assert registered(decl)(torch.ones(2, 3), r) is None
    assert torch.equal(r, torch.full((2, 3), 2.0))


@pytest.mark.parametrize("strides", [None, (1, "t")], ids=["contiguous", "by column"])
def test_arguments_get_the_declared_strides(strides: tuple[Any, ...] | None) -> None:
    """A kernel that reads memory in one order gets it in that order, whatever the caller has."""
    x = param("x", tensor("D", "t", "h", strides=strides))
    kernel = impl(HERE + ("memory" if strides is None else "memory_by_column"), "x")
    function = registered(op([x], [result("y", tensor("D", "t", "h"))], impls=[kernel]))
    dense = torch.arange(6.0).reshape(2, 3)
    wide = torch.zeros(2, 5)
    wide[:, 1:4] = dense
    for value in (dense, wide[:, 1:4], dense.t().contiguous().t()):
        assert torch.equal(function(value), dense)


def test_a_strided_buffer_is_written() -> None:
    decl = op(
        [X, param("r", tensor("D", T, H), kind="inout")],
        [],
        impls=[impl(HERE + "bump_memory", "r", results=Wildcard())],
    )
    wide = torch.ones(2, 5)
    registered(decl)(torch.ones(2, 3), wide[:, 1:4])
    assert wide.tolist() == [[1, 2, 2, 2, 1]] * 2


def test_results_get_the_declared_strides() -> None:
    decl = op([X], [Y], impls=[impl(HERE + "transposed", "x")])
    assert registered(decl)(torch.ones(2, 3)).stride() == (3, 1)


def test_bytes_are_reinterpreted() -> None:
    decl = op([X], [result("s", tensor("u8", T, H))], impls=[impl(HERE + "raw_bytes", "x")])
    s = registered(decl)(torch.ones(2, 3))
    assert torch.equal(s, torch.full((2, 3), 127, dtype=torch.uint8))


def test_a_method_of_an_object_and_a_torch_op_are_found() -> None:
    by_path = op([X], [Y], impls=[impl(HERE + "Family.negate", "x")])
    by_name = op([X], [Y], impls=[impl("torch:aten::neg", "x")])
    by_overload = op([X], [Y], impls=[impl("torch:aten::mul.Scalar", "x", -1)])
    for decl in (by_path, by_name, by_overload):
        assert torch.equal(registered(decl)(torch.ones(2, 3)), -torch.ones(2, 3))


def test_a_result_of_another_shape_is_refused() -> None:
    decl = op([X], [Y], impls=[impl(HERE + "too_wide", "x")])
    with pytest.raises(KernelContractError, match=r"\[2, 6\], declared .*\[2, 3\]"):
        registered(decl)(torch.ones(2, 3))


def test_another_number_of_results_is_refused() -> None:
    wanted = Sequence((Name("y"), Wildcard()))
    decl = op([X], [Y], impls=[impl(HERE + "nested", "x", results=wanted)])
    with pytest.raises(KernelContractError, match="did not return 2 values"):
        registered(decl)(torch.ones(2, 3))


SMALL = binary("<=", "t", 4)
AITER = binary("==", Name("env.aiter"), Literal(True))


@pytest.mark.parametrize(
    ("impls", "rows", "expected"),
    [
        ([("torch:aten::neg", SMALL), ("torch:aten::abs", None)], 3, -1.0),
        ([("torch:aten::neg", SMALL), ("torch:aten::abs", None)], 5, 1.0),
        ([("no.such.module:f", None), ("torch:aten::neg", None)], 5, -1.0),
        ([("torch:aten::neg", AITER), ("torch:aten::abs", None)], 5, 1.0),
    ],
)
def test_the_first_kernel_that_applies_is_taken(
    impls: list[tuple[str, Any]], rows: int, expected: float
) -> None:
    clauses = [Impl(location, (expr("x"),), (), None, when) for location, when in impls]
    decl = op([X], [Y], impls=clauses)
    assert torch.equal(registered(decl)(torch.ones(rows, 3)), torch.full((rows, 3), expected))


@pytest.mark.parametrize("clause", ["available", "where"])
def test_an_op_for_other_hardware_has_no_kernel_here(clause: str) -> None:
    """A call that nobody compiled for a target asks the machine it is on."""
    decl = op(
        [X],
        [Y],
        [call("prim.neg", "x", to="y")],
        impls=[impl("torch:aten::neg", "x")],
        **{clause: {"arch": binary("==", Name("env.arch"), Literal("gfx950"))}},
    )
    function = registered(decl)
    with pytest.raises(ops.MissingKernelError, match="not available on this machine"):
        function(torch.ones(2, 3))


def test_dtype_arguments_and_lists() -> None:
    decl = op(
        [X, param("d", "dtype", DType("f32")), param("dims", "int[]", [0])],
        [result("y", tensor("d", "t"))],
        impls=[impl("torch:aten::sum.dim_IntList", "x", "dims", dtype=Name("d"))],
    )
    function = registered(decl)
    assert torch.equal(
        function(torch.ones(2, 2), torch.float64, [1]), torch.full((2,), 2.0).double()
    )


def test_a_torch_op_defined_after_the_first_call_is_found() -> None:
    name = f"late_{id(object())}"
    decl = op([X], [Y], impls=[impl(f"torch:fusiondsl_late_test::{name}", "x")])
    function = registered(decl)
    with pytest.raises(ops.MissingKernelError, match="no library has defined"):
        function(torch.ones(2, 3))
    library = torch.library.Library("fusiondsl_late_test", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, torch.neg, "CPU")
    assert torch.equal(function(torch.ones(2, 3)), -torch.ones(2, 3))
