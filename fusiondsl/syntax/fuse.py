"""Reads `.fuse` text, and the pieces of it inside YAML files, into the abstract syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.pause import collection_paused
from fusiondsl.syntax import ast, errors, tables
from fusiondsl.syntax.build import Builder
from fusiondsl.syntax.grammar import Brackets, LimitError, compile_grammar
from fusiondsl.syntax.limits import MAX_SYNTAX_ERRORS

_ITEM = re.compile(
    r"^(?:import|dtypes|let|table|extern|op|rule|fuse|expect)(?![A-Za-z0-9_.])", re.MULTILINE
)
_LOCK = RLock()


@dataclass(frozen=True)
class _Tools:
    parser: Lark
    builder: Builder
    brackets: Brackets


@cache
def _tools() -> _Tools:
    builder, brackets = Builder(), Brackets()
    parser = tables.read(builder, brackets) or compile_grammar(builder, brackets)
    return _Tools(parser, builder, brackets)


@dataclass(frozen=True)
class Piece:
    """A text inside a file: its characters, and where they stand in the source.

    Positions are moved by `base`, or looked up in `offsets`, which has one entry a character and
    one for the end.
    """

    text: str
    base: int = 0
    offsets: Sequence[int] | None = None


def parse_module(source: Source, diagnostics: Diagnostics) -> ast.Module:
    """All items that could be read; what could not is reported."""
    with _LOCK, collection_paused():
        return _Reader(source, diagnostics).module()


def parse_piece(
    start: str, piece: Piece, source: Source, diagnostics: Diagnostics, scope: Iterable[str] = ()
) -> Any:
    """The node of start rule `start`, None if the text has an error (which is then reported)."""
    with _LOCK:
        return _Reader(source, diagnostics).read(start, piece, scope)


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self._source = source
        self._diagnostics = diagnostics
        self._tools = _tools()
        self._failed_at = 0

    def module(self) -> ast.Module:
        items: list[ast.Item] = []
        text, position, failures = self._source.text, 0, 0
        while position < len(text):
            before = len(self._diagnostics)
            self._tools.builder.items = []
            self.read("module", Piece(text[position:], position))
            items.extend(self._tools.builder.items)
            if self._failed_at < 0:
                break
            failures += len(self._diagnostics) > before
            found = _ITEM.search(text, max(self._failed_at, position + 1))
            if found is None:
                break
            position = found.start()
            if failures >= MAX_SYNTAX_ERRORS:
                self._give_up(position)
                break
        return ast.Module(self._source, tuple(items))

    def _give_up(self, position: int) -> None:
        span = Span(self._source, position, position + 1)
        message = f"more than {MAX_SYNTAX_ERRORS} syntax errors; the rest of the file is not read"
        self._diagnostics.error("FD021", message, span)

    def read(self, start: str, piece: Piece, scope: Iterable[str] = ()) -> Any:
        tools = self._tools
        tools.builder.begin(self._source, self._diagnostics, piece.base, piece.offsets, scope)
        self._failed_at = -1
        try:
            return tools.parser.parse(piece.text, start=start)
        except (UnexpectedInput, LimitError) as error:
            failure = errors.Failure(error, piece.text, tools.brackets, tools.builder.at)
            self._failed_at = failure.position + piece.base
            self._diagnostics.add(failure.diagnose())
            return None
