"""Binding a call's arguments to the names of a declaration: dims, dtypes, scalars."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from fusiondsl.decl.dtypes import ANY, FP8
from fusiondsl.dims.expr import Binary, Call, Expr, Name, Spread, Unary
from fusiondsl.ir.program import Condition, Const, ListOf, OpDecl, Param, TensorType
from fusiondsl.ops.context import Context
from fusiondsl.ops.dtypes import FP8_DTYPES, device_arch, from_torch, is_concrete, to_torch
from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.schema import schema_order
from fusiondsl.ops.scope import NotWhole, Scope, Size, Undecided, constant, evaluate, truth

_Equation = tuple[str, Expr, Size]


def complete(decl: OpDecl, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name. The dispatcher leaves out trailing ones that equal their default."""
    named = dict(zip((p.name for p in schema_order(decl)), args, strict=False))
    named.update(kwargs)
    for param in decl.params:
        if param.name not in named:
            named[param.name] = default_of(decl, param)
    return named


def default_of(decl: OpDecl, param: Param) -> Any:
    default = param.default
    if isinstance(default, Const):
        return constant(default.value)
    if isinstance(default, ListOf):
        return [constant(i.value) for i in default.items if isinstance(i, Const)]
    raise ArgumentError(f"{decl.torch_name}: argument `{param.name}` is missing")


def bind(
    decl: OpDecl,
    arguments: Mapping[str, Any],
    context: Context,
    dtypes: Mapping[str, torch.dtype] = MappingProxyType({}),
) -> Scope:
    """The scope of one call. Raises ArgumentError where a statically known part disagrees.

    `dtypes` gives the nominal dtype of arguments that are passed unrounded.
    """
    scope = Scope(dict(arguments), context)
    equations: list[_Equation] = []
    for param in decl.params:
        value = arguments[param.name]
        if isinstance(param.type, TensorType) and isinstance(value, torch.Tensor):
            dtype = dtypes.get(param.name, value.dtype)
            _bind_dtype(decl, param.name, param.type, dtype, scope)
            equations.extend(_equations(decl, param.name, param.type, value, scope))
    _solve(decl, equations, scope)
    return scope


def check_conditions(decl: OpDecl, scope: Scope) -> None:
    """Raises ArgumentError for a `where` condition that is known not to hold."""
    for condition in decl.where:
        if _holds(condition, scope) is False:
            raise ArgumentError(f"{decl.torch_name}: {_describe(condition)} does not hold")


def dtype_of(kind: TensorType, scope: Scope) -> torch.dtype:
    """The dtype of a result of type `kind`."""
    if kind.dtype == FP8:
        return to_torch(FP8, device_arch())
    value = scope.lookup(kind.dtype)
    if not isinstance(value, torch.dtype):
        raise Undecided(kind.dtype)
    return value


# --- dtypes ------------------------------------------------------------------------------------


def _bind_dtype(
    decl: OpDecl, name: str, kind: TensorType, dtype: torch.dtype, scope: Scope
) -> None:
    allowed = _allowed(kind.dtype, scope)
    if allowed is None:
        scope.values.setdefault(kind.dtype, dtype)
        allowed = (scope.values[kind.dtype],)
    if allowed and dtype not in allowed:
        wanted = " or ".join(from_torch(d) for d in allowed)
        raise ArgumentError(
            f"{decl.torch_name}: argument `{name}` is {from_torch(dtype)}, expected {wanted}"
        )


def _allowed(name: str, scope: Scope) -> tuple[torch.dtype, ...] | None:
    """The dtypes a type name stands for; empty for any, None for a variable not yet bound."""
    if name == ANY:
        return ()
    if name == FP8:
        return FP8_DTYPES
    if is_concrete(name):
        return (to_torch(name),)
    if name in scope.context.dtype_sets:
        return tuple(to_torch(d) for d in scope.context.dtype_sets[name])
    bound = scope.values.get(name)
    return (bound,) if isinstance(bound, torch.dtype) else None


# --- sizes -------------------------------------------------------------------------------------


def _equations(
    decl: OpDecl, name: str, kind: TensorType, value: torch.Tensor, scope: Scope
) -> list[_Equation]:
    dims, shape = kind.dims, tuple(value.shape)
    spread = dims[0] if dims and isinstance(dims[0], Spread) else None
    fixed = dims[1:] if spread else dims
    leading = len(shape) - len(fixed)
    if leading < 0 or (leading > 0 and spread is None):
        at_least = "at least " if spread else ""
        raise ArgumentError(
            f"{decl.torch_name}: argument `{name}` has {len(shape)} dims, "
            f"expected {at_least}{len(fixed)}"
        )
    if isinstance(spread, Spread):
        _bind_spread(decl, name, spread.name, shape[:leading], scope)
    return [(name, dim, size) for dim, size in zip(fixed, shape[leading:], strict=True)]


