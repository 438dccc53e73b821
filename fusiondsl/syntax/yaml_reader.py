"""Reads YAML rule files into the same abstract syntax as `.fuse` files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast, shapes
from fusiondsl.syntax.fuse import parse_piece
from fusiondsl.syntax.literals import is_name
from fusiondsl.syntax.shapes import Kind
from fusiondsl.syntax.yaml_items import ItemMaker, Record
from fusiondsl.syntax.yaml_nodes import Listing, Mapping, Node, Scalar, compose
from fusiondsl.syntax.yaml_text import piece_of


def parse_module(source: Source, diagnostics: Diagnostics) -> ast.Module:
    """All items that could be read; what could not is reported."""
    root = compose(source, diagnostics)
    if root is None or (isinstance(root, Scalar) and not root.value):
        return ast.Module(source, ())
    record = _Reader(diagnostics).read(shapes.MODULE, root)
    items = () if record is None else ItemMaker(diagnostics).items(record)
    return ast.Module(source, tuple(items))


class _Reader:
    """Reads nodes as `shapes` say; None stands for what cannot be read (and is reported)."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._scope: frozenset[str] = frozenset()

    def read(self, kind: Kind, node: Node) -> Any:
        match kind:
            case shapes.Either(options):
                return self._either(options, node)
            case shapes.Shape():
                return self._shape(kind, node)
            case shapes.ListOf(item):
                return self._list(item, node)
            case shapes.MapOf(value, dotted):
                return self._map(value, dotted, node)
            case _:
                return self._scalar(kind, node)

    def _wrong(self, wanted: str, node: Node) -> None:
        message = f"expected {wanted}, found {_described(node)}"
        self._diagnostics.error("FD034", message, _head(node))

    def _either(self, options: Iterable[Kind], node: Node) -> Any:
        for option in options:
            if _fits(option, node):
                return self.read(option, node)
        self._wrong(" or ".join(_wanted(option) for option in options), node)
        return None

    # --- scalars ---------------------------------------------------------------------------------

    def _scalar(self, kind: Kind, node: Node) -> Any:
        if not isinstance(node, Scalar):
            self._wrong(_wanted(kind), node)
            return None
        match kind:
            case shapes.Text(start):
                return self._text(start, node)
            case shapes.Word(dotted):
                return self._word(node, dotted)
            case shapes.Flag():
                return self._flag(node)
            case _:
                text = node.value.rstrip("\n") if node.style in ("|", ">") else node.value
                return ex.Literal(text, span=node.span)

    def _text(self, start: str, node: Scalar) -> Any:
        if start == "value":
            if node.style in ("'", '"'):
                return ex.Literal(node.value, span=node.span)
            start = "expression_text"
        piece = piece_of(node)
        source = node.span.source
        return parse_piece(start, piece, source, self._diagnostics, self._scope)

    def _word(self, node: Scalar, dotted: bool) -> ast.Ident | None:
        piece = piece_of(node)
        span = node.span
        if piece.offsets is None and node.style:
            span = Span(span.source, piece.base, piece.base + len(piece.text))
        if is_name(node.value, dotted):
            return ast.Ident(node.value, span)
        wanted = "a name" if dotted or not is_name(node.value, True) else "a plain name"
        shown = f"`{node.value}`" if node.value else "nothing"
        self._diagnostics.error("FD022", f"expected {wanted}, found {shown}", _head(node))
        return None

    def _flag(self, node: Scalar) -> bool | None:
        if node.value in ("true", "false") and not node.style:
            return node.value == "true"
        self._wrong("`true` or `false`", node)
        return None

    # --- collections -----------------------------------------------------------------------------

    def _list(self, item: Kind, node: Node) -> list[Any] | None:
        if not isinstance(node, Listing):
            self._wrong("a list", node)
            return None
        found = (self.read(item, child) for child in node.items)
        return [value for value in found if value is not None]

    def _map(self, kind: Kind, dotted: bool, node: Node) -> list[tuple[ast.Ident, Any]] | None:
        if not isinstance(node, Mapping):
            self._wrong("a mapping", node)
            return None
        found = ((self._word(key, dotted), self.read(kind, value)) for key, value in node.pairs)
        return [(name, value) for name, value in found if name and value is not None]

    def _shape(self, shape: shapes.Shape, node: Node) -> Record | None:
        if not isinstance(node, Mapping):
            self._wrong(f"a mapping for the {shape.name}", node)
            return None
        given = {key.value: (key, value) for key, value in node.pairs}
        values: dict[str, Any] = {}
        if any(key.binds for key in shape.keys):
            self._scope = frozenset()
        for key in shape.keys:
            if key.name in given:
                values[key.name] = self.read(key.kind, given[key.name][1])
            if key.binds:
                self._scope |= frozenset(_names(values.get(key.name)))
        known = {key.name for key in shape.keys}
        rest = [(key, value) for key, value in node.pairs if key.value not in known]
        complete = self._has_required(shape, given, node)
        complete &= all(values.get(key.name) is not None for key in shape.keys if key.required)
        return Record(values, self._rest(shape, rest), node.span, complete)

    def _has_required(self, shape: shapes.Shape, given: Iterable[str], node: Node) -> bool:
        missing = [key.name for key in shape.keys if key.required and key.name not in given]
        for name in missing:
            message = f"the {shape.name} has no `{name}`"
            self._diagnostics.error("FD017", message, _head(node))
        return not missing

    def _rest(
        self, shape: shapes.Shape, pairs: Iterable[tuple[Scalar, Node]]
    ) -> tuple[tuple[ast.Ident, Any], ...]:
        if shape.rest is None:
            for key, _ in pairs:
                self._unknown(shape, key)
            return ()
        found = []
        for key, node in pairs:
            name, value = self._word(key, dotted=True), self.read(shape.rest, node)
            if name is not None and value is not None:
                found.append((name, _fact(name, node, value)))
        return tuple(found)

    def _unknown(self, shape: shapes.Shape, key: Scalar) -> None:
        known = [other.name for other in shape.keys]
        self._diagnostics.error(
            "FD033",
            f"unknown key `{key.value}` in the {shape.name}",
            key.span,
            notes=["known keys: " + ", ".join(f"`{name}`" for name in known)],
            help=did_you_mean(key.value, known),
        )


