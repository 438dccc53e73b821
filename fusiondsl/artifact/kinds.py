"""What programs are made of, read off the annotations of `ir`.

A class is a kind, and so is each type of tuple or mapping that a field is declared to have: what
`tuple[Operand, ...]` may hold is another question than what `tuple[Expr, ...]` may. Values of one
kind are written side by side, so that whole columns of them are checked at once.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from fusiondsl import ir
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims import expr

_UNREPORTED = ("span", "func_span")
"""Positions inside expressions, which nothing reports once a program is checked."""
_TESTS = ("expects",)
"""What graphs beside the rule files are held to: it says nothing about what rules do."""

_Part: TypeAlias = "tuple[str, Any, object]"
"""Name, annotation and default of a column."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    name: str
    kinds: Mapping[type, Kind]
    """What may stand there, by class, exactly: `true` is an int to Python, and is none to us."""
    default: object
    """`MISSING` where a value is required."""


@dataclass(slots=True, eq=False)
class Kind:
    """Values that are written alike."""

    cls: type
    is_open: bool = False
    """A value is any number of rows and not one: the items of a tuple or mapping."""
    columns: tuple[Column, ...] = ()
    """Of a row. Set when the kind is known already, as a value may have parts of its own kind."""
    number: int = -1
    """Its place among `kinds()`; scalars have none."""

    @property
    def is_instance(self) -> bool:
        return self.cls is not tuple and self.cls is not dict


SCALARS = {cls: Kind(cls) for cls in (str, int, float, bool, type(None))}


@cache
def kinds() -> tuple[Kind, ...]:
    """All that there are in a program, parts before what they are parts of as far as can be."""
    return _Finder().found_in(ir.Program, ir.Aside)


@cache
def classes() -> Mapping[type, Kind]:
    """Those that are classes of their own."""
    return {kind.cls: kind for kind in kinds() if kind.is_instance}


@cache
def layout() -> str:
    """Names the kinds and what they are made of: data of another layout cannot be read."""
    described = [
        (
            kind.cls.__name__,
            kind.is_open,
            [
                (column.name, sorted((cls.__name__, k.number) for cls, k in column.kinds.items()))
                for column in kind.columns
            ],
        )
        for kind in kinds()
    ]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


class _Finder:
    def __init__(self) -> None:
        self._known: dict[Any, Kind] = {**SCALARS}
        """By annotation."""
        self._found: list[Kind] = []

    def found_in(self, *classes: type) -> tuple[Kind, ...]:
        for cls in classes:
            self._kind(cls)
        return tuple(self._found)

    def _kind(self, hint: Any) -> Kind:
        if get_origin(hint) is Sequence:
            hint = types.GenericAlias(tuple, (*get_args(hint), ...))
        if hint not in self._known:
            cls = get_origin(hint) or hint
            made = self._known[hint] = Kind(cls, cls is dict or Ellipsis in get_args(hint))
            made.columns = tuple([self._column(*part) for part in _parts(cls, get_args(hint))])
            made.number = len(self._found)
            self._found.append(made)
        return self._known[hint]

    def _column(self, name: str, hint: Any, default: object) -> Column:
        found = [self._kind(one) for one in _alternatives(hint)]
        kinds = {kind.cls: kind for kind in found}
        assert len(kinds) == len(found), f"two kinds of one class in {hint}"
        return Column(name, kinds, default)


def _alternatives(hint: Any) -> Iterable[Any]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _parts(cls: Any, args: tuple[Any, ...]) -> Iterator[_Part]:
    """The columns of a class, tuple or mapping."""
    if cls is Span:
        yield from (("file", str, MISSING), ("line", int, MISSING), ("column", int, MISSING))
    elif cls is dict:
        yield from (("name", args[0], MISSING), ("value", args[1], MISSING))
    elif cls is tuple:
        yield from (("item", arg, MISSING) for arg in args if arg is not Ellipsis)
    else:
        hints = get_type_hints(cls)
        unwritten = _UNREPORTED if cls.__module__ == expr.__name__ else _TESTS
        for field in fields(cls):
            if field.name not in unwritten:
                yield field.name, hints[field.name], field.default
