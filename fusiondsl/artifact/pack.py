"""Entries as bytes: a line of JSON with the scalars, then the other values as a table of numbers.

Values of one kind that can be made together form a block, so that reading is a few dozen loops over
columns and not a loop over thousands of values:

    kind, number of values, then their cells, value by value
    kind, number of values, the number of items of each, then their cells

A cell is the place of a value that stands before the block: scalars have the first places, values
of blocks the next ones. A position has a file, and its line and column as numbers. Numbers have
four bytes, the lowest first.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from fusiondsl.artifact.kinds import classes, kinds
from fusiondsl.artifact.plain import Entry, Json
from fusiondsl.diagnostics.source import Span


def pack(entries: Sequence[Entry]) -> bytes:
    """The same for the same entries; the value that all others are parts of comes last."""
    rows = {place: entry for place, entry in enumerate(entries) if isinstance(entry, list)}
    used = {part for row in rows.values() for part in _parts(row)} or {0}
    scalars = [place for place in sorted(used) if place not in rows]
    places = {old: new for new, old in enumerate(scalars)}
    numbers: list[int] = []
    for number, block in _blocks(rows):
        kind = kinds()[number]
        numbers += number, len(block)
        if kind.is_open:
            numbers += [(len(rows[old]) - 1) // len(kind.columns) for old in block]
        for old in block:
            numbers += _cells(rows[old], entries, places)
        places.update((old, new) for new, old in enumerate(block, len(places)))
    return json_line([entries[place] for place in scalars]) + _bytes(numbers)


def json_line(data: Json | list[Entry]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _bytes(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _is_position(row: list[int]) -> bool:
    return row[0] == classes()[Span].number


def _parts(row: list[int]) -> list[int]:
    return row[1:2] if _is_position(row) else row[1:]


def _cells(row: list[int], entries: Sequence[Entry], places: dict[int, int]) -> list[Any]:
    cells: list[Any] = [places[part] for part in _parts(row)]
    return cells if not _is_position(row) else cells + [entries[part] for part in row[2:]]


def _blocks(rows: dict[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Rows by kind, every block after those with its parts.

    As kinds stand after those of their parts, few come in more than one block.
    """
    numbers = {place: row[0] for place, row in rows.items()}
    waits: dict[int, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    ready: dict[int, list[int]] = defaultdict(list)
    for place, row in rows.items():
        missing = [part for part in _parts(row) if part in rows]
        waits[place] = len(missing)
        for part in missing:
            readers[part].append(place)
        if not missing:
            ready[numbers[place]].append(place)
    while ready:
        kind = min(ready)
        block = sorted(ready.pop(kind))
        yield kind, block
        for place in block:
            for reader in readers[place]:
                waits[reader] -= 1
                if not waits[reader]:
                    ready[numbers[reader]].append(reader)
