"""Numbers for what is known of tensors: two tensors have one number exactly if that is equal.

A verdict hangs on dtypes, shapes, strides and devices of many tensors. Numbers make the key of a
site a tuple of ints, which hashes and compares at C speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, TypeAlias

import torch

from fusiondsl.engine.symbols import device_of, size_of


class Numbers:
    """Numbers of one set of rules, the same from graph to graph."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._fresh = count()

    def of(self, item: Any) -> int:
        number = self._known.get(item)
        if number is None:
            number = self._known[item] = next(self._fresh)
        return number

    def forget(self) -> None:
        """Drops everything; no number is given out twice."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)


_Known: TypeAlias = tuple[torch.Tensor, int]


class Signatures:
    """The tensors of one graph, each read once. Symbolic sizes are never compared or converted."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        # By id: hashing a fake tensor or a sympy expression runs Python code. What an id stands for
        # is kept beside its number, so that the id stays its own.
        self._read: tuple[dict[int, _Known], dict[int, _Known]] = ({}, {})
        """By whether strides are included."""
        self._sizes: dict[int, tuple[Any, int]] = {}

    def number(self, value: Any, strides: bool) -> int | None:
        """Of (dtype, shape, device) and, if asked, strides; None where the value is no tensor."""
        tensor = value.meta.get("val")
        read = self._read[strides]
        known = read.get(id(tensor))
        if known is not None:
            return known[1]
        if not isinstance(tensor, torch.Tensor):
            return None
        sizes = (*tensor.shape, *tensor.stride()) if strides else tensor.shape
        number = self._numbers.of((tensor.dtype, self._plain(sizes), strides, device_of(tensor)))
        read[id(tensor)] = (tensor, number)
        return number

    def _plain(self, sizes: Iterable[Any]) -> tuple[int, ...]:
        """Sizes as ints; symbolic ones as negative numbers, as no size is."""
        plain: list[int] = []
        for size in sizes:
            if type(size) is not int:
                known = self._sizes.get(id(size.node._expr))
                size = self._symbol(size) if known is None else known[1]
            plain.append(size)
        return tuple(plain)

    def _symbol(self, size: Any) -> int:
        # Symbols may be replaced while rules are applied. What was read before then stays apart
        # from what is read after it, which costs a second verdict at most.
        expression, read = size.node._expr, size_of(size)
        number = read if type(read) is int else -1 - self._numbers.of(read)
        self._sizes[id(expression)] = expression, number
        return number
