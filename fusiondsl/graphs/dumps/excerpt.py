"""The lines of one graph as a source of their own, located in the file they come from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fusiondsl.diagnostics.source import Source
from fusiondsl.graphs.dumps.lines import columns_of


class Piece(NamedTuple):
    """A line, or the rest of a line that was broken."""

    number: int
    start: int
    text: str
    joined: bool = False
    """It goes on where the piece before it ends."""


class Excerpt(Source):
    """Offsets are those of the text without prefixes; positions are those of the file."""

    __slots__ = ("_origin", "_pieces", "_starts")

    _origin: Source
    _pieces: Sequence[Piece]
    _starts: list[int]

    def __init__(self, origin: Source, pieces: Sequence[Piece]) -> None:
        starts: list[int] = []
        parts: list[str] = []
        length = 0
        for piece in pieces:
            if parts and not piece.joined:
                parts.append("\n")
                length += 1
            starts.append(length)
            parts.append(piece.text)
            length += len(piece.text)
        super().__init__(origin.name, "".join(parts))
        for name, value in (("_origin", origin), ("_pieces", pieces), ("_starts", starts)):
            object.__setattr__(self, name, value)  # a source is frozen

    def offset(self, index: int) -> int:
        """Where the piece with this index starts."""
        return self._starts[index]

    def position(self, offset: int) -> tuple[int, int]:
        piece, inside = self._at(offset)
        columns = columns_of(self._origin.line(piece.number))
        return piece.number, columns[min(piece.start + inside, len(columns) - 1)] + 1

    def _at(self, offset: int) -> tuple[Piece, int]:
        index = max(0, bisect_right(self._starts, offset) - 1)
        return self._pieces[index], offset - self._starts[index]

    def line(self, number: int) -> str:
        return self._origin.line(number)

    @property
    def line_count(self) -> int:
        return self._origin.line_count

    def line_start(self, number: int) -> int:
        return self._origin.line_start(number)
