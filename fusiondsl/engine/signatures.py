"""Numbers for what is known of tensors: two tensors have one number exactly if that is equal.

A verdict hangs on dtypes, shapes, strides and devices of many tensors. Numbers make the key of a
site a tuple of ints, which hashes and compares at C speed.
"""

from __future__ import annotations

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
        shape = self._plain(tensor.shape)
        layout = self._plain(tensor.stride()) if strides else None
        number = self._numbers.of((tensor.dtype, shape, layout, device_of(tensor)))
        read[id(tensor)] = (tensor, number)
        return number

    def _plain(self, sizes: Any) -> tuple[int, ...]:
        """Sizes as ints; symbolic ones as negative numbers, as no size is."""
        plain = tuple(sizes)
        for size in plain:
            if type(size) is not int:
                return self._numbered(plain)
        return plain

    def _numbered(self, sizes: tuple[Any, ...]) -> tuple[int, ...]:
        known = self._sizes
        plain = []
        for size in sizes:
            if type(size) is int:
                plain.append(size)
                continue
            # Symbols may be replaced while rules are applied. What was read before then stays
            # apart from what is read after it, which costs a second verdict at most.
            expression = size.node._expr
            entry = known.get(id(expression))
            if entry is None:
                read = size_of(size)
                number = read if type(read) is int else -1 - self._numbers.of(read)
                entry = known[id(expression)] = (expression, number)
            plain.append(entry[1])
        return tuple(plain)
