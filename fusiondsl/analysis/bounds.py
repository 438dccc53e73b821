"""What conditions say about the range and the divisors of single names, as `Facts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import lcm

from fusiondsl.dims.expr import Binary, Expr, Literal, Name, Sequence
from fusiondsl.dims.facts import Facts, Range

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


class Contradiction(Exception):
    """No number satisfies all of the conditions."""


def facts_of(
    conditions: Iterable[Expr], symbol: Callable[[str], str | None], sizes: Iterable[str] = ()
) -> Facts:
    """Facts about the symbols that names stand for; `symbol` gives None for other names.

    `sizes` are symbols that are at least 0. Raises `Contradiction`.
    """
    ranges = {name: Range(0) for name in sizes}
    divisors: dict[str, int] = {}
    for condition in conditions:
        name, low, high, divisor = _read(condition)
        known = None if name is None else symbol(name)
        if known is None:
            continue
        try:
            ranges[known] = ranges.get(known, Range()).meet(Range(low, high))
        except ValueError:
            raise Contradiction from None
        divisors[known] = lcm(divisors.get(known, 1), divisor)
    for name, divisor in divisors.items():
        low, high = ranges[name].lo, ranges[name].hi
        if low is not None and high is not None and -(-low // divisor) * divisor > high:
            raise Contradiction
    return Facts(ranges, divisors)


def _read(expr: Expr) -> tuple[str | None, int | None, int | None, int]:
    """A name, its least and largest value, and a number that divides it."""
    nothing = (None, None, None, 1)
    if not isinstance(expr, Binary):
        return nothing
    if expr.op == "in" and isinstance(expr.left, Name) and isinstance(expr.right, Sequence):
        members = [_whole(item) for item in expr.right.items]
        numbers = [m for m in members if m is not None]
        if not members or len(numbers) < len(members):
            return nothing
        return expr.left.id, min(numbers), max(numbers), 1
    if expr.op not in _FLIPPED:
        return nothing
    op, left, right = expr.op, expr.left, _whole(expr.right)
    if right is None:
        op, left, right = _FLIPPED[op], expr.right, _whole(expr.left)
    if right is None:
        return nothing
    if isinstance(left, Binary) and left.op == "%" and isinstance(left.left, Name):
        modulus = _whole(left.right)
        divides = op == "==" and right == 0 and modulus is not None and modulus > 0
        return (left.left.id, None, None, modulus or 1) if divides else nothing
    if not isinstance(left, Name):
        return nothing
    low, high = _ENDS[op](right)
    return left.id, low, high, 1


def _whole(expr: Expr) -> int | None:
    value = expr.value if isinstance(expr, Literal) else None
    return value if type(value) is int else None


_ENDS: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "==": lambda n: (n, n),
    "<=": lambda n: (None, n),
    "<": lambda n: (None, n - 1),
    ">=": lambda n: (n, None),
    ">": lambda n: (n + 1, None),
}
