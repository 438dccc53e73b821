"""The names an expression mentions."""

from __future__ import annotations

from collections.abc import Iterator

from fusiondsl.dims.expr import (
    Binary,
    Call,
    Expr,
    Literal,
    Method,
    Name,
    Sequence,
    Slice,
    Spread,
    Subscript,
    Unary,
)


def names(expr: Expr) -> frozenset[str]:
    """Every `Name` and `Spread` in it, dtypes and dotted names included; no function names."""
    found: set[str] = set()
    waiting = [expr]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Name):
            found.add(item.id)
        elif isinstance(item, Binary):
            waiting += item.left, item.right
        elif isinstance(item, Spread):
            found.add(item.name)
        elif not isinstance(item, Literal):
            waiting += children(item)
    return frozenset(found)


def children(expr: Expr) -> Iterator[Expr]:
    """The direct parts of an expression, left to right."""
    match expr:
        case Unary(_, operand):
            yield operand
        case Binary(_, left, right):
            yield left
            yield right
        case Call(_, args, kwargs):
            yield from args
            yield from (keyword.value for keyword in kwargs)
        case Method(receiver, _, args, kwargs):
            yield receiver
            yield from args
            yield from (keyword.value for keyword in kwargs)
        case Subscript(receiver, items):
            yield receiver
            yield from items
        case Sequence(items):
            yield from items
        case Slice(start, stop):
            yield from (end for end in (start, stop) if end is not None)
        case _:
            return
