"""Parses one unit of the index: the statements of each of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.graphs.dumps.excerpt import Excerpt
from fusiondsl.graphs.dumps.rows import parse_rows
from fusiondsl.graphs.dumps.unit import Entry, Kind, Unit
from fusiondsl.graphs.parser import parse_code
from fusiondsl.graphs.text import GraphText


def parse(unit: Unit, excerpt: Excerpt, diagnostics: Sequence[Diagnostics]) -> list[GraphText]:
    """One result an entry; the faults of each go to its own `diagnostics`."""
    return [
        _PARSERS[unit.kind](unit, entry, excerpt, faults)
        for entry, faults in zip(unit.entries, diagnostics, strict=True)
    ]


def _code(unit: Unit, entry: Entry, excerpt: Excerpt, diagnostics: Diagnostics) -> GraphText:
    start, end = _range(unit, entry, excerpt)
    return parse_code(
        excerpt,
        start,
        end,
        entry.path,
        diagnostics,
        fragment=unit.kind is Kind.FRAGMENT,
        cut=not entry.complete,
    )


def _rows(unit: Unit, entry: Entry, excerpt: Excerpt, diagnostics: Diagnostics) -> GraphText:
    start, end = _range(unit, entry, excerpt)
    return parse_rows(excerpt, start, end, entry.path, diagnostics, cut=not entry.complete)


def _range(unit: Unit, entry: Entry, excerpt: Excerpt) -> tuple[int, int]:
    last = unit.pieces[entry.last]
    return excerpt.offset(entry.first), excerpt.offset(entry.last) + len(last.text)


_PARSERS: dict[Kind, Callable[[Unit, Entry, Excerpt, Diagnostics], GraphText]] = {
    Kind.MODULE: _code,
    Kind.FRAGMENT: _code,
    Kind.NODES: _rows,
    Kind.KERNEL: _rows,
}
