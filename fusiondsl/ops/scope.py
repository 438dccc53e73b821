"""Names bound by one call, and expressions over them: dims, dtypes, scalars, conditions.

Sizes may be symbolic. Arithmetic is done on them as they are and nothing here ever asks a symbolic
comparison for its truth value, so evaluating adds no guard: what is not decided is `None`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from fusiondsl.decl.dtypes import FP8
from fusiondsl.dims.expr import (
    Binary,
    Call,
    DType,
    Expr,
    Literal,
    Name,
    Sequence,
    Spread,
    Unary,
    Wildcard,
)
from fusiondsl.ir.program import Table
from fusiondsl.ops.context import Context
from fusiondsl.ops.dtypes import FP8_DTYPES, is_concrete, to_torch

Size: TypeAlias = int | torch.SymInt


class Undecided(Exception):
    """The expression needs something that is not known in a call (`env.tp_size`, a predicate)."""


class NotWhole(Exception):
    """An exact division of sizes has a remainder."""


@dataclass
class Scope:
    """`values` maps names to sizes, tuples of sizes (spreads), scalars, dtypes and tensors."""

    values: dict[str, Any] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def lookup(self, name: str) -> Any:
        """The value of `name`; a spread stands for the product of its sizes."""
        if name in self.values:
            value = self.values[name]
            return product(value) if isinstance(value, tuple) else value
        if name in self.context.lets:
            return constant(self.context.lets[name].value)
        if name in self.facts:
            return self.facts[name]
        return self._dtype(name)

    def _dtype(self, name: str) -> Any:
        if is_concrete(name):
            return to_torch(name)
        if name == FP8:
            return FP8_DTYPES
        if name in self.context.dtype_sets:
            return tuple(to_torch(d) for d in self.context.dtype_sets[name] if is_concrete(d))
        raise Undecided(name)


def constant(value: object) -> Any:
    """A literal as Python has it: dtypes become torch dtypes."""
    return to_torch(value.name) if isinstance(value, DType) else value


def product(sizes: tuple[Size, ...]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


# --- values ------------------------------------------------------------------------------------


def evaluate(expr: Expr, scope: Scope) -> Any:
    """The value of `expr`; Undecided where it depends on something unknown."""
    if isinstance(expr, Literal):
        return constant(expr.value)
    if isinstance(expr, Name):
        return scope.lookup(expr.id)
    if isinstance(expr, Sequence):
        return tuple(evaluate(item, scope) for item in expr.items)
    if isinstance(expr, Unary) and expr.op == "-":
        return -evaluate(expr.operand, scope)
    if isinstance(expr, Binary) and expr.op in _ARITHMETIC:
        return _arithmetic(expr, scope)
    if isinstance(expr, Call):
        return _call(expr, scope)
    if isinstance(expr, (Binary, Unary)):
        return truth(expr, scope)
    raise Undecided(type(expr).__name__)


def sizes(exprs: tuple[Expr, ...], scope: Scope) -> tuple[Size, ...]:
    """A shape, with spreads written out."""
    result: list[Size] = []
    for expr in exprs:
        if isinstance(expr, Spread):
            result.extend(scope.values[expr.name])
        else:
            result.append(evaluate(expr, scope))
    return tuple(result)


def _divide(left: Any, right: Any) -> Any:
    """`/`: exact on sizes, true division where a float takes part."""
    if isinstance(left, (float, torch.Tensor)) or isinstance(right, (float, torch.Tensor)):
        return left / right
    if isinstance(left, int) and isinstance(right, int) and (right == 0 or left % right):
        raise NotWhole(f"{left} / {right}")
    return left // right


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def _arithmetic(expr: Binary, scope: Scope) -> Any:
    left, right = evaluate(expr.left, scope), evaluate(expr.right, scope)
    try:
        return _ARITHMETIC[expr.op](left, right)
    except ZeroDivisionError:
        raise NotWhole(f"{left} {expr.op} {right}") from None


def _ceil_div(a: Size, b: Size) -> Size:
    return (a + b - 1) // b


def _itemsize(dtype: torch.dtype) -> int:
    return dtype.itemsize


def _least(*args: Any) -> Any:
    result = args[0]
    for arg in args[1:]:
        result = torch.sym_min(result, arg)
    return result


def _greatest(*args: Any) -> Any:
    result = args[0]
    for arg in args[1:]:
        result = torch.sym_max(result, arg)
    return result


def _is_pow2(size: Size) -> bool:
    if not isinstance(size, int):
        raise Undecided("is_pow2")
    return size > 0 and size & (size - 1) == 0


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil_div": _ceil_div,
    "round_up": lambda a, b: _ceil_div(a, b) * b,
    "itemsize": _itemsize,
    "min": _least,
    "max": _greatest,
    "is_pow2": _is_pow2,
}


def _call(expr: Call, scope: Scope) -> Any:
    if expr.func == "product":
        return product(sizes(expr.args, scope))
    table = scope.context.tables.get(expr.func)
    if table is not None:
        return _row(table, expr.args, scope)
    function = _FUNCTIONS.get(expr.func)
    if function is None or expr.kwargs:
        raise Undecided(expr.func)
    return function(*(evaluate(arg, scope) for arg in expr.args))


def _row(table: Table, args: tuple[Expr, ...], scope: Scope) -> Any:
    """The value of the first row that fits."""
    for row in table.rows:
        keys = [(k, a) for k, a in zip(row.keys, args, strict=True) if not isinstance(k, Wildcard)]
        fits = [_fits(evaluate(key, scope), evaluate(arg, scope)) for key, arg in keys]
        if all(fits):
            return evaluate(row.value, scope)
        if False not in fits:
            break
    raise Undecided(table.name)


def _fits(key: Any, value: Any) -> bool | None:
    several = isinstance(key, tuple) and key is not FP8_DTYPES
    return _contains(value, key) if several else _compare("==", value, key)


# --- truth -------------------------------------------------------------------------------------


def truth(expr: Expr, scope: Scope) -> bool | None:
    """Three-valued truth of a condition; None where it is not decided."""
    try:
        return _truth(expr, scope)
    except Undecided:
        return None


def _truth(expr: Expr, scope: Scope) -> bool | None:
    if isinstance(expr, Unary) and expr.op == "not":
        inner = truth(expr.operand, scope)
        return None if inner is None else not inner
    if isinstance(expr, Binary) and expr.op in ("and", "or"):
        return _junction(expr, scope)
    if isinstance(expr, Binary) and expr.op in ("in", "not in"):
        found = _contains(evaluate(expr.left, scope), evaluate(expr.right, scope))
        return found if expr.op == "in" or found is None else not found
    if isinstance(expr, Binary) and expr.op in _COMPARE:
        return _compare(expr.op, evaluate(expr.left, scope), evaluate(expr.right, scope))
    return decided(evaluate(expr, scope))


def _junction(expr: Binary, scope: Scope) -> bool | None:
    left, right = truth(expr.left, scope), truth(expr.right, scope)
    absorbing = expr.op == "or"
    if left is absorbing or right is absorbing:
        return absorbing
    return None if left is None or right is None else not absorbing


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        same = left is None and right is None
        return same if op == "==" else not same
    if left is FP8_DTYPES or right is FP8_DTYPES:
        found = left in FP8_DTYPES if right is FP8_DTYPES else right in FP8_DTYPES
        # Which of the two flavours is meant depends on the architecture.
        return None if found else op == "!="
    return decided(_COMPARE[op](left, right))


def _contains(value: Any, members: Any) -> bool | None:
    unknown = False
    for member in members:
        if isinstance(member, tuple):
            equal = _contains(value, member)
        else:
            equal = _compare("==", value, member)
        if equal:
            return True
        unknown = unknown or equal is None
    return None if unknown else False


def decided(value: Any) -> bool | None:
    """A truth value that is known without a guard."""
    if isinstance(value, torch.SymBool):
        known = value.node.maybe_as_bool()
        return known if isinstance(known, bool) else None
    return value if isinstance(value, bool) else None
