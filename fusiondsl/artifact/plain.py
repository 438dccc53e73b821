"""Programs as plain data: the dataclasses of `ir` and `dims.expr` to and from JSON values.

A class is written as an object with its name under `is` and the fields that differ from their
default. Only the classes listed here are ever built, and every field is checked against its
declared type, so data from anywhere can make nothing but a program.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from fusiondsl import ir
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.dims import expr

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_EXPRESSIONS: tuple[type, ...] = (
    expr.Literal,
    expr.Name,
    expr.Wildcard,
    expr.Ellipsis_,
    expr.Unary,
    expr.Binary,
    expr.Keyword,
    expr.Method,
    expr.Slice,
    expr.Subscript,
    expr.Sequence,
    expr.Spread,
    expr.DType,
)
_PROGRAM: tuple[type, ...] = (
    ir.TensorType,
    ir.ScalarType,
    ir.Ref,
    ir.Const,
    ir.Anything,
    ir.Computed,
    ir.Unrounded,
    ir.ListOf,
    ir.Call,
    ir.Branch,
    ir.Param,
    ir.Result,
    ir.Condition,
    ir.Difference,
    ir.Form,
    ir.Impl,
    ir.Effect,
    ir.OpDecl,
    ir.Example,
    ir.Rule,
    ir.TableRow,
    ir.Table,
    ir.Program,
)
# `Call` is a class of both modules
_NAMES: dict[type, str] = {cls: cls.__name__ for cls in _EXPRESSIONS + _PROGRAM}
_NAMES[expr.Call] = "CallExpr"
_CLASSES = {name: cls for cls, name in _NAMES.items()}

_SPAN = "at"
"""Positions are lists of file, line and column of the start; those inside expressions are left
out, nothing reports them once a program is checked."""


class Damaged(Exception):
    """Data that is no program; the message says where it goes wrong."""


# --- to plain data -----------------------------------------------------------------------------


def encode(value: object, file_name: Callable[[str], str] | None = str) -> Json:
    """Plain data for a value of the classes above.

    `file_name` renames the files of positions; with None, positions are left out.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [encode(item, file_name) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item, file_name) for key, item in value.items()}
    cls: type = type(value)
    name = _NAMES.get(cls)
    if name is None:
        raise TypeError(f"{cls.__name__} has no plain form")
    data: dict[str, Json] = {"is": name}
    for item in _fields(cls).values():
        part = getattr(value, item.name)
        if isinstance(part, Span):
            if cls in _PROGRAM and file_name is not None:
                data[_SPAN] = _position(part, file_name)
        elif item.name not in ("span", "func_span") and not _same(part, item.default):
            data[item.name] = encode(part, file_name)
    return data


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def _position(span: Span, file_name: Callable[[str], str]) -> Json:
    line, column = span.source.position(span.start)
    return [file_name(span.source.name), line, column]


# --- from plain data ---------------------------------------------------------------------------


def decode(data: Json) -> object:
    """What `encode` was given; raises `Damaged` for anything it does not write."""
    return _Decoder(_positions(data)).value(data)


class _Decoder:
    def __init__(self, positions: Iterable[tuple[str, int, int]]) -> None:
        self.sources = _blank_sources(positions)

    def value(self, data: Json) -> object:
        if isinstance(data, list):
            return tuple(self.value(item) for item in data)
        if not isinstance(data, dict):
            return data
        name = data.get("is")
        if not isinstance(name, str):  # a mapping, which may well have a key `is`
            return {key: self.value(item) for key, item in data.items()}
        if name not in _CLASSES:
            raise Damaged(f"unknown class {name[:40]!r}")
        return self.instance(_CLASSES[name], data)

    def instance(self, cls: type, data: dict[str, Json]) -> object:
        known, hints = _fields(cls), _hints(cls)
        values: dict[str, object] = {}
        for key, item in data.items():
            if key in ("is", _SPAN):
                continue
            if key not in known:
                raise Damaged(f"{cls.__name__} has no field {key!r}")
            values[key] = self.value(item)
            if not _fits(values[key], hints[key]):
                raise Damaged(f"{cls.__name__}.{key} has a value of the wrong kind")
        for key, field in known.items():
            if key not in values and _required(field):
                raise Damaged(f"{cls.__name__} lacks its field {key!r}")
        if _SPAN in data and "span" in known:
            values["span"] = self.span(data[_SPAN])
        built: object = cls(**values)
        return built

    def span(self, data: Json) -> Span:
        name, line, column = _checked_position(data)
        source, starts = self.sources[name]
        start = starts[line - 1] + column - 1
        return Span(source, start, start)


@cache
def _fields(cls: type) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(cls)}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _fits(value: object, hint: Any) -> bool:
    """Is a decoded value of the annotated type? Instances were checked when they were built."""
    origin, args = _parts(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, args)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, args[1]) for v in value.values())
    if hint is None or hint is type(None):
        return value is None
    # `true` is an int to Python, and is none to us
    return type(value) is hint


def _items_fit(items: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_fits(item, hints[0]) for item in items)
    return len(items) == len(hints) and all(map(_fits, items, hints))


# --- positions ---------------------------------------------------------------------------------

_LARGEST = 1 << 20


def _positions(data: Json) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            if _SPAN in item and isinstance(item.get("is"), str):
                found.append(_checked_position(item[_SPAN]))
            waiting.extend(item.values())
    return found


def _checked_position(data: Json) -> tuple[str, int, int]:
    match data:
        case [str(name), int(line), int(column)]:
            if 0 < line <= _LARGEST and 0 < column <= _LARGEST:
                return name, line, column
    raise Damaged("a position is not a file, a line and a column")


def _blank_sources(
    positions: Iterable[tuple[str, int, int]],
) -> dict[str, tuple[Source, list[int]]]:
    """For every file, a text of blanks in which the recorded positions exist, and its line starts.

    The artifact holds no source text, but a diagnostic about a loaded rule still says where.
    """
    widths: dict[str, dict[int, int]] = {}
    for name, line, column in positions:
        lines = widths.setdefault(name, {})
        lines[line] = max(column, lines.get(line, 0))
    return {name: _blank_source(name, lines) for name, lines in widths.items()}


def _blank_source(name: str, widths: Mapping[int, int]) -> tuple[Source, list[int]]:
    lines = [" " * widths.get(number, 0) for number in range(1, max(widths) + 1)]
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    return Source(name, "\n".join(lines)), starts
