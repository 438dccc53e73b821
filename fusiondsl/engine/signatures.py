"""Numbers for what is known of tensors: two tensors have one number exactly if that is equal.

A verdict hangs on dtypes, shapes, strides and devices of many tensors. Numbers make the key of a
site a tuple of ints, which hashes and compares at C speed.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import torch

from fusiondsl.engine.symbols import Size, device_of, size_of


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


class Signatures:
    """The tensors of one graph, each read once. Symbolic sizes are never compared or converted."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        # By id: hashing a fake tensor or a sympy expression runs Python code. What an id stands for
        # is kept beside its number, so that the id stays its own.
        self._whole: dict[int, tuple[torch.Tensor, int]] = {}
        self._brief: dict[int, tuple[torch.Tensor, int]] = {}
        self._sizes: dict[int, tuple[Any, Size]] = {}

    def whole(self, value: Any) -> int | None:
        """Number of (dtype, shape, strides, device); None where the value is no tensor."""
        tensor = value.meta.get("val")
        known = self._whole.get(id(tensor))
        if known is not None:
            return known[1]
        if not isinstance(tensor, torch.Tensor):
            return None
        size = self._size
        shape = tuple([s if type(s) is int else size(s) for s in tensor.shape])
        strides = tuple([s if type(s) is int else size(s) for s in tensor.stride()])
        number = self._numbers.of((tensor.dtype, shape, strides, device_of(tensor)))
        self._whole[id(tensor)] = (tensor, number)
        return number

    def brief(self, value: Any) -> int | None:
        """Number of (dtype, shape, device); None where the value is no tensor."""
        tensor = value.meta.get("val")
        known = self._brief.get(id(tensor))
        if known is not None:
            return known[1]
        if not isinstance(tensor, torch.Tensor):
            return None
        size = self._size
        shape = tuple([s if type(s) is int else size(s) for s in tensor.shape])
        number = self._numbers.of((tensor.dtype, shape, device_of(tensor)))
        self._brief[id(tensor)] = (tensor, number)
        return number

    def _size(self, size: Any) -> Size:
        expression = size.node._expr
        known = self._sizes.get(id(expression))
        if known is None:
            # Symbols may be replaced while rules are applied. What was read before then stays
            # apart from what is read after it, which costs a second verdict at most.
            known = self._sizes[id(expression)] = (expression, size_of(size))
        return known[1]
