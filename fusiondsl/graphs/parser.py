"""Finds the graphs in a text and parses their signatures and statements; runs nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs.expressions import BadText, ExpressionParser
from fusiondsl.graphs.text import (
    Assign,
    Constant,
    Dotted,
    Expr,
    Free,
    GraphText,
    Inplace,
    Item,
    Listing,
    Parameter,
    Statement,
)
from fusiondsl.graphs.tokens import Lexer

_MAX_FAULTS = 20
_HEADER = re.compile(
    r"^(?P<indent>[ \t]*)(?:"
    r"(?:[^\n]*?[ \t])??class (?P<cls><lambda>|\w+)\([^\n()]*Module\):"
    r"|def forward\()",
    re.MULTILINE,
)
_ORIGIN = re.compile(
    r"File: (?P<file>.+?):(?P<line>\d+) in (?P<name>.+?), code: ?(?P<code>.*)$", re.DOTALL
)
_BINARY = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")
_AUGMENTED = frozenset(f"{op}=" for op in _BINARY)


def parse_graphs(source: Source, diagnostics: Diagnostics) -> list[GraphText]:
    """Every `def forward` of the text, in order; faults go to `diagnostics`."""
    graphs: list[GraphText] = []
    classes: list[tuple[int, str]] = []
    position = 0
    while (match := _HEADER.search(source.text, position)) is not None:
        indent = _width(match["indent"])
        position = match.end()
        if match["cls"] is not None:
            classes = [outer for outer in classes if outer[0] < indent]
            classes.append((indent, match["cls"]))
            continue
        path = tuple(name for width, name in classes if width < indent) or ("forward",)
        parser = _GraphParser(source, match.end(), indent, diagnostics)
        graphs.append(parser.graph(path, match.start()))
        position = max(position, parser.end)
    return graphs


def _width(indent: str) -> int:
    return len(indent.expandtabs(8))


@dataclass
class _Origin:
    """The comment that the next statements stand under, in the form of a stack trace."""

    trace: str | None = None

    def update(self, comment: str) -> None:
        match = _ORIGIN.search(comment)
        if match is not None:
            head = f'  File "{match["file"]}", line {match["line"]}, in {match["name"]}'
            self.trace = f"{head}\n    {match['code'].strip()}"
        elif "No stacktrace found" in comment:
            self.trace = None


class _GraphParser(ExpressionParser):
    """Parses from just behind `def forward(` to the end of `return`, or to a dedent."""

    def __init__(self, source: Source, start: int, indent: int, diagnostics: Diagnostics) -> None:
        self._origin = _Origin()
        self._diagnostics = diagnostics
        self._indent = indent
        self._faults = 0
        self._result: Expr | None = None
        self.end = start
        lexer = Lexer(source, start)
        # The lexer starts behind the opening parenthesis, which therefore counts as open.
        lexer.open()
        super().__init__(lexer)

    def on_comment(self, text: str) -> None:
        self._origin.update(text)

    def graph(self, path: tuple[str, ...], start: int) -> GraphText:
        params: tuple[Parameter, ...] = ()
        body: list[Statement] = []
        try:
            params = self._signature()
        except BadText as fault:
            self._report(fault)
        while self._result is None and self._faults < _MAX_FAULTS and self._inside():
            try:
                body.extend(self._line())
            except BadText as fault:
                self._report(fault)
        self.end = self.token.start
        return GraphText(path, params, tuple(body), self._result, self.since(start, self.end))

    def _report(self, fault: BadText) -> None:
        self._faults += 1
        self._diagnostics.error(fault.code, fault.message, fault.span)
        self.lexer.skip_line()
        self.token = self._fetch()

    def _inside(self) -> bool:
        """Skips blank lines; false at the end of the text or of the function."""
        while self.token.kind == "newline":
            self.advance()
        if self.token.kind == "end":
            return False
        source = self.lexer.source
        line, column = source.position(self.token.start)
        lead = source.line(line)[: column - 1]
        return bool(lead.strip()) or _width(lead) > self._indent

    # --- the signature -------------------------------------------------------------------------

    def _signature(self) -> tuple[Parameter, ...]:
        params: list[Parameter] = []
        while not self.at(")"):
            if not (self.take("*") or self.take("**")):
                self._parameter(params)
            if not self.take(","):
                break
        self.expect(")")
        if self.take("->"):
            self._annotation(":")
        self.expect(":")
        return tuple(params)

    def _parameter(self, params: list[Parameter]) -> None:
        token = self.name("a parameter")
        annotation = self._annotation(",)=") if self.take(":") else None
        default = self.expression() if self.take("=") else None
        if token.value == "self" and not params:
            return
        span = self.lexer.span(token)
        if any(param.name == token.value for param in params):
            raise BadText("FD615", f"parameter `{token.value}` is declared twice", span)
        params.append(Parameter(token.value, annotation, default, span))

    def _annotation(self, stop: str) -> Span:
        """The text of an annotation: inside its quotes, or up to one of the characters `stop`."""
        token = self.token
        if token.kind == "text":
            self.advance()
            return self.since(token.start + 1, token.end - 1)
        depth = 0
        end = token.start
        while self.token.kind not in ("newline", "end"):
            value = self.token.value
            if depth == 0 and self.token.kind == "op" and value in stop:
                break
            depth += (value in "([{") - (value in ")]}") if self.token.kind == "op" else 0
            end = self.advance().end
        return self.since(token.start, end)

    # --- statements ----------------------------------------------------------------------------

    def _line(self) -> list[Statement]:
        statements: list[Statement] = []
        while True:
            statement = self._statement()
            if statement is not None:
                statements.append(statement)
            if self._result is not None or not self.take(";"):
                break
            if self.token.kind in ("newline", "end"):
                break
        if self.token.kind not in ("newline", "end"):
            raise self.fault(f"unexpected {self.describe()} after a statement")
        return statements

    def _statement(self) -> Statement | None:
        token = self.token
        if token.kind == "name" and token.value == "return":
            self.advance()
            self._result = self._returned()
            return None
        if token.kind == "name" and token.value == "pass":
            self.advance()
            return None
        trace = self._origin.trace
        target = self.expression()
        if isinstance(target, Dotted) and len(target.parts) == 1:
            return self._named(target.parts[0], target.span, trace)
        return self._inplace(target, trace)

    def _returned(self) -> Expr:
        first = self.expression()
        if not self.at(","):
            return first
        items = [first]
        while self.take(",") and self.token.kind not in ("newline", "end"):
            items.append(self.expression())
        return Listing(tuple(items), False, first.span.to(items[-1].span))

    def _named(self, name: str, span: Span, trace: str | None) -> Statement | None:
        if self.token.value in _AUGMENTED:
            return self._inplace(Dotted((name,), span), trace)
        annotation = self._annotation("=;") if self.take(":") else None
        if annotation is not None and not self.at("="):
            return Free(())
        self.expect("=")
        return self._assigned(name, span, annotation, trace)

    def _assigned(
        self, name: str, span: Span, annotation: Span | None, trace: str | None
    ) -> Statement:
        value = self.expression()
        names = [name]
        while annotation is None and self.at("=") and isinstance(value, Dotted):
            self.advance()
            names.append(value.parts[0])
            value = self.expression()
        if isinstance(value, Constant) and value.value is None and annotation is None:
            return Free(tuple(names))
        if len(names) > 1:
            raise BadText("FD616", "a value assigned to several names", span.to(value.span))
        return Assign(name, annotation, value, trace, span.to(value.span))

    def _inplace(self, target: Expr, trace: str | None) -> Statement:
        token = self.token
        setitem = isinstance(target, Item) and token.value == "="
        if not setitem and token.value not in _AUGMENTED:
            raise BadText("FD616", "a statement that is no assignment", target.span)
        self.advance()
        value = self.expression()
        op = "setitem" if setitem else token.value
        return Inplace(op, target, value, trace, target.span.to(value.span))
