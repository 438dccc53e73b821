"""Programs as plain data: the dataclasses of `ir` and `dims.expr` to and from a list of numbers.

Every distinct value stands once, after its parts, and is referred to by its place:

    "tokens"                a text, a number, true, false or null: itself
    [0, 3, 4]               a tuple
    [1, 3, 4, 5, 6]         a mapping, keys and values in turn
    [2, 3, 12, 5]           a position: file, line and column
    [9, 3, 7]               an instance of a class, its fields in order; the rest are defaults

Only the classes of the two modules are ever built, and every field is checked against its declared
type, so data from anywhere can make nothing but a program. Reading is one loop over the list: it
cannot recurse, and sharing cannot make a small file a large program, since the size and the depth
of what a value stands for are counted as it is built.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from fusiondsl import ir
from fusiondsl.diagnostics.source import Place, Span
from fusiondsl.dims import expr
from fusiondsl.pause import collection_paused
from fusiondsl.syntax.limits import MAX_NESTING

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Scalar: TypeAlias = "str | int | float | bool | None"
Entry: TypeAlias = "Scalar | list[int]"

MAX_DEPTH = MAX_NESTING + 50
"""Instances inside each other: the deepest expression that is read from text, and what is around
it."""
MAX_PARTS = 1 << 24
"""Values of a program where each is counted wherever it is used."""

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
        written = written_fields(cls)
        parts = [getattr(value, field.name) for field in written]
        if self._file_name is None:
            parts = [None if isinstance(part, Span) else part for part in parts]
        while parts and _same(parts[-1], written[len(parts) - 1].default):
            parts.pop()
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


# --- from plain data ---------------------------------------------------------------------------


def decode(entries: object) -> object:
    """What `encode` was given; raises `Damaged` for anything it does not write."""
    if not isinstance(entries, list) or not entries:
        raise Damaged("there are no values")
    with collection_paused():
        return _Decoder().read(entries)


class _Decoder:
    def __init__(self) -> None:
        self._makers = (_tuple, _mapping, self._position, *map(_maker, CLASSES))
        self._files: dict[str, Place] = {}

    def read(self, entries: list[Any]) -> object:
        _check_places(entries)
        makers, values, sizes, depths = self._makers, list[Any](), list[int](), list[int]()
        value_of, size_of, depth_of = (x.__getitem__ for x in (values, sizes, depths))
        try:
            for entry in entries:
                size, depth, value = 1, 0, entry
                if type(entry) is list:
                    kind, places = entry[0], entry[1:]
                    size += sum(map(size_of, places))
                    if places and kind != POSITION:
                        depth = max(map(depth_of, places)) + (kind >= FIRST_CLASS)
                    if depth > MAX_DEPTH or size > MAX_PARTS:
                        raise Damaged(_beyond(depth))
                    value = makers[kind](list(map(value_of, places)))
                values.append(value)
                sizes.append(size)
                depths.append(depth)
        except IndexError:
            raise Damaged("a value stands before its parts, or is of an unknown class") from None
        return values[-1]

    def _position(self, parts: list[Any]) -> Span:
        if list(map(type, parts)) != [str, int, int]:
            raise Damaged(_NO_POSITION)
        name, line, column = parts
        file = self._files.get(name) or self._files.setdefault(name, Place(name))
        if not file.holds(line, column):
            raise Damaged(_NO_POSITION)
        return file.span(line, column)


_INTEGERS = {int}
_NO_POSITION = "a position is not a file, a line and a column"


def _check_places(entries: list[Any]) -> None:
    """Every list is made of numbers that count from the start of something."""
    lists = [entry for entry in entries if type(entry) is list]
    numbers = list(chain.from_iterable(lists))
    if not all(lists) or not set(map(type, numbers)) <= _INTEGERS or min(numbers, default=0) < 0:
        raise Damaged("a value is not made of places")
    if dict in set(map(type, entries)):
        raise Damaged("a value is an object")


def _beyond(depth: int) -> str:
    return "nested too deeply" if depth > MAX_DEPTH else f"it has more than {MAX_PARTS:,} parts"


def _tuple(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(parts)


def _mapping(parts: list[Any]) -> dict[str, object]:
    keys, values = parts[::2], parts[1::2]
    if len(keys) != len(values) or not all(type(key) is str for key in keys):
        raise Damaged("a mapping is not from names to values")
    made = dict(zip(keys, values, strict=True))
    if len(made) != len(keys):
        raise Damaged("a mapping has a name twice")
    return made


@cache
def _maker(cls: type) -> Callable[[list[Any]], object]:
    """Builds instances of `cls` from fields of the declared types."""
    checks, required = _checks(cls)

    def make(parts: list[Any]) -> object:
        if not required <= len(parts) <= len(checks):
            raise Damaged(f"{cls.__name__} has {len(parts)} fields")
        for part, check in zip(parts, checks, strict=False):
            inner = check.get(type(part), _misfit)
            if inner is not None and not inner(part):
                raise Damaged(f"{cls.__name__}.{_misfitting(parts)} has a value of the wrong kind")
        return cls(*parts)

    def _misfitting(parts: list[Any]) -> str:
        pairs = zip(written_fields(cls), parts, checks, strict=False)
        return next(field.name for field, part, check in pairs if not _fits(part, check))

    return make


# --- types -------------------------------------------------------------------------------------

_Check: TypeAlias = "dict[type, Callable[[Any], bool] | None]"
"""The classes a value may have, exactly; what is further asked of its parts. `true` is an int to
Python, and is none to us."""


def _misfit(value: object) -> bool:
    return False


@cache
def _checks(cls: type) -> tuple[tuple[_Check, ...], int]:
    """A check for each field, and how many fields are always written."""
    hints = get_type_hints(cls)
    places = [n for n, field in enumerate(written_fields(cls), 1) if field.default is MISSING]
    return tuple(_check(hints[field.name]) for field in written_fields(cls)), max(places, default=0)


def _check(hint: Any) -> _Check:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {cls: inner for arg in args for cls, inner in _check(arg).items()}
    if origin is tuple and args[1:] == (Ellipsis,):
        return {tuple: _all(_check(args[0]))}
    if origin is tuple:
        return {tuple: _each([_check(arg) for arg in args])}
    if origin is dict:
        every = _all(_check(args[1]))
        return {dict: lambda value: every(value.values())}
    return {type(None) if hint is None else hint: None}


def _all(check: _Check) -> Callable[[Iterable[object]], bool]:
    if not any(check.values()):
        return lambda value: check.keys() >= set(map(type, value))
    return lambda value: all(_fits(item, check) for item in value)


def _each(checks: list[_Check]) -> Callable[[tuple[object, ...]], bool]:
    return lambda value: len(value) == len(checks) and all(map(_fits, value, checks))


def _fits(value: object, check: _Check) -> bool:
    inner = check.get(type(value), _misfit)
    return inner is None or inner(value)
