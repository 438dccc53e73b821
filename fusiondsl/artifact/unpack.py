"""Programs from bytes that may come from anywhere.

Only the classes of `ir` and `dims.expr` are ever made, and every field is checked against its
declared type, so nothing but a program comes out. A block is checked as a whole before it is made.
Nothing here recurses, and sharing cannot make a small file a large program: depth and size of what
a value stands for are bounded on the way.
"""

from __future__ import annotations

import json
import struct
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from fusiondsl.artifact.plain import (
    CLASSES,
    FIRST_CLASS,
    MAPPING,
    MAX_DEPTH,
    POSITION,
    TUPLE,
    Damaged,
    written_fields,
)
from fusiondsl.diagnostics.source import Place, Span
from fusiondsl.pause import collection_paused

MAX_PARTS = 1 << 24
"""Values of a program where each is counted wherever it is used."""

MAX_WORK = 1 << 30
"""The same of all values that are made, which bounds what looking through them takes."""

_SHARED = 1 << 12
"""Names of one class that all programs of a process share: what is one object is equal at once."""

_HEAD = 3
_NUMBER = 4
_NO_POSITION = "a position is not a file, a line and a column"


def unpack(data: bytes) -> object:
    """What was packed; raises `Damaged` for anything that is not written."""
    line, _, table = data.partition(b"\n")
    scalars = json.loads(line)
    if not isinstance(scalars, list):
        raise Damaged("there are no values")
    if len(table) % _NUMBER:
        raise Damaged("it ends inside a number")
    with collection_paused():
        return _Reader(scalars).read(struct.unpack(f"<{len(table) // _NUMBER}I", table))


# --- kinds -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Kind:
    """What is known of the instances of a block, or of all tuples with items of the same kinds."""

    cls: type
    items: tuple[_Kind, ...] = ()
    """Of a tuple; of a mapping, those of its values."""
    depth: int = 0
    """Instances inside each other, at most."""
    size: int = 1
    """Values it stands for, at most, each counted wherever it is used."""
    distinct: frozenset[_Kind] = frozenset()
    """The items, each once."""

    def __post_init__(self) -> None:
        if self.depth > MAX_DEPTH:
            raise Damaged("nested too deeply")
        if self.size > MAX_PARTS:
            raise Damaged(f"it has more than {MAX_PARTS:,} parts")


_SCALARS = {cls: _Kind(cls) for cls in (str, int, float, bool, type(None))}
_SPAN = _Kind(Span)


def _container(cls: type, items: tuple[_Kind, ...]) -> _Kind:
    depth, size = 0, 1
    for item in items:
        size += item.size
        if item.depth > depth:
            depth = item.depth
    return _Kind(cls, items, depth, size, frozenset(items))


# --- blocks ------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, scalars: list[Any]) -> None:
        if not _SCALARS.keys() >= set(map(type, scalars)):
            raise Damaged("a value is an object or a list")
        self._values = scalars
        self._kinds = [_SCALARS[type(value)] for value in scalars]
        self._tuples: dict[tuple[_Kind, ...], _Kind] = {}
        self._files: dict[str, Place] = {}
        self._work = 0

    def read(self, numbers: Sequence[int]) -> object:
        at = 0
        while at < len(numbers):
            kind, rows, width = _head(numbers, at)
            end = at + _HEAD + rows * width
            cells = numbers[at + _HEAD : end]
            if max(cells[::width] if kind == POSITION else cells, default=-1) >= len(self._values):
                raise Damaged("a value stands before its parts")
            made = len(self._kinds)
            self._make(kind, rows, width, cells)
            self._work += sum([kind.size for kind in self._kinds[made:]])
            if self._work > MAX_WORK:
                raise Damaged("its values stand for more than a program has")
            at = end
        if not self._values:
            raise Damaged("there are no values")
        return self._values[-1]

    def _make(self, kind: int, rows: int, width: int, cells: Sequence[int]) -> None:
        if kind == POSITION:
            self._make_positions(width, cells)
            return
        kinds, values = _at(cells, self._kinds), _at(cells, self._values)
        if kind == TUPLE:
            self._kinds += self._tuple_kinds(list(_in_rows(width, kinds)))
            self._values += _in_rows(width, values)
        elif kind == MAPPING:
            self._kinds += [_container(dict, row[1::2]) for row in _in_rows(width, kinds)]
            self._values += map(_mapping, _in_rows(width, values))
        else:
            builder = _builder(kind)
            self._kinds += repeat(builder.kind([kinds[n::width] for n in range(width)]), rows)
            self._values += builder.make(rows, [values[n::width] for n in range(width)])

    def _tuple_kinds(self, rows: Sequence[tuple[_Kind, ...]]) -> Iterable[_Kind]:
        for items in set(rows).difference(self._tuples):
            self._tuples[items] = _container(tuple, items)
        return map(self._tuples.__getitem__, rows)

    def _make_positions(self, width: int, cells: Sequence[int]) -> None:
        if width != len(fields(Span)):
            raise Damaged(_NO_POSITION)
        files, lines, columns = (cells[n::width] for n in range(width))
        if 0 in lines or 0 in columns:
            raise Damaged(_NO_POSITION)
        places = {file: self._place(self._values[file]) for file in set(files)}
        offsets = Place.offsets(lines, columns)
        parts = [places[file] for file in files], offsets, offsets
        self._values += _instances(Span, _SPAN_SETTERS, len(files), parts)
        self._kinds += repeat(_SPAN, len(files))

    def _place(self, name: object) -> Place:
        if not isinstance(name, str):
            raise Damaged(_NO_POSITION)
        return self._files.get(name) or self._files.setdefault(name, Place(name))


