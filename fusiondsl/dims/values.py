"""The values of conditions and dimension expressions, and the verdict on a condition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from fusiondsl.dims.dim import Dim
from fusiondsl.dims.expr import DType
from fusiondsl.dims.truth import Truth


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known; `cause` is a sentence that says why, empty in a scope."""

    cause: str = ""


UNKNOWN_VALUE: Final = Unknown()
"""For a scope: the name exists, its value is not known."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """An expression that has no value: a division by zero, the wrong kind of operand."""

    message: str


class Presence(Enum):
    """A value conditions see only as being there: a tensor, an opaque `layer`."""

    PRESENT = "present"


PRESENT: Final = Presence.PRESENT

Value: TypeAlias = (
    Dim
    | int
    | bool
    | float
    | str
    | DType
    | Truth
    | Presence
    | Unknown
    | Invalid
    | tuple["Value", ...]
    | None
)
"""Whole numbers may enter a scope as `int`; results of `evaluate` are always `Dim`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    truth: Truth
    reason: str
    """A sentence that names the values used; empty when TRUE."""


def as_dim(value: Value) -> Dim | None:
    """The whole number a value is, None for any other kind; `true` is no number."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Dim.const(value)
    return None


def kind_of(value: Value) -> str:
    """How diagnostics call the kind of a value."""
    if isinstance(value, bool | Truth):
        return "a condition"
    for kind, text in _KINDS:
        if isinstance(value, kind):
            return text
    return "none"


_KINDS: tuple[tuple[type, str], ...] = (
    (Dim, "an integer"),
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (DType, "a dtype"),
    (tuple, "a list"),
    (Presence, "a tensor"),
    (Unknown, "unknown"),
    (Invalid, "invalid"),
)


def show(value: Value) -> str:
    """A value as the language writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))})"
    if isinstance(value, Truth | Presence):
        return str(value.value)
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Invalid):
        return value.message
    return str(value)
