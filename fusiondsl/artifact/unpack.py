"""Programs from bytes that may come from anywhere.

Only the classes of `ir` and `dims.expr` are ever made, and every field is checked against its
declared type, so nothing but a program comes out. A block is checked as a whole before it is made.
Nothing here recurses, and sharing cannot make a small file a large program: depth and size of what
a value stands for are bounded on the way.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial
from itertools import accumulate, islice, repeat
from operator import add, attrgetter, itemgetter, mul, sub
from typing import Any, TypeAlias

from fusiondsl.artifact.kinds import SCALARS, Kind, classes, kinds
from fusiondsl.artifact.plain import MAX_DEPTH, Damaged
from fusiondsl.diagnostics.source import Place, Span
from fusiondsl.pause import collection_paused

MAX_PARTS = 1 << 24
"""Values of a program where each is counted wherever it is used."""

MAX_WORK = 1 << 30
"""The same of all values that are made, which bounds what looking through them takes."""

_SHARED = 1 << 12
"""Names of one class that all programs of a process share: what is one object is equal at once."""

_HEAD = 2
_NUMBER = 4


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


# --- blocks ------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Block:
    """What is known of values that were made together."""

    kind: Kind
    depth: int = 0
    """Instances inside each other, at most."""


_KIND, _DEPTH = attrgetter("kind"), attrgetter("depth")
_SCALARS = {cls: _Block(kind) for cls, kind in SCALARS.items()}


class _Reader:
    def __init__(self, scalars: list[Any]) -> None:
        if not _SCALARS.keys() >= set(map(type, scalars)):
            raise Damaged("a value is an object or a list")
        self._values = scalars
        self._blocks = list(map(_SCALARS.__getitem__, map(type, scalars)))
        """Of the values."""
        self._sizes = [1] * len(scalars)
        """How many values each stands for, all of them counted wherever they are used."""
        self._work = 0

    def read(self, numbers: Sequence[int]) -> object:
        at = 0
        while at < len(numbers):
            kind, count = _head(numbers, at)
            at += _HEAD
            lengths: Sequence[int] = ()
            if kind.is_open:
                lengths = numbers[at : at + count]
                at += count
            end = at + len(kind.columns) * (sum(lengths) if kind.is_open else count)
            if end > len(numbers):
                raise Damaged("it ends inside a block")
            try:
                self._make(kind, count, lengths, numbers[at:end])
            except IndexError:
                raise Damaged("a value stands before its parts") from None
            at = end
        if not self._values:
            raise Damaged("there are no values")
        return self._values[-1]

    def _make(self, kind: Kind, count: int, lengths: Sequence[int], cells: Sequence[int]) -> None:
        if kind.cls is Span:
            self._blocks += repeat(_SPAN, count)
            self._sizes += repeat(1, count)
            self._values += _positions(self._values, cells)
            return
        maker, at = _maker(kind), _getter(cells)
        self._blocks += repeat(maker.block(at(self._blocks)), count)
        self._sizes += self._bounded(_sizes(kind, at(self._sizes), count, lengths))
        self._values += maker.make(at(self._values), count, lengths)

    def _bounded(self, sizes: list[int]) -> list[int]:
        if max(sizes) > MAX_PARTS:
            raise Damaged(f"it has more than {MAX_PARTS:,} parts")
        self._work += sum(sizes)
        if self._work > MAX_WORK:
            raise Damaged("its values stand for more than a program has")
        return sizes


def _head(numbers: Sequence[int], at: int) -> tuple[Kind, int]:
    """The kind of the block there, and how many values it has."""
    if at + _HEAD > len(numbers):
        raise Damaged("it ends inside a block")
    number, count = numbers[at : at + _HEAD]
    if number >= len(kinds()):
        raise Damaged("a value is of an unknown kind")
    kind = kinds()[number]
    if not count or (count > 1 and not kind.columns):
        raise Damaged("a block has no values, or many of nothing")
    return kind, count


def _getter(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Takes what stands at the places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple([items[place] for place in places])


def _sizes(kind: Kind, parts: Sequence[int], count: int, lengths: Sequence[int]) -> list[int]:
    """Of the values of a block, from those of their parts."""
    width = len(kind.columns)
    until = list(accumulate(parts, initial=0))
    if kind.is_open:
        ends = accumulate(map(mul, lengths, repeat(width)), initial=0)
        bounds = list(map(until.__getitem__, ends))
    elif width:
        bounds = until[::width]
    else:
        return [1] * count
    return list(map(add, map(sub, bounds[1:], bounds), repeat(1)))


# --- what is known of them -----------------------------------------------------------------------

_SPAN = _Block(classes()[Span])


class _Maker:
    """Checks and makes the values of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._columns = [(column.name, {*column.kinds.values()}) for column in kind.columns]
        self.make = _make(kind)

    def block(self, parts: Sequence[_Block]) -> _Block:
        """Of values with such parts; raises `Damaged` where one stands where it cannot."""
        depth, width = 0, len(self._columns)
        for number, (name, allowed) in enumerate(self._columns):
            found = {*parts[number::width]}
            if not allowed.issuperset(map(_KIND, found)):
                owner = self._kind.cls.__name__
                raise Damaged(f"{owner}.{name} has a value of the wrong kind")
            depth = max([depth, *map(_DEPTH, found)])
        depth += self._kind.is_instance
        if depth > MAX_DEPTH:
            raise Damaged("nested too deeply")
        return _Block(self._kind, depth)


