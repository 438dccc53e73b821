"""What an expression in a condition or a size stands for: a number, a dtype, a tensor, ..."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fusiondsl.ir.program import ScalarType


class Kind(Enum):
    INT = "an integer"
    FLOAT = "a float"
    BOOL = "a truth value"
    STR = "a string"
    DTYPE = "a dtype"
    LAYER = "a layer"
    NONE = "none"
    TENSOR = "a tensor"
    LIST = "a list"
    SET = "a set"
    UNKNOWN = "unknown"
    """Of something already reported: nothing more is said about it."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A kind; `member` is that of a set's members."""

    kind: Kind
    member: Kind | None = None


_SCALARS = {
    "int": Kind.INT,
    "float": Kind.FLOAT,
    "bool": Kind.BOOL,
    "str": Kind.STR,
    "dtype": Kind.DTYPE,
    "layer": Kind.LAYER,
}


def scalar_kind(name: str) -> Kind:
    return _SCALARS.get(name, Kind.UNKNOWN)


def kind_of_scalar(scalar: ScalarType) -> Kind:
    return Kind.LIST if scalar.is_list else scalar_kind(scalar.kind)


def kind_of_value(value: int | float | str | bool | None) -> Kind:
    match value:
        case None:
            return Kind.NONE
        case bool():
            return Kind.BOOL
        case int():
            return Kind.INT
        case float():
            return Kind.FLOAT
        case str():
            return Kind.STR


NUMBERS = frozenset({Kind.INT, Kind.FLOAT, Kind.UNKNOWN})


def comparable(a: Kind, b: Kind) -> bool:
    """May `a == b` be asked?"""
    if Kind.UNKNOWN in (a, b):
        return True
    if Kind.NONE in (a, b):
        return True
    return a is b or (a in NUMBERS and b in NUMBERS)
