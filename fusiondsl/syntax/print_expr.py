"""Prints expressions and types in their one canonical spelling."""

from __future__ import annotations

from collections.abc import Iterable

from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax.levels import BINARY, COMPARISON, POSTFIX, UNARY
from fusiondsl.syntax.literals import read_number, write_number, write_string

CONDITION = "()"
"""Sequences are sets here, in parentheses."""
BODY = "[]"
"""Sequences are lists here, in square brackets."""


def expression(node: ex.Expr, brackets: str = CONDITION, level: int = 0) -> str:
    """`level`: how tightly the surroundings bind; what binds looser gets parentheses."""
    text, own = _spelt(node, brackets)
    return f"({text})" if own < level else text


def _spelt(node: ex.Expr, brackets: str) -> tuple[str, int]:
    match node:
        case ex.Unary(op, operand):
            gap = " " if op == "not" else ""
            return f"{op}{gap}{expression(operand, brackets, UNARY[op])}", UNARY[op]
        case ex.Binary():
            return _binary(node, brackets)
        case ex.Method(receiver, name):
            arguments = ", ".join(call_arguments(node, brackets))
            return f"{_receiver(receiver, brackets)}.{name}({arguments})", POSTFIX
        case ex.Subscript(receiver, items):
            inner = ", ".join(expression(item, brackets) for item in items)
            return f"{expression(receiver, brackets, POSTFIX)}[{inner}]", POSTFIX
        case ex.Slice(start, stop):
            ends = ("" if end is None else expression(end, brackets) for end in (start, stop))
            return ":".join(ends), 0
        case ex.Call(func):
            return f"{func}({', '.join(call_arguments(node, brackets))})", POSTFIX
        case ex.Sequence(items):
            return _sequence(items, brackets), POSTFIX
        case ex.Literal():
            return literal(node), POSTFIX
        case _:
            return _leaf(node), POSTFIX


def _leaf(node: ex.Expr) -> str:
    match node:
        case ex.Name(id):
            return id
        case ex.Spread(name):
            return f"{name}.."
        case ex.Ellipsis_():
            return ".."
        case _:
            return "_"


def _binary(node: ex.Binary, brackets: str) -> tuple[str, int]:
    level = BINARY[node.op]
    if node.op in ("==", "!=") and isinstance(node.right, ex.Literal) and node.right.value is None:
        word = "is" if node.op == "==" else "is not"
        return f"{expression(node.left, brackets, level + 1)} {word} none", level
    left_level = level + 1 if level == COMPARISON or node.op == "**" else level
    right_level = level if node.op == "**" else level + 1
    left = expression(node.left, brackets, left_level)
    return f"{left} {node.op} {expression(node.right, brackets, right_level)}", level


def _receiver(node: ex.Expr, brackets: str) -> str:
    text = expression(node, brackets, POSTFIX)
    return f"({text})" if isinstance(node, ex.Literal | ex.Spread | ex.Wildcard) else text


def _sequence(items: tuple[ex.Expr, ...], brackets: str) -> str:
    inner = ", ".join(expression(item, brackets) for item in items)
    if brackets == BODY:
        return f"[{inner}]"
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def literal(node: ex.Literal) -> str:
    """A number keeps the spelling that the author chose, blanks apart: `64 MiB`, `0x10`, `1e-6`."""
    value = node.value
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return write_string(value)
    written = " ".join(node.span.text.split()) if node.span is not None else ""
    if type(read_number(written)) is type(value) and read_number(written) == value:
        return written
    return write_number(value)


def call_arguments(node: ex.Call | ex.Method, brackets: str) -> list[str]:
    args = [expression(arg, brackets) for arg in node.args]
    return args + [f"{word.name} = {expression(word.value, brackets)}" for word in node.kwargs]


def impl_arguments(node: ast.Impl) -> list[str]:
    args = [expression(arg) for arg in node.args]
    return args + [f"{name} = {expression(value)}" for name, value in node.kwargs]


def unread(node: ast.Unread) -> str:
    return f"{node.parameter.name} when {expression(node.when)}"


def impl_call(node: ast.Impl) -> str:
    text = f"{write_string(node.location)}({', '.join(impl_arguments(node))})"
    return text if node.results is None else f"{text} -> {expression(node.results)}"


def fuse_arguments(node: ast.Fuse) -> list[str]:
    """Names first, then what is fixed."""
    names = [name.name for name in node.given]
    return names + [f"{part.name.name} = {expression(part.value)}" for part in node.fixed]


def type_(node: ast.Type) -> str:
    optional = "?" if node.optional else ""
    if isinstance(node, ast.ScalarType):
        return node.kind + ("[]" if node.is_list else "") + optional
    text = f"{node.dtype.name}[{_all(node.dims)}]"
    if node.strides is not None:
        text += f" strides ({_all(node.strides)})"
    return text + optional


def _all(nodes: Iterable[ex.Expr]) -> str:
    return ", ".join(expression(node) for node in nodes)


def param_type(node: ast.Param) -> str:
    kind = "" if node.kind == "read" else f"{node.kind} "
    return f"{kind}{type_(node.type)}{default(node)}"


def default(node: ast.Param) -> str:
    return "" if node.default is None else f" = {expression(node.default, BODY)}"


def params(nodes: Iterable[ast.Param]) -> list[str]:
    """One text a parameter, with the `*` that starts the keyword-only ones."""
    found: list[str] = []
    for node in nodes:
        if node.keyword_only and "*" not in found:
            found.append("*")
        kind = "" if node.kind == "read" else f"{node.kind} "
        found.append(f"{kind}{node.name.name}: {type_(node.type)}{default(node)}")
    return found


def results(nodes: tuple[ast.Result, ...]) -> str:
    """With its arrow; empty where there are none."""
    if not nodes:
        return ""
    if len(nodes) == 1 and nodes[0].name.name == "result":
        return f" -> {type_(nodes[0].type)}"
    inner = ", ".join(f"{node.name.name}: {type_(node.type)}" for node in nodes)
    return f" -> ({inner})"


def target(node: ast.Target) -> str:
    return node.name.name if node.type is None else f"{node.name.name}: {type_(node.type)}"


def condition(node: ast.Condition) -> str:
    label = "" if node.label is None else f"{node.label.name}: "
    return label + expression(node.expr)


def difference(node: ast.Difference) -> str:
    return node.kind.name if node.value is None else f"{node.kind.name}: {node.value.name}"
