"""Whether an expression nests too deeply to be walked by recursive code."""

from __future__ import annotations

from fusiondsl.dims import expr as ex
from fusiondsl.syntax.limits import MAX_NESTING

_SHALLOW_TEXT = MAX_NESTING
"""An expression spelt in fewer characters than this cannot nest more than `MAX_NESTING` deep:
`--x` has a level a character."""


def children(node: ex.Expr) -> tuple[ex.Expr, ...]:
    """The expressions directly inside `node`, in reading order."""
    match node:
        case ex.Unary():
            return (node.operand,)
        case ex.Binary():
            return (node.left, node.right)
        case ex.Call():
            return node.args + tuple(keyword.value for keyword in node.kwargs)
        case ex.Method():
            values = tuple(keyword.value for keyword in node.kwargs)
            return (node.receiver, *node.args, *values)
        case ex.Slice():
            return tuple(part for part in (node.start, node.stop) if part is not None)
        case ex.Subscript():
            return (node.receiver, *node.items)
        case ex.Sequence():
            return node.items
        case _:
            return ()


def too_deep(node: ex.Expr) -> bool:
    if node.span is not None and node.span.end - node.span.start < _SHALLOW_TEXT:
        return False
    level = [node]
    for _ in range(MAX_NESTING):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return False
    return True
