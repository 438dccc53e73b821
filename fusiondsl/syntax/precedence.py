"""How tightly operators bind: nests a flat chain of operands, and tells where parentheses go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lark import Token

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax.levels import BINARY, COMPARISON, UNARY


def nest(
    parts: list[Any], source: Source, span_of: Callable[[Token], Span], diagnostics: Diagnostics
) -> ex.Expr:
    """The tree of a chain: operands are nodes, operators and prefixes are tokens."""
    return _Chain(parts, source, span_of, diagnostics).read(0)


class _Chain:
    def __init__(
        self,
        parts: list[Any],
        source: Source,
        span_of: Callable[[Token], Span],
        diagnostics: Diagnostics,
    ) -> None:
        self._parts = parts
        self._next = 0
        self._source = source
        self._span_of = span_of
        self._diagnostics = diagnostics

    def read(self, loosest: int) -> ex.Expr:
        """The longest expression from here whose operators bind at least as `loosest`."""
        left = self._operand()
        compared = False
        while self._next < len(self._parts):
            token = self._parts[self._next]
            op = _spelling(token)
            level = BINARY[op]
            if level < loosest:
                break
            if level == COMPARISON:
                if compared:
                    self._chained(token)
                compared = True
            self._next += 1
            right = self.read(level if op == "**" else level + 1)
            left = self._binary(op, left, right)
        return left

    def _operand(self) -> ex.Expr:
        part = self._parts[self._next]
        self._next += 1
        if part.__class__ is not Token:
            operand: ex.Expr = part
            return operand
        inner = self._prefixed(part)
        return ex.Unary(str(part), inner, span=self._from(self._span_of(part), inner))

    def _prefixed(self, prefix: Token) -> ex.Expr:
        return self.read(UNARY[str(prefix)])

    def _binary(self, op: str, left: ex.Expr, right: ex.Expr) -> ex.Binary:
        assert left.span is not None
        return ex.Binary(op, left, right, span=self._from(left.span, right))

    def _from(self, start: Span, last: ex.Expr) -> Span:
        assert last.span is not None
        return Span(self._source, start.start, last.span.end)

    def _chained(self, token: Token) -> None:
        self._diagnostics.error(
            "FD010",
            "comparisons do not chain",
            self._span_of(token),
            help="write `a < b and b < c`",
        )


def _spelling(token: Token) -> str:
    match token.type:
        case "IS":
            return "=="
        case "IS_NOT":
            return "!="
        case "NOT_IN":
            return "not in"
        case _:
            return str(token)
