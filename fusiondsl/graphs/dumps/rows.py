"""Parses graphs that are printed one line a node, in which strings have no quotes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs.expressions import BadText, parse_expression
from fusiondsl.graphs.namespaces import is_namespace
from fusiondsl.graphs.text import (
    Assign,
    Attribute,
    Call,
    Constant,
    Dotted,
    Expr,
    GraphText,
    Listing,
    Mapping,
    Parameter,
)

_MAX_FAULTS = 20
_MAX_DEPTH = 40
_ROW = re.compile(
    r"[ \t#]*%(?P<name>[\w.]+)\s*(?::(?P<type>.*?))?(?:\[#?(?:num_users|users)=\d+\]\s*)?"
    r"=\s*(?P<op>\w+)\[+target=(?P<target>[^\]]*)\](?P<link>\(https?:[^)\s]*\)\])?(?P<rest>.*)",
    re.DOTALL,
)
_RETURN = re.compile(r"[ \t#]*return\b[ \t]*(?P<value>.*)", re.DOTALL)
_ANNOTATION = re.compile(r"[^\"]*\"(?P<text>[^\"]*)\"")
_CALL = re.compile(r"\s*\(args = (?P<args>\(.*\)), kwargs = (?P<kwargs>\{.*\})\)\s*", re.DOTALL)
_DEFAULT = re.compile(r"\s*\(default=(?P<value>.*)\)\s*", re.DOTALL)
_PATH = re.compile(r"\w+(?:\.\w+){0,40}")
_KEY = re.compile(r"\s*(?P<key>[A-Za-z_]\w*)\s*:\s*")
_NODE = re.compile(r"%?([A-Za-z_]\w*)")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = {
    "None": None,
    "True": True,
    "False": False,
    "Ellipsis": ...,
    "inf": float("inf"),
    "-inf": -float("inf"),
    "nan": float("nan"),
}
_DEVICE = re.compile(r"(?:cpu|cuda|hip|xpu|meta|hpu|npu|mps|xla|privateuseone)(?::\d+)?")
_STARTS = frozenset("%([{-.0123456789")
_OPENING, _CLOSING = "([{", ")]}"


def parse_rows(
    source: Source,
    start: int,
    end: int,
    path: tuple[str, ...],
    diagnostics: Diagnostics,
    *,
    cut: bool = False,
) -> GraphText:
    """The graph in `source[start:end]`; faults go to `diagnostics`."""
    rows = _Rows()
    faults = 0
    for line in _lines(Span(source, start, end)):
        try:
            rows.add(line)
        except BadText as fault:
            if cut and not source.text[line.end : end].strip(" \t\n#.…"):
                number = source.position(line.start)[0]
                rows.notes.append(f"the text is cut in line {number}: its last node is dropped")
                break
            diagnostics.error(fault.code, fault.message, fault.span)
            faults += 1
            if faults >= _MAX_FAULTS:
                break
    return rows.graph(path, Span(source, start, end), cut)


def _lines(span: Span) -> list[Span]:
    lines: list[Span] = []
    start = span.start
    for text in span.text.split("\n"):
        lines.append(Span(span.source, start, start + len(text)))
        start += len(text) + 1
    return lines


@dataclass
class _Rows:
    params: list[Parameter] = field(default_factory=list)
    body: list[Assign] = field(default_factory=list)
    result: Expr | None = None
    notes: list[str] = field(default_factory=list)
    open: bool = False

    def add(self, line: Span) -> None:
        row = _ROW.fullmatch(line.text)
        if row is not None:
            self._node(line, row)
            return
        returned = _RETURN.fullmatch(line.text)
        if returned is not None:
            self.result = _returned(_part(line, returned, "value"))
        elif line.text.strip() in ("...", "…"):
            self.open = True
            number = line.source.position(line.start)[0]
            self.notes.append(f"line {number} stands for nodes that are left out")
        elif line.text.lstrip(" \t#").startswith("%"):
            raise BadText("FD605", "a line that is no node", line)

    def graph(self, path: tuple[str, ...], span: Span, cut: bool) -> GraphText:
        defined = {statement.name for statement in self.body}
        doubled = [param.name for param in self.params if param.name in defined]
        if doubled:
            listed = ", ".join(doubled)
            self.notes.append(f"inputs of the kernel that the same lines compute: {listed}")
        # `PlaceHolder` lines name buffers, and one may hold what a node below computes.
        params = tuple(param for param in self.params if param.name not in defined)
        return GraphText(
            path,
            params,
            tuple(self.body),
            self.result,
            span,
            open=self.open or self.result is None,
            cut=cut and self.result is None,
            notes=tuple(self.notes),
        )

    def _node(self, line: Span, row: re.Match[str]) -> None:
        span = _part(line, row, "name")
        name, op = _identifier(span), row["op"].lower()
        annotation = self._annotation(line, row)
        rest = _part(line, row, "rest")
        if op == "placeholder":
            if any(param.name == name for param in self.params):
                raise BadText("FD615", f"parameter `{name}` is declared twice", span)
            default = _DEFAULT.fullmatch(rest.text)
            value = None if default is None else _value(_part(rest, default, "value"))
            self.params.append(Parameter(name, annotation, value, span))
            return
        make = _OPS.get(op)
        if make is None:
            raise BadText("FD605", f"`{row['op']}` is no kind of node", _part(line, row, "op"))
        target = _part(line, row, "target")
        self.body.append(Assign(name, annotation, make(target, rest), None, line))

    def _annotation(self, line: Span, row: re.Match[str]) -> Span | None:
        if row["type"] is None:
            return None
        kind = _part(line, row, "type")
        quoted = _ANNOTATION.match(kind.text)
        return None if quoted is None else _part(kind, quoted, "text")


# --- nodes ---------------------------------------------------------------------------------------


def _get_attr(target: Span, rest: Span) -> Expr:
    if not _PATH.fullmatch(target.text):
        raise BadText("FD605", "this is no path to an attribute", target)
    return Dotted(("self", *target.text.split(".")), target)


def _call_module(target: Span, rest: Span) -> Expr:
    args, kwargs = _arguments(rest)
    return Call(_get_attr(target, rest), args, kwargs, target)


def _call_function(target: Span, rest: Span) -> Expr:
    args, kwargs = _arguments(rest)
    return Call(Dotted(tuple(target.text.split(".")), target), args, kwargs, target)


def _call_method(target: Span, rest: Span) -> Expr:
    args, kwargs = _arguments(rest)
    if not args:
        raise BadText("FD605", "a method without an object", target)
    return Call(Attribute(args[0], _identifier(target), target), args[1:], kwargs, target)


_OPS: dict[str, Callable[[Span, Span], Expr]] = {
    "get_attr": _get_attr,
    "call_module": _call_module,
    "call_function": _call_function,
    "call_method": _call_method,
}


def _arguments(rest: Span) -> tuple[tuple[Expr, ...], tuple[tuple[str, Expr], ...]]:
    call = _CALL.fullmatch(rest.text)
    if call is None:
        raise BadText("FD605", "expected `(args = (..), kwargs = {..})`", rest)
    args = tuple(_value(item) for item in _items(_inside(_part(rest, call, "args"))))
    kwargs = _keyed(_inside(_part(rest, call, "kwargs")))
    return args, tuple(kwargs)


def _returned(value: Span) -> Expr:
    """`return (a, b)`, or `return %a,%b`: names of nodes, with and without their sign."""
    items = _items(value)
    if len(items) == 1:
        return _value(items[0], bare_nodes=True)
    return Listing(tuple(_value(item, bare_nodes=True) for item in items), False, value)


# --- values --------------------------------------------------------------------------------------


def _value(span: Span, *, bare_nodes: bool = False, depth: int = 0) -> Expr:
    if depth > _MAX_DEPTH:
        raise BadText("FD606", f"more than {_MAX_DEPTH} nested values", span)
    span = _stripped(span)
    text = span.text
    first, last = text[:1], text[-1:]
    if first == "%" or bare_nodes:
        node = _NODE.fullmatch(text)
        if node is not None and text not in _WORDS:
            return Dotted((node[1],), span)
    if text in _WORDS:
        return Constant(_WORDS[text], span)
    if _NUMBER.fullmatch(text):
        return parse_expression(span)
    if (first, last) in (("(", ")"), ("[", "]")):
        parts = _items(_inside(span))
        items = [_value(item, bare_nodes=bare_nodes, depth=depth + 1) for item in parts]
        return Listing(tuple(items), first == "[", span)
    if (first, last) == ("{", "}"):
        pairs = _keyed(_inside(span), bare_nodes=bare_nodes, depth=depth + 1)
        return Mapping(tuple((Constant(key, span), value) for key, value in pairs), span)
    return _word(span)


def _word(span: Span) -> Expr:
    text = span.text
    if _DEVICE.fullmatch(text):
        return Call(Dotted(("device",), span), (Constant(text, span),), (), span)
    if text.startswith("slice(") and text.endswith(")"):
        inner = Span(span.source, span.start + len("slice("), span.end - 1)
        args = tuple(_value(item) for item in _items(inner))
        return Call(Dotted(("slice",), span), args, (), span)
    parts = text.split(".")
    if len(parts) == 1 or not all(part.isidentifier() for part in parts):
        return Constant(text, span)
    if parts[0] == "torch":
        return Dotted(tuple(parts), span)
    if len(parts) == 3 and (parts[-1] == "default" or is_namespace(parts[0])):
        return Dotted(("torch", "ops", *parts), span)
    return Constant(text, span)


def _keyed(span: Span, *, bare_nodes: bool = False, depth: int = 0) -> list[tuple[str, Expr]]:
    pairs: list[tuple[str, Expr]] = []
    keys: list[tuple[str, Span]] = []
    for item in _cut_at_commas(span):
        key = _KEY.match(item.text)
        if key is not None:
            value = Span(item.source, item.start + key.end(), item.end)
            keys.append((key["key"], value))
        elif keys:
            # A string with a comma in it.
            name, value = keys[-1]
            keys[-1] = (name, value.to(item))
        elif item.text.strip():
            raise BadText("FD605", "expected `name: value`", item)
    for name, value in keys:
        if keyword.iskeyword(name):
            raise BadText("FD605", f"`{name}` is a keyword", value)
        if any(name == other for other, _ in pairs):
            raise BadText("FD605", f"argument `{name}` is given twice", value)
        pairs.append((name, _value(value, bare_nodes=bare_nodes, depth=depth)))
    return pairs


def _items(span: Span) -> list[Span]:
    """The parts of a sequence; parts of one string with commas in it are one again."""
    items: list[Span] = []
    for item in _cut_at_commas(span):
        if items and _is_text(item) and not _is_value(items[-1]):
            items[-1] = items[-1].to(item)
        else:
            items.append(item)
    if items and not items[-1].text.strip():
        items.pop()
    return items


def _is_text(span: Span) -> bool:
    """Words with blanks between them: part of a string."""
    text = span.text.strip()
    return " " in text and not _is_value(span)


def _is_value(span: Span) -> bool:
    text = span.text.strip()
    return text in _WORDS or text[:1] in _STARTS or text.startswith(("slice(", "torch."))


def _cut_at_commas(span: Span) -> list[Span]:
    parts: list[Span] = []
    depth = 0
    start = span.start
    text = span.source.text
    for position in range(span.start, span.end):
        char = text[position]
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            parts.append(Span(span.source, start, position))
            start = position + 1
    parts.append(Span(span.source, start, span.end))
    return parts


def _identifier(span: Span) -> str:
    if not span.text.isidentifier() or keyword.iskeyword(span.text):
        raise BadText("FD605", f"`{span.text}` is no name", span)
    return span.text


def _stripped(span: Span) -> Span:
    text = span.text
    left = len(text) - len(text.lstrip())
    right = len(text) - len(text.rstrip())
    return Span(span.source, span.start + left, max(span.start + left, span.end - right))


def _inside(span: Span) -> Span:
    return Span(span.source, span.start + 1, span.end - 1)


def _part(span: Span, match: re.Match[str], group: str) -> Span:
    return Span(span.source, span.start + match.start(group), span.start + match.end(group))
