"""Which graphs a text holds, and where, in one pass over its lines."""

from __future__ import annotations

from collections.abc import Callable

from fusiondsl.diagnostics.source import Source
from fusiondsl.graphs.dumps.find import Finder
from fusiondsl.graphs.dumps.lines import Lane, lines_of
from fusiondsl.graphs.dumps.unit import Unit

Progress = Callable[[float], None]
"""Is told the part that is done, from 0 to 1."""

_STEP = 8192


def index(source: Source, progress: Progress | None = None) -> list[Unit]:
    """The printed graphs in the order of their first lines."""
    found: list[Unit] = []
    finders: dict[Lane, Finder] = {}
    for line in lines_of(source):
        finder = finders.get(line.lane)
        if finder is None:
            finder = finders[line.lane] = Finder(line.lane, found)
        finder.feed(line)
        if progress is not None and line.number % _STEP == 0:
            progress(line.number / source.line_count)
    for finder in finders.values():
        finder.close()
    return sorted(found, key=lambda unit: unit.pieces[0].number)
