"""Parts of a base that views show, and how they lie to each other as far as that is certain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import fx

from fusiondsl.engine import aten
from fusiondsl.engine.symbols import Size, as_dim, shape_of, size_of

_aten = torch.ops.aten
_Chunk: TypeAlias = tuple[Size, Size]
"""Size and stride of a dimension, or of several that could be one."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part along one dimension."""

    dim: int
    start: Size
    size: Size


@dataclass(frozen=True, slots=True)
class Region:
    """The elements of a strided view, in order."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size

    def cut(self, dim: int, start: Size, size: Size) -> Region:
        """`size` elements along one dimension, from `start` on."""
        sizes = (*self.sizes[:dim], size, *self.sizes[dim + 1 :])
        return Region(sizes, self.strides, _plus(self.offset, times(start, self.strides[dim])))

    def at(self, dim: int, index: Size) -> Region:
        """One element along a dimension, without the dimension."""
        kept = [i for i in range(len(self.sizes)) if i != dim]
        offset = _plus(self.offset, times(index, self.strides[dim]))
        return Region(
            tuple([self.sizes[i] for i in kept]), tuple([self.strides[i] for i in kept]), offset
        )

    def reshaped(self, sizes: Sequence[Size]) -> Region | None:
        """The same elements in another shape; None where that is no view of them."""
        chunks = self.chunks()
        rest: Size = 1
        stride: Size = 1
        strides: list[Size] = []
        for size in reversed(sizes):
            if size != 1 and rest == 1 and chunks:
                rest, stride = chunks.pop()
            left = quotient(rest, size)
            if left is None:
                return None
            strides.insert(0, stride)
            rest, stride = left, times(stride, size)
        if rest != 1 or chunks:
            return None
        return Region(tuple(sizes), tuple(strides), self.offset)

    def has_elements_of(self, other: Region) -> bool:
        """Both show the same elements in the same order; their shapes may differ."""
        return self.offset == other.offset and self.chunks() == other.chunks()

    def is_distinct(self) -> bool:
        """No element is shown twice."""
        chunks = self.chunks()
        return all(stride != 0 for _, stride in chunks) and all(
            _at_most(times(*inner), outer[1]) for outer, inner in pairwise(chunks)
        )

    def is_apart_from(self, other: Region) -> bool:
        """No element is in both."""
        return _in_front(self, other) or _in_front(other, self)

    def chunks(self) -> list[_Chunk]:
        joined: list[_Chunk] = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size == 1:
                continue
            if joined and joined[-1][1] == times(size, stride):
                joined[-1] = times(joined[-1][0], size), stride
            else:
                joined.append((size, stride))
        return joined


def _in_front(first: Region, second: Region) -> bool:
    """`first` ends before `second` begins, at once or in each of the rows that both have."""
    ours, theirs = first.chunks(), second.chunks()
    row: Size | None = None
    while True:
        apart = _at_most(_end(first.offset, ours), second.offset)
        if apart and (
            row is None or _at_most(_end(second.offset, theirs), _plus(first.offset, row))
        ):
            return True
        if not ours or not theirs or ours[0][1] != theirs[0][1]:
            return False
        if row is not None and quotient(row, ours[0][1]) is None:
            return False
        row = ours.pop(0)[1]
        theirs.pop(0)


def _end(offset: Size, chunks: Sequence[_Chunk]) -> Size:
    for size, stride in chunks:
        offset = _plus(offset, times(_plus(size, -1), stride))
    return _plus(offset, 1)


def box_of(shown: Region, base: Region) -> tuple[Cut, ...] | None:
    """The cuts of a contiguous base that leave what a view shows, up to its shape."""
    if shown.has_elements_of(base):
        return ()
    starts = _index_of(shown.offset, base)
    if starts is None:
        return None
    extents: list[Size] = [1] * len(base.sizes)
    for size, stride in zip(shown.sizes, shown.strides, strict=True):
        if size == 1:
            continue
        along = next(
            ((d, step) for d, s in enumerate(base.strides) if (step := quotient(stride, s))), None
        )
        if along is None:
            return None
        dim, step = along
        extents[dim] = _plus(extents[dim], times(_plus(size, -1), step))
    cuts = tuple(
        Cut(dim, start, extent)
        for dim, (start, extent) in enumerate(zip(starts, extents, strict=True))
        if start != 0 or extent != base.sizes[dim]
    )
    box = base
    for cut in cuts:
        # What is in the base ends with it; only within a row is there something behind the end.
        if cut.dim > 0 and not _at_most(_plus(cut.start, cut.size), base.sizes[cut.dim]):
            return None
        box = box.cut(cut.dim, cut.start, cut.size)
    return cuts if box.has_elements_of(shown) else None


def _index_of(offset: Size, base: Region) -> list[Size] | None:
    """The element of a contiguous base at an offset, one index a dimension."""
    index: list[Size] = []
    start: Size
    for stride in base.strides:
        if type(offset) is int and type(stride) is int:
            start, offset = divmod(offset, stride)
        elif type(offset) is int:
            start = 0  # what is left lies further in; the caller looks at the whole
        else:
            found = quotient(offset, stride)
            start, offset = (0, offset) if found is None else (found, 0)
        index.append(start)
    return index if offset == 0 else None


# --- sizes ---------------------------------------------------------------------------------------


def _plus(left: Size, right: Size) -> Size:
    return left + right if type(left) is type(right) is int else size_of(as_dim(left) + right)


def times(left: Size, right: Size) -> Size:
    return left * right if type(left) is type(right) is int else size_of(as_dim(left) * right)


def quotient(left: Size, right: Size) -> Size | None:
    """Where it is exact."""
    if type(left) is type(right) is int:
        return None if right == 0 or left % right else left // right
    found = as_dim(left).exact_div(as_dim(right))
    return None if found is None else size_of(found)


def _at_most(left: Size, right: Size) -> bool:
    """Certainly: symbols cancel out."""
    if type(left) is type(right) is int:
        return left <= right
    difference = (as_dim(right) - left).as_int()
    return difference is not None and difference >= 0


# --- what views show -----------------------------------------------------------------------------

Shown: TypeAlias = Region | None


def seen_through(node: fx.Node, source: Region) -> Shown:
    """What a view of `source` shows; None where the operation is no view or it is not known."""
    reader = _READERS.get(id(node.target))
    value = node.meta.get("val")
    if reader is None or node.kwargs or not isinstance(value, torch.Tensor):
        return None
    shape = shape_of(value)
    found = reader(node.args, shape, source)
    return found if found is not None and found.sizes == shape else None


def item_of(node: fx.Node, source: Region) -> Shown:
    """What an item of a split of `source` shows."""
    parent, index = node.args
    assert isinstance(parent, fx.Node), node
    value = node.meta.get("val")
    if parent.kwargs or type(index) is not int or not isinstance(value, torch.Tensor):
        return None
    found = _ITEMS[id(parent.target)](parent.args, index, source)
    return found if found is not None and found.sizes == shape_of(value) else None


def is_split(node: fx.Node) -> bool:
    return id(node.target) in _ITEMS


def number(item: Any) -> Size | None:
    """A size or index as it stands in a call."""
    value = item.meta.get("val") if isinstance(item, fx.Node) else item
    return size_of(value) if isinstance(value, (int, torch.SymInt)) else None


def _same(args: Any, shape: tuple[Size, ...], source: Region) -> Shown:
    return source


def _reshape(args: Any, shape: tuple[Size, ...], source: Region) -> Shown:
    return source.reshaped(shape)


def _slice(args: Any, shape: tuple[Size, ...], source: Region) -> Shown:
    rest = tuple(args[1:])
    dim, start, _, step = rest + (0, None, None, 1)[len(rest) :]
    axis = _axis(dim, source)
    first = 0 if start is None else number(start)
    if axis is None or first is None or step != 1:
        return None
    if type(first) is int and first < 0:
        first = _plus(source.sizes[axis], first)
    return source.cut(axis, first, shape[axis])


def _select(args: Any, shape: tuple[Size, ...], source: Region) -> Shown:
    return _at(source, args[1], args[2])


def _at(source: Region, dim: Any, index: Any) -> Shown:
    axis, place = _axis(dim, source), number(index)
    if axis is None or place is None or (type(place) is int and place < 0):
        return None
    return source.at(axis, place)


def _item_of_lengths(args: Any, index: int, source: Region) -> Shown:
    axis = _axis(args[2] if len(args) > 2 else 0, source)
    lengths = [number(length) for length in args[1]]
    if axis is None or not 0 <= index < len(lengths) or None in lengths:
        return None
    start: Size = 0
    for length in lengths[:index]:
        assert length is not None
        start = _plus(start, length)
    return source.cut(axis, start, lengths[index])  # type: ignore[arg-type]


def _item_of_parts(args: Any, index: int, source: Region) -> Shown:
    axis, part = _axis(args[2] if len(args) > 2 else 0, source), args[1]
    if axis is None or type(part) is not int or index < 0:
        return None
    total = source.sizes[axis]
    if type(total) is not int or index * part >= total:
        return None
    return source.cut(axis, index * part, min(part, total - index * part))


def _item_of_unbind(args: Any, index: int, source: Region) -> Shown:
    return _at(source, args[1] if len(args) > 1 else 0, index)


def _axis(dim: Any, source: Region) -> int | None:
    rank = len(source.sizes)
    if type(dim) is not int or not -rank <= dim < rank:
        return None
    return dim % rank


_READERS: Mapping[int, Callable[[Any, tuple[Size, ...], Region], Shown]] = {
    **{id(target): _reshape for target in aten.VIEWS},
    id(_aten.alias.default): _same,
    id(_aten.detach.default): _same,
    id(_aten.slice.Tensor): _slice,
    id(_aten.select.int): _select,
}
_ITEMS: Mapping[int, Callable[[Any, int, Region], Shown]] = {
    id(_aten.split_with_sizes.default): _item_of_lengths,
    id(_aten.split.Tensor): _item_of_parts,
    id(_aten.unbind.int): _item_of_unbind,
}