def _head(numbers: Sequence[int], at: int) -> tuple[int, int, int]:
    """Kind, rows and width of the block there."""
    if at + _HEAD > len(numbers):
        raise Damaged("it ends inside a block")
    kind, rows, width = numbers[at : at + _HEAD]
    if kind >= FIRST_CLASS + len(CLASSES):
        raise Damaged("a value is of an unknown class")
    if not rows or (rows > 1 and not width):
        raise Damaged("a block has no rows, or rows of nothing")
    if at + _HEAD + rows * width > len(numbers):
        raise Damaged("it ends inside a block")
    return kind, rows, width


def _at(places: Sequence[int], items: Sequence[Any]) -> tuple[Any, ...]:
    if len(places) > 1:
        found: tuple[Any, ...] = itemgetter(*places)(items)
        return found
    return tuple(items[place] for place in places)


def _in_rows(width: int, cells: Iterable[Any]) -> Iterable[tuple[Any, ...]]:
    return zip(*repeat(iter(cells), width), strict=True) if width else [()]


def _mapping(row: Sequence[Any]) -> dict[str, object]:
    keys, values = row[::2], row[1::2]
    if len(keys) != len(values) or not all(type(key) is str for key in keys):
        raise Damaged("a mapping is not from names to values")
    made = dict(zip(keys, values, strict=True))
    if len(made) != len(keys):
        raise Damaged("a mapping has a name twice")
    return made


# --- instances ---------------------------------------------------------------------------------

_Setter: TypeAlias = Callable[[Any, Any], None]


def _setter(cls: type, name: str) -> _Setter:
    """Sets a field of a frozen instance: what its `__init__` does field by field, in Python."""
    setter: _Setter = vars(cls)[name].__set__
    return setter


_SPAN_SETTERS = [_setter(Span, field.name) for field in fields(Span)]


def _instances(
    cls: type, setters: Iterable[_Setter], rows: int, columns: Iterable[Iterable[Any]]
) -> list[Any]:
    made: list[Any] = list(map(object.__new__, repeat(cls, rows)))
    for setter, column in zip(setters, columns, strict=True):
        deque(map(setter, made, column), maxlen=0)
    return made


class _Builder:
    """Checks and makes instances of one class."""

    def __init__(self, cls: type) -> None:
        written = written_fields(cls)
        names = [field.name for field in written]
        others = [field for field in fields(cls) if field.name not in names]
        hints = get_type_hints(cls)
        checks = [(name, _check(hints[name])) for name in names]
        self._cls = cls
        self._checks = [(name, check, _plain(check)) for name, check in checks]
        self._setters = [_setter(cls, name) for name in (*names, *(f.name for f in others))]
        self._defaults = [repeat(field.default) for field in others]
        is_name = [check.keys() for _, check in checks] == [{str}]
        self._named: Callable[[Any], Any] | None = lru_cache(_SHARED)(cls) if is_name else None

    def kind(self, columns: Sequence[Sequence[_Kind]]) -> _Kind:
        """Of instances with such fields; raises `Damaged` where a field cannot have such values."""
        if len(columns) != len(self._checks):
            raise Damaged(f"{self._cls.__name__} has {len(columns)} fields")
        depth, size = 0, 1
        for (name, check, scalars), column in zip(self._checks, columns, strict=True):
            others = set(column) - scalars
            largest = 1
            for kind in others:
                if not _fits(kind, check):
                    raise Damaged(f"{self._cls.__name__}.{name} has a value of the wrong kind")
                if kind.depth > depth:
                    depth = kind.depth
                if kind.size > largest:
                    largest = kind.size
            size += largest
        return _Kind(self._cls, (), depth + 1, size)

    def make(self, rows: int, columns: Sequence[Iterable[Any]]) -> Iterable[Any]:
        if self._named is not None:
            return map(self._named, *columns)
        return _instances(self._cls, self._setters, rows, [*columns, *self._defaults])


@cache
def _builder(number: int) -> _Builder:
    return _Builder(CLASSES[number - FIRST_CLASS])


# --- types -------------------------------------------------------------------------------------

_Check: TypeAlias = "dict[type, Callable[[_Kind], bool] | None]"
"""The classes a value may have, exactly; what is further asked of its items. `true` is an int to
Python, and is none to us."""


def _misfit(kind: _Kind) -> bool:
    return False


def _fits(kind: _Kind, check: _Check) -> bool:
    inner = check.get(kind.cls, _misfit)
    return inner is None or inner(kind)


def _plain(check: _Check) -> frozenset[_Kind]:
    """The scalars and the positions among what fits."""
    return frozenset([kind for kind in (*_SCALARS.values(), _SPAN) if _fits(kind, check)])


def _check(hint: Any) -> _Check:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {cls: inner for arg in args for cls, inner in _check(arg).items()}
    if origin is tuple and args[1:] == (Ellipsis,):
        return {tuple: _all(_check(args[0]))}
    if origin is tuple:
        return {tuple: _each([_check(arg) for arg in args])}
    if origin is dict:
        return {dict: _all(_check(args[1]))}
    return {type(None) if hint is None else hint: None}


def _all(check: _Check) -> Callable[[_Kind], bool]:
    plain = _plain(check)
    return lambda kind: all(_fits(item, check) for item in kind.distinct - plain)


def _each(checks: list[_Check]) -> Callable[[_Kind], bool]:
    return lambda kind: len(kind.items) == len(checks) and all(map(_fits, kind.items, checks))
