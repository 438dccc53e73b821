"""Short spellings for checked declarations, so that these tests do not depend on the checker."""

from __future__ import annotations

from itertools import count
from typing import Any

from fusiondsl.dims.expr import Binary, DType, Expr, Literal, Name, Spread
from fusiondsl.ir.program import (
    Call,
    Condition,
    Const,
    Impl,
    ListOf,
    OpDecl,
    Operand,
    Param,
    Program,
    Ref,
    Result,
    ScalarType,
    Step,
    TensorType,
)

_numbers = count()

F32 = Const(DType("f32"))
T = Spread("t")
H = Name("H")
N = Name("N")


def fresh(stem: str = "op") -> str:
    """A name no other test uses: registration lasts as long as the process."""
    return f"test.{stem}{next(_numbers)}"


def expr(value: Expr | int | str) -> Expr:
    if isinstance(value, int):
        return Literal(value)
    return Name(value) if isinstance(value, str) else value


def binary(op: str, left: Expr | int | str, right: Expr | int | str) -> Binary:
    return Binary(op, expr(left), expr(right))


def tensor(
    dtype: str,
    *dims: Expr | int | str,
    strides: tuple[Any, ...] | None = None,
    optional: bool = False,
) -> TensorType:
    laid_out = None if strides is None else tuple(expr(s) for s in strides)
    return TensorType(dtype, tuple(expr(d) for d in dims), laid_out, optional)


def param(name: str, type_: TensorType | str, default: Any = ..., **options: Any) -> Param:
    """A parameter; a scalar type is written `int`, `int[]`, `float?`."""
    if isinstance(type_, str):
        plain = type_.rstrip("?").removesuffix("[]")
        scalar = ScalarType(plain, "[]" in type_, type_.endswith("?"))
        return Param(name, scalar, default=_default(default), **options)
    return Param(name, type_, default=_default(default), **options)


def _default(value: Any) -> Const | ListOf | None:
    if value is ...:
        return None
    if isinstance(value, list):
        return ListOf(tuple(Const(v) for v in value))
    return Const(value)


def result(name: str, kind: TensorType) -> Result:
    return Result(name, kind)


def call(op: str, *args: Any, to: str | tuple[str | None, ...]) -> Call:
    """A step; names are strings, constants are anything else that is no operand."""
    operands = tuple(_operand(a) for a in args)
    return Call(op, operands, (to,) if isinstance(to, str) else to)


def _operand(value: Any) -> Operand:
    if isinstance(value, str):
        return Ref(value)
    if value is None or isinstance(value, (int, float, bool)):
        return Const(value)
    operand: Operand = value
    return operand


def impl(location: str, *args: Any, results: Expr | None = None, **kwargs: Any) -> Impl:
    when = kwargs.pop("when", None)
    named = tuple((name, expr(value)) for name, value in kwargs.items())
    return Impl(location, tuple(expr(a) for a in args), named, results, when)


def op(
    params: list[Param],
    results: list[Result],
    means: list[Step] | None = None,
    *,
    name: str | None = None,
    axiom: bool = False,
    where: dict[str, Expr] | None = None,
    available: dict[str, Expr] | None = None,
    impls: list[Impl] | None = None,
    extern: bool = False,
) -> OpDecl:
    return OpDecl(
        name or fresh(),
        extern,
        "default",
        tuple(params),
        tuple(results),
        None if means is None else tuple(means),
        axiom,
        (),
        tuple(Condition(label, e) for label, e in (where or {}).items()),
        tuple(Condition(label, e) for label, e in (available or {}).items()),
        tuple(impls or ()),
        (),
        (),
    )


def program(*ops: OpDecl, dtype_sets: dict[str, tuple[str, ...]] | None = None) -> Program:
    return Program({o.name: o for o in ops}, (), {}, {}, dtype_sets or {})
