"""Programs as plain data: the dataclasses of `ir` and `dims.expr` as a list of entries.

Every distinct value stands once, after its parts, and is referred to by its place:

    "tokens"                a text, a number, true, false or null: itself
    [0, 3, 4]               a tuple
    [1, 3, 4, 5, 6]         a mapping, keys and values in turn
    [2, 3, 12, 5]           a position: file, line and column
    [9, 3, 7]               an instance of a class, its fields in order
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias

from fusiondsl import ir
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims import expr
from fusiondsl.syntax.limits import MAX_NESTING

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Scalar: TypeAlias = "str | int | float | bool | None"
Entry: TypeAlias = "Scalar | list[int]"

MAX_DEPTH = MAX_NESTING + 50
"""Instances inside each other: the deepest expression that is read from text, and what is around
it."""

TUPLE, MAPPING, POSITION, FIRST_CLASS = range(4)
_UNREPORTED = ("span", "func_span")
"""Positions inside expressions, which nothing reports once a program is checked."""


class Damaged(Exception):
    """Data that is no program; the message says where it goes wrong."""


# --- the classes -------------------------------------------------------------------------------


def _classes(module: types.ModuleType) -> list[type]:
    names = sorted(vars(module))
    found = [value for name in names if is_dataclass(value := getattr(module, name))]
    return [cls for cls in found if isinstance(cls, type) and cls is not Span]


_EXPRESSIONS = _classes(expr)
_PROGRAM = [cls for cls in _classes(ir) if cls not in _EXPRESSIONS]
CLASSES = _EXPRESSIONS + _PROGRAM
_KINDS = {cls: number for number, cls in enumerate(CLASSES, FIRST_CLASS)}


@dataclass(frozen=True)
class Field:
    name: str
    hint: str
    default: object
    """`MISSING` where a value is required."""


@cache
def written_fields(cls: type) -> tuple[Field, ...]:
    """The fields that are written, in the order in which the class takes them."""
    unwritten = _UNREPORTED if cls in _EXPRESSIONS else ()
    return tuple(
        Field(field.name, str(field.type), field.default)
        for field in fields(cls)
        if field.name not in unwritten
    )


@cache
def layout() -> str:
    """Names the classes, their fields and types: data of another layout cannot be read."""
    described = [
        (c.__module__, c.__name__, [(f.name, f.hint) for f in written_fields(c)]) for c in CLASSES
    ]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


# --- to plain data -----------------------------------------------------------------------------


class TooDeep(Exception):
    """A value that is nested more than `MAX_DEPTH` deep."""


def encode(value: object, file_name: Callable[[str], str] | None = str) -> list[Entry]:
    """The list for `value`, which is its last entry; raises `TooDeep`.

    `file_name` renames the files of positions; with None, positions are left out.
    """
    return _Encoder(file_name).write(value)


class _Encoder:
    def __init__(self, file_name: Callable[[str], str] | None) -> None:
        self._file_name = file_name
        self._entries: list[Entry] = []
        self._depths: list[int] = []
        self._places: dict[object, int] = {}
        self._written: dict[int, int] = {}
        """Where the objects stand, by `id`: they are parts of one value, so all are alive."""

    def write(self, root: object) -> list[Entry]:
        """Parts before what they are parts of, without recursion."""
        waiting = [root]
        while waiting:
            kind, parts = self._parts(waiting[-1])
            places = [self._place(part) for part in parts]
            missing = [part for part, at in zip(parts, places, strict=True) if at is None]
            if missing:
                waiting += reversed(missing)
            else:
                value = waiting.pop()
                known = [place for place in places if place is not None]
                self._written[id(value)] = known[0] if kind is None else self._node(kind, known)
        last = self._written[id(root)]
        # an equal value may stand elsewhere already
        return self._entries[: last + 1]

    def _parts(self, value: object) -> tuple[int | None, list[object]]:
        """What `value` is written as; a scalar is its own only part."""
        if isinstance(value, tuple):
            return TUPLE, list(value)
        if isinstance(value, Mapping):
            return MAPPING, [part for pair in sorted(value.items()) for part in pair]
        cls = type(value)
        if cls in _KINDS:
            return _KINDS[cls], self._fields_of(value)
        if not _is_leaf(value):
            raise TypeError(f"{cls.__name__} has no plain form")
        return None, [value]

    def _fields_of(self, value: object) -> list[object]:
        cls: Any = type(value)
        parts = [getattr(value, field.name) for field in written_fields(cls)]
        if self._file_name is None:
            parts = [None if isinstance(part, Span) else part for part in parts]
        return parts

    def _place(self, value: object) -> int | None:
        """Where `value` stands; None where it must be written first."""
        if isinstance(value, Span):
            return self._position(value)
        if _is_leaf(value):
            return self._scalar(value)
        return self._written.get(id(value))

    def _scalar(self, value: Any) -> int:
        # -0.0 equals 0.0, and true equals 1
        return self._add((type(value), repr(value)), value, 0)

    def _position(self, span: Span) -> int:
        assert self._file_name is not None
        line, column = span.source.position(span.start)
        parts = (self._file_name(span.source.name), line, column)
        return self._node(POSITION, [self._scalar(part) for part in parts])

    def _node(self, kind: int, places: list[int]) -> int:
        depth = max((self._depths[place] for place in places), default=0)
        depth += kind >= FIRST_CLASS
        if depth > MAX_DEPTH:
            raise TooDeep
        entry = [kind, *places]
        return self._add(tuple(entry), entry, depth)

    def _add(self, key: object, entry: Entry, depth: int) -> int:
        place = self._places.setdefault(key, len(self._entries))
        if place == len(self._entries):
            self._entries.append(entry)
            self._depths.append(depth)
        return place


def _is_leaf(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | Span)


def is_default(entry: Entry, field: Field) -> bool:
    """Does an entry stand for the default of a field?"""
    return entry == [TUPLE] if field.default == () else _same(entry, field.default)


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default
