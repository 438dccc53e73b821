"""Sequences that are made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast, overload

T_co = TypeVar("T_co", covariant=True)


class Later(Sequence[T_co]):
    """A tuple that is made at the first look.

    `origin` says what it is made from: two of one origin are equal without a look.
    """

    __slots__ = ("_items", "_make", "origin")

    def __init__(self, origin: object, make: Callable[[], tuple[T_co, ...]]) -> None:
        self.origin = origin
        self._make = make
        self._items: tuple[T_co, ...] | None = None

    @property
    def items(self) -> tuple[T_co, ...]:
        """Raises what making it raises, at every look."""
        if self._items is None:
            self._items = self._make()
        return self._items

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Later):
            theirs = cast("Later[object]", other)
            return self.origin == theirs.origin or self.items == theirs.items
        return self.items == other

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return repr(self.items)

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (self.items,)
