"""Entries as bytes: a line of JSON with the scalars, then the other values as a table of numbers.

Values of one kind and width that can be made together form a block, so that reading is a few dozen
loops over columns and not a loop over thousands of values:

    kind, rows, width, then the cells of each row

A cell is the place of a value that stands before the block: scalars have the first places, rows the
next ones. A position has a file, and its line and column as numbers. Numbers have four bytes,
the lowest first.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from fusiondsl.artifact.plain import POSITION, Entry, Json

_Kind: TypeAlias = tuple[int, int]
"""What the rows of one block have in common: kind and width."""


def pack(entries: Sequence[Entry]) -> bytes:
    """The same for the same entries; the value that all others are parts of comes last."""
    rows = {place: entry for place, entry in enumerate(entries) if isinstance(entry, list)}
    used = {part for row in rows.values() for part in _parts(row)} or {0}
    scalars = [place for place in sorted(used) if place not in rows]
    places = {old: new for new, old in enumerate(scalars)}
    numbers: list[int] = []
    for (kind, width), block in _blocks(rows):
        numbers += kind, len(block), width
        for old in block:
            numbers += _cells(rows[old], entries, places)
        places.update((old, new) for new, old in enumerate(block, len(places)))
    return json_line([entries[place] for place in scalars]) + _bytes(numbers)


def json_line(data: Json | list[Entry]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _bytes(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _parts(row: list[int]) -> list[int]:
    return row[1:2] if row[0] == POSITION else row[1:]


def _cells(row: list[int], entries: Sequence[Entry], places: dict[int, int]) -> list[Any]:
    cells: list[Any] = [places[part] for part in _parts(row)]
    return cells if row[0] != POSITION else cells + [entries[part] for part in row[2:]]


def _blocks(rows: dict[int, list[int]]) -> Iterator[tuple[_Kind, list[int]]]:
    """Rows by kind, every block after those with its parts.

    Next is the kind of which most can be made, so that few kinds come in more than one block.
    """
    kinds = {place: (row[0], len(row) - 1) for place, row in rows.items()}
    waits: dict[int, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    ready: dict[_Kind, list[int]] = defaultdict(list)
    left = Counter(kinds.values())
    for place, row in rows.items():
        missing = [part for part in _parts(row) if part in rows]
        waits[place] = len(missing)
        for part in missing:
            readers[part].append(place)
        if not missing:
            ready[kinds[place]].append(place)
    while ready:
        kind = max(ready, key=lambda kind: (len(ready[kind]) / left[kind], kind))
        block = sorted(ready.pop(kind))
        left[kind] -= len(block)
        yield kind, block
        for place in block:
            for reader in readers[place]:
                waits[reader] -= 1
                if not waits[reader]:
                    ready[kinds[reader]].append(reader)
