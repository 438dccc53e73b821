"""Tokens of FX graph text: Python's lexical form, without its statements."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusiondsl.diagnostics.source import Source, Span

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f]+|\\\r?\n)
  | (?P<comment>\#[^\n]*|\"{3}(?:[^"]|"(?!""))*\"{3})
  | (?P<newline>\n)
  | (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
  | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[^\W\d]\w*)
  | (?P<op>\.\.\.|…|\*\*=|//=|<<=|>>=|->|\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%&|^@]=
      |[-+*/%@&|^~<>=()\[\]{},:.;])
    """,
    re.VERBOSE,
)
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`name number text op comment newline end` or `bad`."""
    value: str
    start: int
    end: int


class Lexer:
    """Reads tokens of `source[start:end]` on demand; newlines inside brackets do not count."""

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self.source = source
        self._position = start
        self._end = len(source.text) if end is None else end
        self._depth = 0

    def next(self) -> Token:
        while True:
            token = self._scan()
            self._position = token.end
            if token.kind == "op":
                self._nest(token.value)
            if token.kind == "blank" or (token.kind == "newline" and self._depth > 0):
                continue
            return token

    def open(self) -> None:
        """Counts a bracket that stands before the start as open."""
        self._depth += 1

    def skip_line(self) -> None:
        """Forgets open brackets and goes on at the next line."""
        self._depth = 0
        newline = self.source.text.find("\n", self._position, self._end)
        self._position = self._end if newline < 0 else newline

    def skip_to_end(self) -> None:
        self._depth = 0
        self._position = self._end

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def _scan(self) -> Token:
        start = self._position
        if start >= self._end:
            return Token("end", "", self._end, self._end)
        match = _TOKEN.match(self.source.text, start, self._end)
        if match is None or match.lastgroup is None:
            return Token("bad", self.source.text[start], start, start + 1)
        return Token(match.lastgroup, match.group(), start, match.end())

    def _nest(self, value: str) -> None:
        if value in _OPEN:
            self._depth += 1
        elif value in _CLOSE:
            self._depth = max(0, self._depth - 1)
