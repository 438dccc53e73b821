"""Small tools on expressions: walking, substitution, conjunctions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fusiondsl.dims.expr import (
    Binary,
    Call,
    Expr,
    Keyword,
    Method,
    Name,
    Sequence,
    Slice,
    Subscript,
    Unary,
)
from fusiondsl.dims.names import children
from fusiondsl.dims.render import render


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything in it, outermost first, left to right."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replaces, outermost first, every part for which `change` returns something."""
    changed = change(expr)
    if changed is not None:
        return changed
    match expr:
        case Unary():
            return replace(expr, operand=rewrite(expr.operand, change))
        case Binary():
            return replace(expr, left=rewrite(expr.left, change), right=rewrite(expr.right, change))
        case Call():
            return replace(
                expr, args=_each(expr.args, change), kwargs=_keywords(expr.kwargs, change)
            )
        case Method():
            return replace(
                expr,
                receiver=rewrite(expr.receiver, change),
                args=_each(expr.args, change),
                kwargs=_keywords(expr.kwargs, change),
            )
        case Sequence():
            return replace(expr, items=_each(expr.items, change))
        case Subscript():
            receiver = rewrite(expr.receiver, change)
            return replace(expr, receiver=receiver, items=_each(expr.items, change))
        case Slice():
            start, stop = (e if e is None else rewrite(e, change) for e in (expr.start, expr.stop))
            return replace(expr, start=start, stop=stop)
        case _:
            return expr


def _each(exprs: tuple[Expr, ...], change: Callable[[Expr], Expr | None]) -> tuple[Expr, ...]:
    return tuple(rewrite(e, change) for e in exprs)


def _keywords(
    keywords: tuple[Keyword, ...], change: Callable[[Expr], Expr | None]
) -> tuple[Keyword, ...]:
    return tuple(replace(k, value=rewrite(k.value, change)) for k in keywords)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Puts expressions in the place of names."""

    def change(e: Expr) -> Expr | None:
        return values.get(e.id) if isinstance(e, Name) else None

    return rewrite(expr, change) if values else expr


def show(expr: Expr) -> str:
    """The expression as it is written, or as the language would write it."""
    written = expr.span.text if expr.span is not None else ""
    return written if 0 < len(written) <= 60 and "\n" not in written else render(expr)


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """The parts of `a and b and c`."""
    if isinstance(expr, Binary) and expr.op == "and":
        yield from conjuncts(expr.left)
        yield from conjuncts(expr.right)
    else:
        yield expr
