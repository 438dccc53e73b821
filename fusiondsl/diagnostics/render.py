"""Prints diagnostics for people: the lines concerned, carets under them, notes and help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusiondsl.diagnostics.diagnostic import Diagnostic, Severity, Witness
from fusiondsl.diagnostics.escape import escaped, width
from fusiondsl.diagnostics.source import Source, Span

_LONGEST_LINE = 140
"""Of a longer line only the part around the first mark is shown."""
_BEFORE_MARK = 40

_RESET = "\x1b[0m"
_COLOURS = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "gutter": "\x1b[1;34m",
    "label": "\x1b[1;34m",
    "title": "\x1b[1m",
    "help": "\x1b[1;36m",
}


@dataclass(frozen=True, slots=True)
class _Mark:
    """An underlined part of one line, in 0-based columns of the source text."""

    line: int
    start: int
    end: int
    sign: str
    message: str


def render(diagnostic: Diagnostic, *, color: bool = False) -> str:
    """One diagnostic, several lines, without a final newline."""
    return _Renderer(diagnostic, color).text()


def snippet(span: Span, *, color: bool = False) -> list[str]:
    """Where a span stands and its line, marked; no message."""
    return _Renderer(Diagnostic("", Severity.ERROR, "", span), color).place()


def render_all(diagnostics: Iterable[Diagnostic], *, color: bool = False) -> str:
    """All diagnostics and the summary; empty where there are none."""
    items = list(diagnostics)
    if not items:
        return ""
    return "\n\n".join([*(render(item, color=color) for item in items), summary(items)]) + "\n"


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    severities = [item.severity for item in diagnostics]
    errors, warnings = (severities.count(severity) for severity in Severity)
    parts = [_count(errors, "error")] if errors else []
    parts += [_count(warnings, "warning")] if warnings else []
    return ", ".join(parts) or "no errors"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


class _Renderer:
    def __init__(self, diagnostic: Diagnostic, color: bool) -> None:
        self._diagnostic = diagnostic
        self._color = color
        self._kind = diagnostic.severity.value
        self._gutter = 1

    def _paint(self, style: str, text: str) -> str:
        return f"{_COLOURS[style]}{text}{_RESET}" if self._color and text else text

    def text(self) -> str:
        item = self._diagnostic
        head = self._paint(self._kind, f"{self._kind}[{item.code}]")
        lines = [head + self._paint("title", f": {escaped(item.message)}")]
        sources = self._sources()
        marks = [(source, self._marks(source)) for source in sources]
        numbers = [mark.line for _, found in marks for mark in found]
        self._gutter = len(str(max(numbers, default=1)))
        for source, found in marks:
            lines += self._snippet(source, found, first=source is sources[0])
        lines += self._trailer(bool(sources))
        return "\n".join(line.rstrip() for line in lines)

    def place(self) -> list[str]:
        """The lines concerned alone."""
        (source,) = self._sources()
        found = self._marks(source)
        self._gutter = len(str(max(mark.line for mark in found)))
        return [line.rstrip() for line in self._snippet(source, found, first=True)]

    def _spans(self) -> list[tuple[Span, str, str]]:
        item = self._diagnostic
        primary = [(item.span, "^", "")] if item.span is not None else []
        return [*primary, *((label.span, "-", label.message) for label in item.labels)]

    def _sources(self) -> list[Source]:
        found: list[Source] = []
        for span, _, _ in self._spans():
            if not any(span.source is source for source in found):
                found.append(span.source)
        return found

    def _marks(self, source: Source) -> list[_Mark]:
        marks = [
            mark
            for span, sign, message in self._spans()
            if span.source is source
            for mark in _marks_of(span, sign, message)
        ]
        return sorted(marks, key=lambda mark: mark.line)

    def _snippet(self, source: Source, marks: Sequence[_Mark], first: bool) -> list[str]:
        arrow = "-->" if first else ":::"
        span = next(span for span, _, _ in self._spans() if span.source is source)
        line, column = source.position(span.start)
        where = f"{escaped(source.name)}:{line}:{column}"
        head = " " * self._gutter + self._paint("gutter", arrow) + " " + where
        if not source.has_text:
            return [head]
        lines = [head, self._bar()]
        previous = 0
        for number in sorted({mark.line for mark in marks}):
            if previous and number > previous + 1:
                lines.append(self._paint("gutter", "..."))
            lines += self._line(source, number, [mark for mark in marks if mark.line == number])
            previous = number
        return lines

    def _bar(self, number: str = "") -> str:
        return self._paint("gutter", f"{number:>{self._gutter}} |")

    def _line(self, source: Source, number: int, marks: Sequence[_Mark]) -> list[str]:
        text = source.line(number)
        start, end = _window(text, min(mark.start for mark in marks))
        before, after = "..." if start else "", "..." if end < len(text) else ""
        shown = before + escaped(text[start:end]) + after
        lines = [f"{self._bar(str(number))} {shown}"]
        for mark in sorted(marks, key=lambda mark: mark.sign == "-"):
            indent = len(before) + width(text[start : max(mark.start, start)])
            covered = text[max(mark.start, start) : min(mark.end, end)]
            underline = mark.sign * max(1, width(covered))
            style = self._kind if mark.sign == "^" else "label"
            note = f" {escaped(mark.message)}" if mark.message else ""
            lines.append(f"{self._bar()} {' ' * indent}{self._paint(style, underline + note)}")
        return lines

    def _trailer(self, located: bool) -> list[str]:
        item = self._diagnostic
        notes = [("note", note) for note in item.notes]
        notes += [("help", item.help)] if item.help else []
        notes += [("example", _shown(item.witness))] if item.witness else []
        lines = [self._bar()] if located and notes else []
        for kind, note in notes:
            style = "help" if kind == "help" else "title"
            first, *rest = note.splitlines() or [""]
            sign = " " * self._gutter + self._paint("gutter", " =")
            lines.append(f"{sign} {self._paint(style, kind)}: {escaped(first)}")
            indent = " " * (self._gutter + len(" = : ") + (0 if kind == "example" else len(kind)))
            lines += [indent + escaped(line) for line in rest]
        return lines


def _shown(witness: Witness) -> str:
    facts = ", ".join(f"{name} = {_fact(value)}" for name, value in witness.target)
    return f"where {facts}:\n{witness.graph}" if facts else f"\n{witness.graph}"


def _fact(value: int | float | str | bool) -> str:
    """As rule files write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _marks_of(span: Span, sign: str, message: str) -> list[_Mark]:
    """Of a span over several lines the first and the last are marked."""
    source = span.source
    line, column = source.position(span.start)
    last, last_column = source.position(max(span.end, span.start))
    if last > line and last_column == 1:
        last -= 1
        last_column = len(source.line(last)) + 1
    if last == line:
        return [_Mark(line, column - 1, last_column - 1, sign, message)]
    text = source.line(last)
    indent = len(text) - len(text.lstrip())
    return [
        _Mark(line, column - 1, len(source.line(line)), sign, ""),
        _Mark(last, min(indent, last_column - 1), last_column - 1, sign, message),
    ]


def _window(text: str, start: int) -> tuple[int, int]:
    if len(text) <= _LONGEST_LINE:
        return 0, len(text)
    first = max(0, min(start - _BEFORE_MARK, len(text) - _LONGEST_LINE))
    return first, min(len(text), first + _LONGEST_LINE)
