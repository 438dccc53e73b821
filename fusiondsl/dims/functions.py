"""The functions expressions may call: the built-in ones, and `table`s of a rule file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from fusiondsl.dims import dtypes
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.expr import DType
from fusiondsl.dims.facts import Facts
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Invalid, Unknown, Value, as_dim, kind_of

Function: TypeAlias = Callable[[Sequence[Value], Facts], Value]
"""Takes evaluated arguments, none of them `Unknown` or `Invalid` unless it says otherwise."""


def checked_quotient(facts: Facts, left: Dim, right: Dim, op: str) -> Value:
    """`left op right` for a dividing operation, where the divisor cannot be 0."""
    if right.as_int() == 0:
        return Invalid(f"division by zero in {left} {op} 0")
    if right.as_int() is None and facts.bounds(right).contains(0):
        return Unknown(f"the divisor {right} may be 0")
    if op == "//":
        return left // right
    if op == "%":
        return left % right
    if op == "ceil_div":
        return left.ceil_div(right)
    if op == "round_up":
        return left.round_up(right)
    return _exact_quotient(facts, left, right)


def _exact_quotient(facts: Facts, left: Dim, right: Dim) -> Value:
    exact = left.exact_div(right)
    if exact is not None:
        return exact
    whole = facts.divisible(left, right)
    if whole is Truth.TRUE:
        return left // right
    if whole is Truth.FALSE:
        return Invalid(f"{left} / {right} is not whole")
    return Unknown(f"{left} / {right} is not known to be whole")


def _two_dims(name: str, args: Sequence[Value], facts: Facts) -> Value:
    if len(args) != 2:
        return Invalid(f"{name} takes 2 arguments, not {len(args)}")
    left, right = as_dim(args[0]), as_dim(args[1])
    if left is None or right is None:
        wrong = args[0] if left is None else args[1]
        return Invalid(f"{name} takes integers, not {kind_of(wrong)}")
    return checked_quotient(facts, left, right, name)


def _ceil_div(args: Sequence[Value], facts: Facts) -> Value:
    return _two_dims("ceil_div", args, facts)


def _round_up(args: Sequence[Value], facts: Facts) -> Value:
    return _two_dims("round_up", args, facts)


def _numbers(name: str, args: Sequence[Value]) -> list[Dim] | list[float] | Invalid:
    """The arguments, or those of one list argument, as numbers of one kind."""
    items = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    if not items:
        return Invalid(f"{name} of nothing")
    dims = [as_dim(item) for item in items]
    whole = [dim for dim in dims if dim is not None]
    if len(whole) == len(dims):
        return whole
    numbers = [_number(item) for item in items]
    floats = [number for number in numbers if number is not None]
    if len(floats) == len(numbers):
        return floats
    wrong = items[numbers.index(None)]
    return Invalid(f"{name} takes numbers, not {kind_of(wrong)}")


def _number(value: Value) -> float | None:
    if isinstance(value, float):
        return value
    dim = as_dim(value)
    return None if dim is None else dim.as_int()


def _max(args: Sequence[Value], facts: Facts) -> Value:
    numbers = _numbers("max", args)
    if isinstance(numbers, Invalid):
        return numbers
    return _of_numbers(numbers, Dim.max, max)


def _min(args: Sequence[Value], facts: Facts) -> Value:
    numbers = _numbers("min", args)
    if isinstance(numbers, Invalid):
        return numbers
    return _of_numbers(numbers, Dim.min, min)


def _product(args: Sequence[Value], facts: Facts) -> Value:
    numbers = _numbers("product", args)
    if isinstance(numbers, Invalid):
        return numbers
    return _of_numbers(numbers, lambda *dims: Dim.product(dims), lambda *items: prod(items))


def _of_numbers(
    numbers: list[Dim] | list[float],
    of_dims: Callable[..., Dim],
    of_floats: Callable[..., float],
) -> Value:
    if isinstance(numbers[0], Dim):
        return of_dims(*numbers)
    return of_floats(*numbers) if len(numbers) > 1 else numbers[0]


def _itemsize(args: Sequence[Value], facts: Facts) -> Value:
    if len(args) != 1:
        return Invalid(f"itemsize takes 1 argument, not {len(args)}")
    if not isinstance(args[0], DType):
        return Invalid(f"itemsize takes a dtype, not {kind_of(args[0])}")
    size = dtypes.itemsize(args[0].name)
    if size is None:
        return Unknown(f"the size of dtype {args[0].name} is not known")
    return Dim.const(size)


def _is_pow2(args: Sequence[Value], facts: Facts) -> Value:
    dim = as_dim(args[0]) if len(args) == 1 else None
    if dim is None:
        return Invalid("is_pow2 takes one integer")
    bounds = facts.bounds(dim)
    if bounds.single is not None:
        return Truth.of(bounds.single > 0 and bounds.single & (bounds.single - 1) == 0)
    if bounds.hi is None:
        return Truth.UNKNOWN
    lowest = max(bounds.lo or 1, 1)
    first = 1 << (lowest - 1).bit_length()
    return Truth.UNKNOWN if first <= bounds.hi else Truth.FALSE


BUILTINS: dict[str, Function] = {
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "max": _max,
    "min": _min,
    "product": _product,
    "itemsize": _itemsize,
    "is_pow2": _is_pow2,
}
