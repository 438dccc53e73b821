"""Expressions of FX graph text: a precedence parser with bounded depth."""

from __future__ import annotations

import ast
import keyword
from types import EllipsisType

from fusiondsl.diagnostics.source import Span
from fusiondsl.graphs.text import (
    Attribute,
    Call,
    Constant,
    Dotted,
    Expr,
    Infix,
    Item,
    Listing,
    Mapping,
    Prefix,
)
from fusiondsl.graphs.tokens import Lexer, Token

MAX_DEPTH = 40
MAX_OPERATORS = 400
_MAX_DIGITS = 40

_PRECEDENCE = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 1),
    "|": 2,
    "^": 3,
    "&": 4,
    **dict.fromkeys(("<<", ">>"), 5),
    **dict.fromkeys(("+", "-"), 6),
    **dict.fromkeys(("*", "/", "//", "%", "@"), 7),
    "**": 9,
}
_PREFIX_PRECEDENCE = 8
_CONSTANTS: dict[str, float | bool | EllipsisType | None] = {
    "None": None,
    "True": True,
    "False": False,
    "Ellipsis": ...,
    "inf": float("inf"),
    "nan": float("nan"),
}


class BadText(Exception):
    """A located fault; the caller decides where to go on."""

    def __init__(self, code: str, message: str, span: Span) -> None:
        self.code = code
        self.message = message
        self.span = span
        super().__init__(message)