_maker = cache(_Maker)


# --- values --------------------------------------------------------------------------------------

_Values: TypeAlias = tuple[Any, ...]
_Make: TypeAlias = Callable[[_Values, int, Sequence[int]], Iterable[Any]]
"""From all cells of a block, how many values it has, and the numbers of their items."""


def _make(kind: Kind) -> _Make:
    if kind.cls is dict:
        return _mappings
    if kind.is_open:
        return _tuples
    if kind.cls is tuple:
        return partial(_rows, len(kind.columns))
    if [column.kinds.keys() for column in kind.columns] == [{str}]:
        return partial(_names, lru_cache(_SHARED)(kind.cls))
    names = [column.name for column in kind.columns]
    others = [field for field in fields(kind.cls) if field.name not in names]
    setters = [_setter(kind.cls, name) for name in (*names, *[field.name for field in others])]
    return partial(_instances, kind.cls, setters, [repeat(field.default) for field in others])


def _tuples(cells: _Values, count: int, lengths: Sequence[int]) -> Iterable[Any]:
    ends = list(accumulate(lengths, initial=0))
    return map(cells.__getitem__, map(slice, ends, ends[1:]))


def _mappings(cells: _Values, count: int, lengths: Sequence[int]) -> Iterable[Any]:
    pairs = zip(cells[::2], cells[1::2], strict=True)
    for length in lengths:
        made = dict(islice(pairs, length))
        if len(made) != length:
            raise Damaged("a mapping has a name twice")
        yield made


def _rows(width: int, cells: _Values, count: int, lengths: Sequence[int]) -> Iterable[Any]:
    return zip(*repeat(iter(cells), width), strict=True)


def _names(
    cls: Callable[[str], Any], cells: _Values, count: int, lengths: Sequence[int]
) -> Iterable[Any]:
    return map(cls, cells)


_Setter: TypeAlias = Callable[[Any, Any], None]


def _setter(cls: type, name: str) -> _Setter:
    """Sets a field of a frozen instance: what its `__init__` does field by field, in Python."""
    setter: _Setter = vars(cls)[name].__set__
    return setter


def _instances(
    cls: type,
    setters: Sequence[_Setter],
    defaults: Sequence[Iterable[Any]],
    cells: _Values,
    count: int,
    lengths: Sequence[int],
) -> list[Any]:
    width = len(setters) - len(defaults)
    columns = [*[cells[number::width] for number in range(width)], *defaults]
    return _set(cls, count, setters, columns)


def _set(
    cls: type, count: int, setters: Iterable[_Setter], columns: Iterable[Iterable[Any]]
) -> list[Any]:
    made: list[Any] = list(map(object.__new__, repeat(cls, count)))
    for setter, column in zip(setters, columns, strict=True):
        deque(map(setter, made, column), maxlen=0)
    return made


_SPAN_SETTERS = [_setter(Span, field.name) for field in fields(Span)]


def _positions(values: Sequence[Any], cells: Sequence[int]) -> list[Any]:
    files, lines, columns = cells[::3], cells[1::3], cells[2::3]
    names = {file: values[file] for file in set(files)}
    if 0 in lines or 0 in columns or not all(type(name) is str for name in names.values()):
        raise Damaged("a position is not a file, a line and a column")
    places = {file: Place(name) for file, name in names.items()}
    offsets = Place.offsets(lines, columns)
    parts = [places[file] for file in files], offsets, offsets
    return _set(Span, len(files), _SPAN_SETTERS, parts)
