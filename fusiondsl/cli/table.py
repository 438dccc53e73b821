"""Tables of text with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from fusiondsl.diagnostics.escape import escaped, width

_GAP = "  "


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under headers; a cell may have several lines, and numbers are aligned to the right."""
    lines = [list(headers)]
    for row in rows:
        lines += _lines(row)
    widths = [max(width(line[i]) for line in lines) for i in range(len(headers))]
    numeric = [bool(rows) and all(row[i].isdigit() for row in rows) for i in range(len(headers))]
    return "\n".join(
        _GAP.join(
            _padded(cell, size, right)
            for cell, size, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _lines(row: Sequence[str]) -> list[list[str]]:
    cells = [[escaped(line) for line in cell.split("\n")] for cell in row]
    height = max(map(len, cells))
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(height)]


def _padded(text: str, size: int, right: bool) -> str:
    space = " " * (size - width(text))
    return space + text if right else text + space
