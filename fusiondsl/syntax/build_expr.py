"""The callbacks of the grammar for expressions and types, and the positions all callbacks use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lark import Token

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast, literals, precedence
from fusiondsl.syntax.depth import too_deep
from fusiondsl.syntax.limits import MAX_NESTING

T = TypeVar("T")
Parts = list[Any]
"""What a callback gets: tokens, and what other callbacks returned."""

SCALAR_KINDS = ("float", "int", "bool", "str", "dtype", "layer")
_SCALAR_DTYPES = {"float": "f32", "int": "i32", "bool": "b8"}
_FOREIGN = {"True": "true", "False": "false", "None": "none", "null": "none", "nil": "none"}


@dataclass(slots=True)
class Arguments:
    args: tuple[ex.Expr, ...]
    kwargs: tuple[ex.Keyword, ...]


class ExpressionBuilder:
    """Methods are named after grammar rules; each takes the parts and returns the node."""

    def __init__(self) -> None:
        self._source = Source("", "")
        self._diagnostics = Diagnostics()
        self._base = 0
        self._offsets: Sequence[int] | None = None
        self._scope: set[str] = set()

    def begin(
        self,
        source: Source,
        diagnostics: Diagnostics,
        base: int = 0,
        offsets: Sequence[int] | None = None,
        scope: Iterable[str] = (),
    ) -> None:
        """Positions in the text read next are moved by `base`, or looked up in `offsets`.

        `scope` names the values that exist: `x.to(f32)` is a method of `x` where `x` is a value,
        otherwise a call of the op `x.to`.
        """
        self._source = source
        self._diagnostics = diagnostics
        self._base = base
        self._offsets = offsets
        self._scope = set(scope)

    # --- positions -------------------------------------------------------------------------------

    def at(self, start: int, end: int) -> Span:
        """The span of characters `start` to `end` of the text that is read."""
        if self._offsets is None:
            return Span(self._source, start + self._base, end + self._base)
        first = self._offsets[start]
        return Span(self._source, first, max(self._offsets[end - 1] + 1, first) if end else first)

    def _token(self, token: Token) -> Span:
        start: int = token.start_pos or 0
        return self.at(start, start + len(token))

    def _of(self, part: Any) -> Span:
        span: Span = self._token(part) if part.__class__ is Token else part.span
        return span

    def _span(self, first: Any, last: Any) -> Span:
        return Span(self._source, self._of(first).start, self._of(last).end)

    def _plain(self, token: Token) -> ast.Ident:
        """A name that must not be dotted."""
        span = self._token(token)
        if "." in token or "?" in token:
            self._diagnostics.error("FD022", f"`{token}` must be a plain name here", span)
        return ast.Ident(str(token), span)

    def _dotted(self, token: Token) -> ast.Ident:
        span = self._token(token)
        if "?" in token:
            message = f"`{token}` is a function of the language, and nothing else is called so"
            self._diagnostics.error("FD022", message, span)
        return ast.Ident(str(token), span)

    def _literal(self, token: Token, read: Callable[[str], T], otherwise: T) -> T:
        try:
            return read(str(token))
        except literals.LiteralError as error:
            start = (token.start_pos or 0) + error.offset
            span = self.at(start, start + (error.length or len(token)))
            code = "FD014" if token.type == "STRING" else "FD018"
            self._diagnostics.error(code, str(error), span)
            return otherwise

    def _string(self, token: Token) -> str:
        return self._literal(token, literals.read_string, "")

    def _shallow(self, node: ex.Expr) -> ex.Expr:
        if too_deep(node) and node.span is not None:
            self._diagnostics.error("FD015", "the expression is nested too deeply", node.span)
            return ex.Wildcard(span=node.span)
        return node

    def _all_shallow(self, nodes: Iterable[ex.Expr]) -> tuple[ex.Expr, ...]:
        return tuple(self._shallow(node) for node in nodes)

    # --- expressions -----------------------------------------------------------------------------

    def chain(self, parts: Parts) -> ex.Expr:
        if sum(part.__class__ is Token for part in parts) > MAX_NESTING:
            span = self._span(parts[0], parts[-1])
            self._diagnostics.error("FD015", "the expression is nested too deeply", span)
            return ex.Wildcard(span=span)
        return precedence.nest(parts, self._source, self._token, self._diagnostics)

    def method(self, parts: Parts) -> ex.Call | ex.Method:
        receiver, name, _, arguments, closing = parts
        ident = self._plain(name)
        span = self._span(receiver, closing)
        if isinstance(receiver, ex.Name) and receiver.id not in self._scope:
            # as without blanks around the dot
            func, func_span = f"{receiver.id}.{ident.name}", self._span(receiver, name)
            return ex.Call(func, arguments.args, arguments.kwargs, span=span, func_span=func_span)
        return ex.Method(receiver, ident.name, arguments.args, arguments.kwargs, span=span)

    def call(self, parts: Parts) -> ex.Call | ex.Method:
        name, _, arguments, closing = parts
        span, func_span = self._span(name, closing), self._token(name)
        value, dot, method = name.rpartition(".")
        if dot and value in self._scope:
            start = func_span.start
            receiver = ex.Name(value, span=Span(self._source, start, start + len(value)))
            return ex.Method(receiver, method, arguments.args, arguments.kwargs, span=span)
        func = str(name)
        return ex.Call(func, arguments.args, arguments.kwargs, span=span, func_span=func_span)

    def arguments(self, parts: Parts) -> Arguments:
        args = tuple(part for part in parts if part.__class__ is not ex.Keyword)
        kwargs = tuple(part for part in parts if part.__class__ is ex.Keyword)
        if kwargs:
            self._check_arguments(parts, len(args), kwargs)
        return Arguments(args, kwargs)

    def _check_arguments(
        self, parts: Parts, positional: int, kwargs: tuple[ex.Keyword, ...]
    ) -> None:
        for part in parts[:positional]:
            if isinstance(part, ex.Keyword):
                late = next(p for p in parts[positional:] if not isinstance(p, ex.Keyword))
                message = "a positional argument follows a keyword argument"
                self._diagnostics.error("FD020", message, late.span)
                break
        seen: set[str] = set()
        for keyword in kwargs:
            if keyword.name in seen:
                message = f"argument `{keyword.name}` is given twice"
                self._diagnostics.error("FD020", message, keyword.span)
            seen.add(keyword.name)

    def keyword(self, parts: Parts) -> ex.Keyword:
        ident = self._plain(parts[0])
        return ex.Keyword(ident.name, parts[1], span=self._span(*parts))

    def subscript(self, parts: Parts) -> ex.Subscript:
        span = self._span(parts[0], parts[-1])
        return ex.Subscript(parts[0], tuple(parts[2:-1]), span=span)

    def slice(self, parts: Parts) -> ex.Slice:
        colon = next(i for i, part in enumerate(parts) if part.__class__ is Token)
        start = parts[0] if colon else None
        stop = parts[-1] if colon < len(parts) - 1 else None
        return ex.Slice(start, stop, span=self._span(parts[0], parts[-1]))

    def ellipsis(self, parts: Parts) -> ex.Ellipsis_:
        return ex.Ellipsis_(span=self._token(parts[0]))

    def group(self, parts: Parts) -> ex.Expr:
        inner: ex.Expr = replace(parts[1], span=self._span(parts[0], parts[2]))
        return inner

    def sequence(self, parts: Parts) -> ex.Sequence:
        return ex.Sequence(tuple(parts[1:-1]), span=self._span(parts[0], parts[-1]))

    def name(self, parts: Parts) -> ex.Name | ex.Wildcard:
        token = parts[0]
        span = self._token(token)
        if token == "_":
            return ex.Wildcard(span=span)
        if token in _FOREIGN:
            fix = f"write `{_FOREIGN[token]}`"
            self._diagnostics.error("FD023", f"`{token}` is not a literal here", span, help=fix)
        return ex.Name(str(token), span=span)

    def spread(self, parts: Parts) -> ex.Spread:
        return ex.Spread(str(parts[0][:-2]), span=self._token(parts[0]))

    def literal(self, parts: Parts) -> ex.Literal:
        token = parts[0]
        return ex.Literal(self._value(token), span=self._token(token))

    def _value(self, token: Token) -> int | float | str | bool | None:
        match token.type:
            case "INT":
                return self._literal(token, literals.read_int, 0)
            case "FLOAT":
                return self._literal(token, literals.read_float, 0.0)
            case "STRING":
                return self._string(token)
            case "SIZE":
                return self._literal(token, literals.read_size, 0)
            case "NONE":
                return None
            case _:
                return bool(token.type == "TRUE")

    # --- types -----------------------------------------------------------------------------------

    def bare_type(self, parts: Parts) -> ast.ScalarType:
        kind = str(parts[0])
        span = self._span(parts[0], parts[-1])
        if kind not in SCALAR_KINDS:
            hint = did_you_mean(kind, SCALAR_KINDS) or f"write `{kind}[T, H]` with its dimensions"
            message = f"`{kind}` is no scalar type, and a tensor type needs dimensions"
            self._diagnostics.error("FD019", message, self._token(parts[0]), help=hint)
        return ast.ScalarType(kind, False, len(parts) > 1, span)

    def tensor_type(self, parts: Parts) -> ast.Type:
        closing = next(i for i, part in enumerate(parts) if part.__class__ is Token and part == "]")
        dims, extras = self._all_shallow(parts[2:closing]), parts[closing + 1 :]
        optional = bool(extras) and extras[-1].__class__ is Token
        strides = extras[0] if extras and extras[0].__class__ is Strides else None
        span = self._span(parts[0], parts[-1])
        if str(parts[0]) in SCALAR_KINDS:
            return self._list_type(parts[0], dims, strides, optional, span)
        sizes = strides.items if strides else None
        return ast.TensorType(self._plain(parts[0]), dims, sizes, optional, span)

    def _list_type(
        self, name: Token, dims: Sequence[ex.Expr], strides: Any, optional: bool, span: Span
    ) -> ast.ScalarType:
        if dims or strides:
            dtype = _SCALAR_DTYPES.get(name)
            hint = f"a tensor has a dtype such as `{dtype}`" if dtype else None
            message = f"`{name}` is a scalar kind, `{name}[]` a list; neither has dimensions"
            self._diagnostics.error("FD019", message, span, help=hint)
        return ast.ScalarType(str(name), True, optional, span)

    def strides(self, parts: Parts) -> Strides:
        return Strides(self._all_shallow(parts[2:-1]), self._span(parts[0], parts[-1]))


@dataclass(slots=True)
class Strides:
    items: tuple[ex.Expr, ...]
    span: Span
