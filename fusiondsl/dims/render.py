"""Expressions as one line of text, for messages (the printer of whole files is `syntax`'s)."""

from __future__ import annotations

from fusiondsl.dims.expr import (
    Binary,
    Call,
    Ellipsis_,
    Expr,
    Keyword,
    Literal,
    Method,
    Name,
    Sequence,
    Slice,
    Spread,
    Subscript,
    Unary,
    Wildcard,
)
from fusiondsl.dims.values import show

_PRECEDENCE = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "**": 8}
_COMPARISON = 4
_UNARY = {"not": 3, "-": 7, "~": 7}
_ATOM = 9


def render(expr: Expr) -> str:
    """The text of an expression, with only the parentheses it needs."""
    match expr:
        case Literal(value):
            return show(value)
        case Name(name):
            return name
        case Unary(op, operand):
            text = _inner(operand, _UNARY[op])
            return f"not {text}" if op == "not" else f"{op}{text}"
        case Binary():
            return _binary(expr)
        case Call(func, args, kwargs):
            return f"{func}({_arguments(args, kwargs)})"
        case Method(receiver, name, args, kwargs):
            return f"{_inner(receiver, _ATOM)}.{name}({_arguments(args, kwargs)})"
        case _:
            return _rest(expr)


def _binary(expr: Binary) -> str:
    level = _level(expr)
    # a chain of comparisons, and `2 ** 3 ** 2`, do not associate to the left
    left_level = level + 1 if level == _COMPARISON or expr.op == "**" else level
    right_level = level if expr.op == "**" else level + 1
    return f"{_inner(expr.left, left_level)} {expr.op} {_inner(expr.right, right_level)}"


def _rest(expr: Expr) -> str:
    match expr:
        case Subscript(receiver, items):
            return f"{_inner(receiver, _ATOM)}[{', '.join(map(render, items))}]"
        case Sequence(items):
            inside = ", ".join(map(render, items))
            return f"({inside},)" if len(items) == 1 else f"({inside})"
        case Slice(start, stop):
            return f"{render(start) if start else ''}:{render(stop) if stop else ''}"
        case Spread(name):
            return f"{name}.."
        case Wildcard():
            return "_"
        case Ellipsis_():
            return ".."
        case _:
            raise TypeError(f"no expression: {expr!r}")


def _level(expr: Expr) -> int:
    if isinstance(expr, Binary):
        return _PRECEDENCE.get(expr.op, _COMPARISON)
    return _UNARY[expr.op] if isinstance(expr, Unary) else _ATOM


def _inner(expr: Expr, level: int) -> str:
    text = render(expr)
    return f"({text})" if _level(expr) < level else text


def _arguments(args: tuple[Expr, ...], kwargs: tuple[Keyword, ...]) -> str:
    return ", ".join([*map(render, args), *(f"{k.name} = {render(k.value)}" for k in kwargs)])
