"""`Truth`: three-valued logic. What cannot be decided is UNKNOWN, and a rule then does not fire."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Truth(Enum):
    FALSE = "false"
    UNKNOWN = "unknown"
    TRUE = "true"

    @staticmethod
    def of(value: bool) -> Truth:
        return Truth.TRUE if value else Truth.FALSE

    def __and__(self, other: Truth) -> Truth:
        if self is Truth.FALSE or other is Truth.FALSE:
            return Truth.FALSE
        return Truth.TRUE if self is other is Truth.TRUE else Truth.UNKNOWN

    def __or__(self, other: Truth) -> Truth:
        if self is Truth.TRUE or other is Truth.TRUE:
            return Truth.TRUE
        return Truth.FALSE if self is other is Truth.FALSE else Truth.UNKNOWN

    def __invert__(self) -> Truth:
        if self is Truth.UNKNOWN:
            return self
        return Truth.of(self is Truth.FALSE)

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false: compare with `is Truth.TRUE`")


def all_of(items: Iterable[Truth]) -> Truth:
    """The conjunction; TRUE of nothing."""
    result = Truth.TRUE
    for item in items:
        result = result & item
    return result


def any_of(items: Iterable[Truth]) -> Truth:
    """The disjunction; FALSE of nothing."""
    result = Truth.FALSE
    for item in items:
        result = result | item
    return result
