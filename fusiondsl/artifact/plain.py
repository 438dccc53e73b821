"""Programs as plain data: the dataclasses of `ir` and `dims.expr` as a list of entries.

Every distinct value of a kind stands once, after its parts, and is referred to by its place. The
first number of an entry is its kind:

    "tokens"                a text, a number, true, false or null: itself
    [29, 3, 4]              a tuple of any length: its items
    [54, 3, 4, 5, 6]        a mapping: keys and values in turn
    [30, 3, 12, 5]          a position: file, line and column
    [19, 3]                 an instance of a class, or a tuple of fixed length: its fields in order
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from fusiondsl import ir
from fusiondsl.artifact.kinds import SCALARS, Column, Kind, classes
from fusiondsl.diagnostics.source import Span
from fusiondsl.syntax.limits import MAX_NESTING

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Scalar: TypeAlias = "str | int | float | bool | None"
Entry: TypeAlias = "Scalar | list[int]"

MAX_DEPTH = MAX_NESTING + 50
"""Instances inside each other: the deepest expression that is read from text, and what is around
it."""


class Damaged(Exception):
    """Data that is no program; the message says where it goes wrong."""


class TooDeep(Exception):
    """A value that is nested more than `MAX_DEPTH` deep."""


def encode(value: object, file_name: Callable[[str], str] | None = str) -> list[Entry]:
    """The list for an instance, which is its last entry; raises `TooDeep`.

    `file_name` renames the files of positions; with None, positions are left out.
    """
    return _Encoder(file_name).write(value)


_Part: TypeAlias = "tuple[object, Kind]"


class _Encoder:
    def __init__(self, file_name: Callable[[str], str] | None) -> None:
        self._file_name = file_name
        self._entries: list[Entry] = []
        self._depths: list[int] = []
        self._places: dict[object, int] = {}
        self._written: dict[tuple[int, int], int] = {}
        """Where the objects stand, by kind and `id`: they are parts of one value, so all are
        alive."""

    def write(self, root: object) -> list[Entry]:
        """Parts before what they are parts of, without recursion."""
        first = (root, _kind(root, classes()))
        waiting = [first]
        while waiting:
            parts = self._parts(*waiting[-1])
            places = [self._place(*part) for part in parts]
            missing = [part for part, at in zip(parts, places, strict=True) if at is None]
            if missing:
                waiting += reversed(missing)
            else:
                value, kind = waiting.pop()
                known = [place for place in places if place is not None]
                self._written[kind.number, id(value)] = self._node(kind, known)
        last = self._place(*first)
        assert last is not None
        # an equal value may stand elsewhere already
        return self._entries[: last + 1]

    def _parts(self, value: object, kind: Kind) -> list[_Part]:
        return [
            self._part(part, column)
            for row in _rows(value, kind)
            for part, column in zip(row, kind.columns, strict=True)
        ]

    def _part(self, value: object, column: Column) -> _Part:
        if self._file_name is None and isinstance(value, Span):
            value = None
        elif isinstance(value, ir.Later):
            value = value.items
        return value, _kind(value, column.kinds)

    def _place(self, value: Any, kind: Kind) -> int | None:
        """Where `value` stands; None where it must be written first."""
        if kind.cls is Span:
            return self._position(value, kind)
        if kind.cls in SCALARS:
            return self._scalar(value)
        return self._written.get((kind.number, id(value)))

    def _scalar(self, value: Any) -> int:
        # -0.0 equals 0.0, and true equals 1
        return self._add((type(value), repr(value)), value, 0)

    def _position(self, span: Span, kind: Kind) -> int:
        assert self._file_name is not None
        line, column = span.source.position(span.start)
        parts = (self._file_name(span.source.name), line, column)
        return self._node(kind, [self._scalar(part) for part in parts])

    def _node(self, kind: Kind, places: list[int]) -> int:
        depth = max((self._depths[place] for place in places), default=0) + kind.is_instance
        if depth > MAX_DEPTH:
            raise TooDeep
        entry = [kind.number, *places]
        return self._add(tuple(entry), entry, depth)

    def _add(self, key: object, entry: Entry, depth: int) -> int:
        place = self._places.setdefault(key, len(self._entries))
        if place == len(self._entries):
            self._entries.append(entry)
            self._depths.append(depth)
        return place


def _kind(value: object, kinds: Mapping[type, Kind]) -> Kind:
    kind = kinds.get(type(value))
    if kind is None:
        raise TypeError(f"{type(value).__name__} has no plain form")
    return kind


def _rows(value: Any, kind: Kind) -> Iterable[Iterable[object]]:
    if kind.cls is dict:
        return sorted(value.items())
    if kind.is_open:
        return ((item,) for item in value)
    if kind.cls is tuple:
        return (value,)
    return ([getattr(value, column.name) for column in kind.columns],)


def is_default(entry: Entry, column: Column) -> bool:
    """Does an entry stand for the default of a field?"""
    if column.default == ():
        return isinstance(entry, list) and len(entry) == 1
    return type(entry) is type(column.default) and entry == column.default