def _bind_spread(
    decl: OpDecl, name: str, spread: str, shape: tuple[Size, ...], scope: Scope
) -> None:
    bound = scope.values.setdefault(spread, shape)
    if not isinstance(bound, tuple):
        bound = (bound,)
    same_rank = len(bound) == len(shape)
    if not same_rank or any(_differ(a, b) for a, b in zip(bound, shape, strict=True)):
        raise ArgumentError(
            f"{decl.torch_name}: argument `{name}` has leading dims {tuple(shape)}, "
            f"expected {bound}"
        )


def _solve(decl: OpDecl, equations: list[_Equation], scope: Scope) -> None:
    """Binds names in any order: `2*N` waits until it is the only unknown of its equation."""
    while equations:
        waiting = [e for e in equations if not _settle(decl, e, scope)]
        if len(waiting) == len(equations):
            return
        equations = waiting


def _settle(decl: OpDecl, equation: _Equation, scope: Scope) -> bool:
    name, expr, size = equation
    unknown = _unknown(expr, scope)
    if not unknown:
        _check_size(decl, name, expr, size, scope)
        return True
    if len(unknown) > 1:
        return False
    try:
        solved = _invert(expr, size, unknown[0], scope)
    except NotWhole as problem:
        raise ArgumentError(
            f"{decl.torch_name}: argument `{name}` has size {size} where {problem} must be whole"
        ) from None
    if solved is None:
        return False
    scope.values[unknown[0]] = solved
    return True


def _check_size(decl: OpDecl, name: str, expr: Expr, size: Size, scope: Scope) -> None:
    try:
        expected = evaluate(expr, scope)
    except (Undecided, NotWhole):
        return
    if _differ(expected, size):
        raise ArgumentError(
            f"{decl.torch_name}: argument `{name}` has size {size}, expected {expected}"
        )


def _differ(left: Size, right: Size) -> bool:
    """Known to differ. Symbolic sizes are left to the kernel: comparing them adds guards."""
    return isinstance(left, int) and isinstance(right, int) and left != right


def _unknown(expr: Expr, scope: Scope) -> list[str]:
    """Names in `expr` without a value, one entry an occurrence."""
    if isinstance(expr, Name):
        try:
            scope.lookup(expr.id)
        except Undecided:
            return [expr.id]
        return []
    children: tuple[Expr, ...] = ()
    if isinstance(expr, Binary):
        children = (expr.left, expr.right)
    elif isinstance(expr, Unary):
        children = (expr.operand,)
    elif isinstance(expr, Call):
        children = expr.args
    return [name for child in children for name in _unknown(child, scope)]


def _invert(expr: Expr, size: Any, unknown: str, scope: Scope) -> Any:
    """The value of the one unknown name that makes `expr` equal `size`, None if not solvable."""
    if isinstance(expr, Name):
        return size
    if not isinstance(expr, Binary):
        return None
    if _unknown(expr.left, scope):
        other = evaluate(expr.right, scope)
        rest = _undo_left(expr.op, size, other)
        return None if rest is None else _invert(expr.left, rest, unknown, scope)
    other = evaluate(expr.left, scope)
    rest = _undo_right(expr.op, size, other)
    return None if rest is None else _invert(expr.right, rest, unknown, scope)


def _undo_left(op: str, size: Any, right: Any) -> Any:
    """`left` in `left op right == size`."""
    if op == "+":
        return size - right
    if op == "-":
        return size + right
    if op == "*":
        return _whole(size, right)
    return size * right if op == "/" else None


def _undo_right(op: str, size: Any, left: Any) -> Any:
    """`right` in `left op right == size`."""
    if op == "+":
        return size - left
    if op == "-":
        return left - size
    return _whole(size, left) if op == "*" else None


def _whole(size: Any, factor: Any) -> Any:
    if isinstance(size, int) and isinstance(factor, int) and (factor == 0 or size % factor):
        raise NotWhole(f"{size} / {factor}")
    return size // factor


# --- conditions --------------------------------------------------------------------------------


def _holds(condition: Condition, scope: Scope) -> bool | None:
    try:
        return truth(condition.expr, scope)
    except NotWhole:
        return False


def _describe(condition: Condition) -> str:
    text = getattr(condition.expr, "span", None)
    written = text.text if text is not None else "a condition of the declaration"
    return f"condition `{condition.label}` ({written})" if condition.label else f"`{written}`"
