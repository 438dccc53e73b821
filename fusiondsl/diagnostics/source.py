"""Source texts and the spans inside them; every located thing in fusiondsl carries a `Span`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One input text. `name` is what diagnostics print (a path, or `<string>`)."""

    name: str
    text: str = field(repr=False)
    _line_starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = (len(line) + 1 for line in self.text.split("\n"))
        starts = list(accumulate(lengths, initial=0))[:-1]
        object.__setattr__(self, "_line_starts", starts)

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based (line, column) of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    @property
    def has_text(self) -> bool:
        """Can the lines of a position be shown?"""
        return True

    @property
    def line_count(self) -> int:
        return len(self._line_starts)

    def line_start(self, number: int) -> int:
        """The character offset where 1-based line `number` starts."""
        return self._line_starts[number - 1]

    def line(self, number: int) -> str:
        """The text of 1-based line `number`, without its line ending."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range `[start, end)` of character offsets in `source`."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))


_COLUMNS = 1 << 32


class Place(Source):
    """A file whose text is not at hand; an offset in it is a line and a column in one number."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, "")

    @property
    def has_text(self) -> bool:
        return False

    @staticmethod
    def offsets(lines: Iterable[int], columns: Iterable[int]) -> list[int]:
        """Of lines and columns, both from 1 and less than 2 ** 32."""
        return [line * _COLUMNS + column for line, column in zip(lines, columns, strict=True)]

    def span(self, line: int, column: int) -> Span:
        """The place before a character."""
        (offset,) = self.offsets([line], [column])
        return Span(self, offset, offset)

    def position(self, offset: int) -> tuple[int, int]:
        return divmod(offset, _COLUMNS)

    def line(self, number: int) -> str:
        return ""