def _fact(name: ast.Ident, node: Node, value: Any) -> Any:
    """`env.arch: gfx950`: facts are no dtypes or dims, so a bare word is a string."""
    is_plain = isinstance(node, Scalar) and not node.style
    if is_plain and name.name.startswith(("env.", "model.")) and isinstance(value, ex.Name):
        return ex.Literal(value.id, span=value.span)
    return value


def _names(value: Any) -> Iterable[str]:
    """The names that a `binds` key defines."""
    for part in value or ():
        match part:
            case (ast.Ident() as name, _):
                yield name.name
            case ast.Assign():
                yield from (target.name.name for target in part.targets)
            case ast.Case():
                yield from _names(part.then)
                yield from _names(part.otherwise)


def _fits(kind: Kind, node: Node) -> bool:
    match kind:
        case shapes.MapOf() | shapes.Shape():
            return isinstance(node, Mapping)
        case shapes.ListOf():
            return isinstance(node, Listing)
        case _:
            return isinstance(node, Scalar)


def _wanted(kind: Kind) -> str:
    match kind:
        case shapes.MapOf() | shapes.Shape():
            return "a mapping"
        case shapes.ListOf():
            return "a list"
        case shapes.Flag():
            return "`true` or `false`"
        case shapes.Word():
            return "a name"
        case _:
            return "text"


def _described(node: Node) -> str:
    match node:
        case Mapping():
            return "a mapping"
        case Listing():
            return "a list"
        case _:
            return f"`{node.value}`" if 0 < len(node.value) <= 40 else "text"


def _head(node: Node) -> Span:
    """The first line of a node: enough to point at it."""
    span = node.span
    end = span.source.text.find("\n", span.start, span.end)
    return span if end < 0 else Span(span.source, span.start, end)
