"""Parses the signature and the statements of a graph that is printed as code; runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs.expressions import BadText, ExpressionParser
from fusiondsl.graphs.text import (
    Assign,
    Call,
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
    Unpacked,
)
from fusiondsl.graphs.tokens import Lexer

_MAX_FAULTS = 20
_ORIGIN = re.compile(
    r"File: (?P<file>.+?):(?P<line>\d+) in (?P<name>.+?), code: ?(?P<code>.*)$", re.DOTALL
)
_FORWARD = re.compile(r"[ \t]*def forward\(")
_BINARY = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")
_AUGMENTED = frozenset(f"{op}=" for op in _BINARY)


def parse_code(
    source: Source,
    start: int,
    end: int,
    path: tuple[str, ...],
    diagnostics: Diagnostics,
    *,
    fragment: bool = False,
    cut: bool = False,
) -> GraphText:
    """The graph in `source[start:end]`: from `def forward(` on, or statements alone.

    `cut`: the text ends before the graph does, so that its last statement may be part of one.
    Faults go to `diagnostics`.
    """
    header = None if fragment else _FORWARD.match(source.text, start, end)
    begin = start if header is None else header.end()
    parser = _GraphParser(source, begin, end, diagnostics, fragment=fragment, cut=cut)
    return parser.graph(path, start)


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
    """Parses from just behind `def forward(` to the end of `return`, or of the text."""

    def __init__(
        self,
        source: Source,
        start: int,
        end: int,
        diagnostics: Diagnostics,
        *,
        fragment: bool,
        cut: bool,
    ) -> None:
        self._origin = _Origin()
        self._diagnostics = diagnostics
        self._fragment = fragment
        self._cut = cut
        self._open = fragment
        self._faults = 0
        self._params: list[Parameter] = []
        self._types: dict[str, Span] = {}
        """Annotations that stand alone: those of inputs that are unpacked from a tree."""
        self._body: list[Statement] = []
        self._result: Expr | None = None
        self._notes: list[str] = []
        self._text_end = end
        lexer = Lexer(source, start, end)
        if not fragment:
            # The lexer starts behind the opening parenthesis, which therefore counts as open.
            lexer.open()
        super().__init__(lexer)

    def on_comment(self, text: str) -> None:
        if text.startswith("#"):
            self._origin.update(text)

    def graph(self, path: tuple[str, ...], start: int) -> GraphText:
        if not self._fragment:
            self._guarded(self._signature)
        while self._result is None and self._faults < _MAX_FAULTS and self._more():
            self._guarded(self._line)
        self._drop_remains()
        return GraphText(
            path,
            self._inputs(),
            tuple(s for s in self._body if not isinstance(s, Unpacked)),
            self._result,
            self.since(start, self.token.start),
            open=self._open,
            cut=self._cut and self._result is None,
            notes=tuple(self._notes),
        )

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BadText as fault:
            if self._is_cut_at(fault):
                self._note_cut(fault.span)
                self._drop_last_parameter()
                self.lexer.skip_to_end()
            else:
                self._faults += 1
                self._diagnostics.error(fault.code, fault.message, fault.span)
                self.lexer.skip_line()
            self.token = self._fetch()

    def _is_cut_at(self, fault: BadText) -> bool:
        """Is it the last line of a text that ends too early?"""
        if not self._cut:
            return False
        rest = self.lexer.source.text[fault.span.start : self._text_end]
        lines = [line for line in rest.splitlines()[1:] if line.strip(" \t.…")]
        return all(line.lstrip().startswith("#") for line in lines)

    def _drop_last_parameter(self) -> None:
        """Where the signature is cut, the last parameter may be part of one."""
        last = self._params[-1] if self._params and not self._body else None
        if last is not None and (last.annotation or last.span).end >= self._text_end:
            self._params.pop()

    def _drop_remains(self) -> None:
        """`y = x_1`, where `x_12.to(..)` was cut, reads as another name for `x_1`."""
        last = self._body[-1] if self._body else None
        if not self._cut or self._result is not None or not isinstance(last, Assign):
            return
        if isinstance(last.value, Dotted) and last.span.end == self._text_end:
            self._note_cut(last.span)
            self._body.pop()

    def _note_cut(self, span: Span) -> None:
        line = self.lexer.source.position(span.start)[0]
        self._notes.append(f"the text is cut in line {line}: its last statement is dropped")

    def _inputs(self) -> tuple[Parameter, ...]:
        """What stands behind parameters that are trees of inputs, else the parameters."""
        for statement in self._body:
            if isinstance(statement, Unpacked):
                return statement.params
        return tuple(self._params)

    def _more(self) -> bool:
        """Skips blank lines; false at the end of the text."""
        while self.token.kind == "newline":
            self.advance()
        return self.token.kind != "end"

    # --- the signature -------------------------------------------------------------------------

    def _signature(self) -> None:
        while not self.at(")"):
            if not (self.take("*") or self.take("**")):
                self._parameter(self._params)
            if not self.take(","):
                break
        self.expect(")")
        if self.take("->"):
            self._annotation(":")
        self.expect(":")

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

    def _line(self) -> None:
        while True:
            statement = self._statement()
            if statement is not None:
                self._body.append(statement)
            if self._result is not None or not self.take(";"):
                break
            if self.token.kind in ("newline", "end"):
                break
        if self.token.kind not in ("newline", "end"):
            raise self.fault(f"unexpected {self.describe()} after a statement")

    def _statement(self) -> Statement | None:
        token = self.token
        if token.kind == "name" and token.value == "return":
            self.advance()
            self._result = self._returned()
            return None
        if token.kind == "name" and token.value == "pass":
            self.advance()
            return None
        if self.at("...") or self.at("…"):
            self._left_out()
            return None
        trace = self._origin.trace
        target = self.expression()
        if isinstance(target, Dotted) and self.at(","):
            return self._unpacked(target)
        if isinstance(target, Dotted) and len(target.parts) == 1:
            return self._named(target.parts[0], target.span, trace)
        return self._inplace(target, trace)

    def _left_out(self) -> None:
        line = self.lexer.source.position(self.token.start)[0]
        self.advance()
        self._open = True
        self._notes.append(f"line {line} stands for statements that are left out")

    def _unpacked(self, first: Dotted) -> Statement:
        names = [first]
        while self.take(",") and not self.at("="):
            token = self.name()
            names.append(Dotted((token.value,), self.lexer.span(token)))
        self.expect("=")
        value = self.expression()
        func = value.func if isinstance(value, Call) else None
        if not isinstance(func, Dotted) or func.parts[-1] != "tree_flatten_spec":
            raise BadText("FD616", "a value assigned to several names", first.span.to(value.span))
        return Unpacked(
            tuple(
                Parameter(name.parts[0], self._types.get(name.parts[0]), None, name.span)
                for name in names
            )
        )

    def _returned(self) -> Expr:
        if self.token.kind in ("newline", "end"):
            return Constant(None, self.since(self.token.start, self.token.start))
        first = self.expression()
        func = first.func if isinstance(first, Call) else None
        if isinstance(func, Dotted) and func.parts[-1] == "tree_unflatten":
            assert isinstance(first, Call)
            return first.args[0] if first.args else first
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
            self._types[name] = annotation
            return None
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