class ExpressionParser:
    """One token of look-ahead over a `Lexer`; comments are handed to `on_comment`."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self._nesting = 0
        self.token = self._fetch()

    # --- tokens --------------------------------------------------------------------------------

    def on_comment(self, text: str) -> None:
        """Called for every comment."""

    def _fetch(self) -> Token:
        token = self.lexer.next()
        while token.kind == "comment":
            self.on_comment(token.value)
            token = self.lexer.next()
        return token

    def advance(self) -> Token:
        token = self.token
        self.token = self._fetch()
        return token

    def at(self, value: str) -> bool:
        return self.token.kind == "op" and self.token.value == value

    def take(self, value: str) -> bool:
        if not self.at(value):
            return False
        self.advance()
        return True

    def expect(self, value: str) -> Token:
        if not self.at(value):
            raise self.fault(f"expected `{value}`, found {self.describe()}")
        return self.advance()

    def describe(self) -> str:
        kind = self.token.kind
        if kind == "end":
            return "the end of the text"
        return "the end of the line" if kind == "newline" else f"`{self.token.value}`"

    def fault(self, message: str, code: str = "FD605") -> BadText:
        return BadText(code, message, self.lexer.span(self.token))

    def since(self, start: int, end: int) -> Span:
        return Span(self.lexer.source, start, end)

    # --- expressions ---------------------------------------------------------------------------

    def expression(self, minimum: int = 0) -> Expr:
        if self._nesting >= MAX_DEPTH:
            raise self.fault(f"more than {MAX_DEPTH} nested expressions", "FD606")
        self._nesting += 1
        try:
            return self._infix(self._prefix(), minimum)
        finally:
            self._nesting -= 1

    def _infix(self, left: Expr, minimum: int) -> Expr:
        operators = 0
        while self.token.kind == "op" and _PRECEDENCE.get(self.token.value, -1) >= minimum:
            operators += 1
            if operators > MAX_OPERATORS:
                raise self.fault(f"more than {MAX_OPERATORS} operators in a row", "FD606")
            op = self.advance().value
            level = _PRECEDENCE[op]
            right = self.expression(level if op == "**" else level + 1)
            left = Infix(op, left, right, left.span.to(right.span))
        return left

    def _prefix(self) -> Expr:
        if self.token.kind != "op" or self.token.value not in ("-", "+", "~"):
            return self._postfix(self._atom())
        sign = self.advance()
        operand = self.expression(_PREFIX_PRECEDENCE)
        span = self.since(sign.start, operand.span.end)
        return _negated(operand, span) if sign.value == "-" else Prefix(sign.value, operand, span)

    def _postfix(self, expr: Expr) -> Expr:
        while self.token.kind == "op" and self.token.value in (".", "(", "["):
            if self.take("."):
                expr = self._member(expr)
            elif self.take("("):
                expr = self._call(expr)
            else:
                self.expect("[")
                index = self._sequence("]", self.token.start)
                expr = Item(expr, index, self.since(expr.span.start, index.span.end))
        return expr

    def _member(self, receiver: Expr) -> Expr:
        token = self.name("an attribute name")
        if keyword.iskeyword(token.value):
            # FX writes names into code that it compiles.
            raise BadText("FD605", f"`{token.value}` is a keyword", self.lexer.span(token))
        span = self.since(receiver.span.start, token.end)
        if isinstance(receiver, Dotted) and len(receiver.parts) >= MAX_DEPTH:
            raise BadText("FD606", f"a name of more than {MAX_DEPTH} parts", span)
        if isinstance(receiver, Dotted):
            return Dotted((*receiver.parts, token.value), span)
        return Attribute(receiver, token.value, span)

    def name(self, what: str = "a name") -> Token:
        if self.token.kind != "name":
            raise self.fault(f"expected {what}, found {self.describe()}")
        return self.advance()

    def _call(self, func: Expr) -> Expr:
        args: list[Expr] = []
        kwargs: dict[str, Expr] = {}
        while not self.at(")"):
            value = self.expression()
            if isinstance(value, Dotted) and len(value.parts) == 1 and self.take("="):
                kwargs[_keyword(value, kwargs)] = self.expression()
            elif kwargs:
                message = "a positional argument after keyword arguments"
                raise BadText("FD605", message, value.span)
            else:
                args.append(value)
            if not self.take(","):
                break
        end = self.expect(")").end
        return Call(func, tuple(args), tuple(kwargs.items()), self.since(func.span.start, end))

    def _atom(self) -> Expr:
        token = self.token
        span = self.lexer.span(token)
        if token.kind == "name":
            self.advance()
            if token.value in _CONSTANTS:
                return Constant(_CONSTANTS[token.value], span)
            return Dotted((token.value,), span)
        if token.kind == "number":
            self.advance()
            return Constant(_number(token.value, span), span)
        if token.kind == "text":
            self.advance()
            return Constant(_string(token.value, span), span)
        if self.take("("):
            return self._sequence(")", token.start)
        if self.take("["):
            items, end, _ = self._items("]")
            return Listing(items, True, self.since(token.start, end))
        if self.take("{"):
            return self._mapping(token.start)
        raise self.fault(f"expected a value, found {self.describe()}")

    def _items(self, closing: str) -> tuple[tuple[Expr, ...], int, bool]:
        items: list[Expr] = []
        comma = False
        while not self.at(closing):
            items.append(self.expression())
            comma = self.take(",")
            if not comma:
                break
        return tuple(items), self.expect(closing).end, comma

    def _sequence(self, closing: str, start: int) -> Expr:
        """A parenthesised value, or a tuple."""
        items, end, comma = self._items(closing)
        if len(items) == 1 and not comma:
            return items[0]
        return Listing(items, False, self.since(start, end))

    def _mapping(self, start: int) -> Expr:
        items: list[tuple[Expr, Expr]] = []
        while not self.at("}"):
            key = self.expression()
            self.expect(":")
            items.append((key, self.expression()))
            if not self.take(","):
                break
        return Mapping(tuple(items), self.since(start, self.expect("}").end))


def parse_expression(span: Span) -> Expr:
    """The expression that fills `span`."""
    parser = ExpressionParser(Lexer(span.source, span.start, span.end))
    expr = parser.expression()
    if parser.token.kind != "end":
        raise parser.fault(f"unexpected {parser.describe()}")
    return expr


def split_expressions(span: Span) -> tuple[Expr, ...]:
    """The comma-separated expressions that fill `span`."""
    parser = ExpressionParser(Lexer(span.source, span.start, span.end))
    items: list[Expr] = []
    while parser.token.kind != "end":
        items.append(parser.expression())
        if not parser.take(",") and parser.token.kind != "end":
            raise parser.fault(f"unexpected {parser.describe()}")
    return tuple(items)


def _keyword(name: Dotted, given: dict[str, Expr]) -> str:
    (word,) = name.parts
    if keyword.iskeyword(word):
        raise BadText("FD605", f"`{word}` is a keyword", name.span)
    if word in given:
        raise BadText("FD605", f"argument `{word}` is given twice", name.span)
    return word


def _negated(operand: Expr, span: Span) -> Expr:
    number = isinstance(operand, Constant) and type(operand.value) in (int, float)
    if number and isinstance(operand, Constant) and isinstance(operand.value, (int, float)):
        return Constant(-operand.value, span)
    return Prefix("-", operand, span)


def _number(text: str, span: Span) -> int | float:
    if not text.isdigit():
        return float(text)
    if len(text) > _MAX_DIGITS:
        raise BadText("FD607", f"an integer of {len(text)} digits", span)
    return int(text)


def _string(text: str, span: Span) -> str:
    # Only one string token reaches this: a literal, which Python's own reader unescapes.
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        raise BadText("FD605", "a string with a bad escape", span) from None
    return str(value)
