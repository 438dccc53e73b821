"""What a call says of the parts of bases that it writes, and who reads which part afterwards."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fusiondsl.engine import aten
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.mutation import is_alias, is_mutating, root_of, written_arguments
from fusiondsl.engine.regions import (
    Cut,
    Region,
    box_of,
    is_split,
    item_of,
    number,
    seen_through,
    times,
)
from fusiondsl.engine.symbols import Size, as_dim, shape_of, size_of, strides_of

_ATEN = torch.ops.aten
_SLICE, _STRIDED = ("slice_dim", "slice_start", "slice_end"), ("size", "stride", "storage_offset")
KEYS = (*_SLICE, *_STRIDED, "alias")
_OPEN_END = 2**63 - 1


class Refused(Exception):
    """Why a call stays as it is."""


@dataclass(eq=False, slots=True)
class Part:
    """One argument: a part of a base."""

    name: str
    region: Region
    cuts: tuple[tuple[Cut, Any, Any], ...]
    """What is cut out of the base, with start and end as the graph writes them."""
    box: tuple[Size, ...]
    """The shape of what is cut out."""
    size: Sequence[Any] | None
    """The shape of the argument as the graph writes it, where it is another one."""
    value: torch.Tensor
    item: fx.Node | None = None
    """The part as the call leaves it."""

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.region.sizes


@dataclass(eq=False, slots=True)
class Base:
    """One base of a call, with the parts of it that are written."""

    place: int
    node: fx.Node
    parts: list[Part]
    exact: dict[fx.Node, Part] = field(default_factory=dict)
    """Who reads just such a part of the new base."""
    moved: list[tuple[fx.Node, fx.Node]] = field(default_factory=list)
    """Who reads only what is as before, and the new base that is read."""
    whole: list[tuple[fx.Node, fx.Node]] = field(default_factory=list)
    """Other readers of the new base."""
    views: list[fx.Node] = field(default_factory=list)
    """Views of the new base, readers of others first."""
    news: list[fx.Node] = field(default_factory=list)


class Calls:
    """Reads the calls of one graph."""

    def __init__(self, graph: fx.Graph, bindings: Bindings) -> None:
        self._bindings = bindings
        self._fakes: dict[Any, torch.Tensor] = {}
        self._writers = _raw_writers(graph)

    def bases(self, call: fx.Node) -> list[Base]:
        """The bases that a call has parts of, with their readers."""
        bases = self._bases(call)
        for base in bases:
            self._find_readers(call, base)
        return bases

    def _bases(self, call: fx.Node) -> list[Base]:
        """The bases with parts, each with all of its parts; refused where that is not certain."""
        given: Mapping[str, Any] = call.kwargs
        binding = self._bindings.of(call.args[0])
        assert binding is not None, call
        by_place: dict[int, list[str]] = {}
        for name in binding.mutated:
            if f"_{name}_length" in given:
                raise Refused(f"{name} is a list")
            place = given.get(f"_{name}_base_index")
            if type(place) is int:
                by_place.setdefault(place, []).append(name)
        bases = []
        for place, names in by_place.items():
            if len(names) == 1 and not any(f"_{names[0]}_{key}" in given for key in KEYS[:-1]):
                continue
            node = given["_all_bases"][place]
            parts = [self._part(given, name, node) for name in names]
            _check_apart(parts, node)
            bases.append(Base(place, node, parts))
        return bases

    def _part(self, given: Mapping[str, Any], name: str, base: fx.Node) -> Part:
        value: Any = base.meta.get("val")
        known = getattr(value, "fake_mode", None) is not None
        offset = value.storage_offset() if known else None
        if not (type(offset) is int and offset == 0):
            raise Refused(f"how {base.name} lies in memory is not known")
        whole = Region(shape_of(value), strides_of(value), 0)
        if f"_{name}_slice_dim" in given:
            return self._slice(name, value, whole, *(given[f"_{name}_{key}"] for key in _SLICE))
        if f"_{name}_storage_offset" in given:
            return self._strided(name, value, whole, *(given[f"_{name}_{key}"] for key in _STRIDED))
        return Part(name, whole, (), whole.sizes, None, value)

    def _slice(
        self, name: str, base: torch.Tensor, whole: Region, dim: Any, start: Any, end: Any
    ) -> Part:
        first, last = number(start), number(end)
        if type(dim) is not int or first is None or last is None:
            raise Refused(f"the bounds of {name} are no sizes of the graph")
        total = whole.sizes[dim]
        if last == _OPEN_END or (type(last) is type(total) is int and last > total):
            last = total
        region = whole.cut(dim, first, _minus(last, first))
        cut = Cut(dim, first, region.sizes[dim])
        cuts = () if region.sizes == whole.sizes else ((cut, start, end),)
        value = self._fake(
            base, region, lambda: _ATEN.slice.Tensor(base, dim, _val(start), _val(end))
        )
        return Part(name, region, cuts, region.sizes, None, value)

    def _strided(
        self, name: str, base: torch.Tensor, whole: Region, size: Any, stride: Any, offset: Any
    ) -> Part:
        numbers = [[number(item) for item in items] for items in (size, stride, [offset])]
        if any(None in items for items in numbers):
            raise Refused(f"the bounds of {name} are no sizes of the graph")
        region = Region(tuple(numbers[0]), tuple(numbers[1]), numbers[2][0])  # type: ignore[arg-type]
        in_order = whole.strides == _contiguous(whole.sizes)
        box = box_of(region, whole) if in_order else None
        if box is None:
            raise Refused(f"{name} is no slice of its base and no reshape of one")
        cuts, sizes = [], list(whole.sizes)
        for cut in box:
            start, end = cut.start, _minus(cut.size, _minus(0, cut.start))
            if type(start) is not int or type(end) is not int:
                raise Refused(f"{name} begins or ends at a symbolic size of its base")
            cuts.append((cut, start, end))
            sizes[cut.dim] = cut.size
        value = self._fake(
            base,
            region,
            lambda: base.as_strided(list(map(_val, size)), list(map(_val, stride)), _val(offset)),
        )
        written = None if region.sizes == tuple(sizes) else list(size)
        return Part(name, region, tuple(cuts), tuple(sizes), written, value)

    def _fake(
        self, base: torch.Tensor, region: Region, make: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Of a part; parts that are alike share one until somebody else reads them."""
        key = region, base.dtype, base.device
        known = self._fakes.get(key)
        if known is None:
            with faking(base):
                known = self._fakes[key] = make()
        if shape_of(known) != region.sizes or strides_of(known) != region.strides:
            raise Refused("a part may end before it should")
        return known

    # --- who reads the new base ------------------------------------------------------------------

    def _find_readers(self, call: fx.Node, base: Base) -> None:
        first = first_item(call)
        value = base.node.meta["val"]
        whole = Region(shape_of(value), strides_of(value), 0)
        for item in call.users:
            if item.target is not operator.getitem or type(item.args[1]) is not int:
                raise Refused("its items are not taken one by one")
            if item.args[1] == first + base.place:
                base.news.append(item)
        target: Any = call.args[0]
        in_place = getattr(torch.Tag, "inplace", None) in target.tags
        for item in call.users if in_place else ():
            if item.args[1] == 0:
                base.exact[item] = base.parts[0]
        self._check_writers(base)
        first_part = base.parts[0]
        is_all = len(base.parts) == 1 and first_part.region.has_elements_of(whole)
        for new in base.news:
            if is_all and size_of_reader(new, first_part) is not None:
                base.exact[new] = first_part
                continue
            for user in list(new.users):
                if not self._is_unwritten(base, user, new, whole):
                    base.whole.append((user, new))
                elif user not in base.exact:
                    base.moved.append((user, new))
        if base.whole and any(joined_size(part) is None for part in base.parts):
            raise Refused(
                f"{base.whole[0][0].name} reads all of the base, whose sizes are symbolic"
            )

    def _check_writers(self, base: Base) -> None:
        """Nothing else writes the base, but for what is copied into it when all is done."""
        for writer, root, is_read in self._writers:
            if root in base.news or (is_read and root is root_of(base.node)):
                raise Refused(f"{writer.name} writes {base.node.name} as well")

    def _is_unwritten(self, base: Base, user: fx.Node, source: fx.Node, region: Region) -> bool:
        """What a reader takes of the new base is as before; parts that are written aside."""
        if user.target is _ATEN.sym_size.int:
            return True
        if is_split(user) and aten.first_argument(user) is source:
            items = list(user.users)
            shown = [item_of(i, region) if _is_item(i) else None for i in items]
            done = [self._shows_unwritten(base, i, s) for i, s in zip(items, shown, strict=True)]
            base.views.append(user)
            return all(done)
        return self._shows_unwritten(base, user, seen_through(user, region))

    def _shows_unwritten(self, base: Base, view: fx.Node, shown: Region | None) -> bool:
        if shown is None:
            return False
        for part in base.parts:
            if shown.has_elements_of(part.region) and size_of_reader(view, part) is not None:
                base.exact[view] = part
                return True
        if all(shown.is_apart_from(part.region) for part in base.parts):
            return not _is_returned(view)
        done = [self._is_unwritten(base, user, view, shown) for user in list(view.users)]
        base.views.append(view)
        return all(done)


@contextmanager
def faking(value: Any) -> Iterator[None]:
    """Within, operations are those of a fake's mode; what they ask of sizes leaves no guard."""
    with ExitStack() as stack:
        stack.enter_context(value.fake_mode)
        if value.fake_mode.shape_env is not None:
            stack.enter_context(value.fake_mode.shape_env.suppress_guards())
        yield


def _val(item: Any) -> Any:
    return item.meta["val"] if isinstance(item, fx.Node) else item


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _is_returned(node: fx.Node) -> bool:
    """As it is or through views: then it may share no memory with an input."""
    if any(user.op == "output" for user in node.users):
        return True
    return any(_is_returned(user) for user in node.users if is_alias(user))


def _raw_writers(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node, bool]]:
    """Calls that write, the memory they write, and whether something may read it afterwards."""
    found = []
    last = True
    for node in reversed(graph.nodes):
        writes = node.op == "call_function" and is_mutating(node.target)
        last = last and (writes or node.op == "output")
        if writes:
            found += [(node, root_of(buffer), not last) for buffer in written_arguments(node)]
    return found


def first_item(call: fx.Node) -> int:
    """The place of the first base among the items of a call."""
    target: Any = call.args[0]
    return max(len(target._schema.returns), 1)


# --- sizes ---------------------------------------------------------------------------------------


def _check_apart(parts: Sequence[Part], base: fx.Node) -> None:
    for i, part in enumerate(parts):
        if not part.region.is_distinct():
            raise Refused(f"{part.name} may show an element of {base.name} twice")
        for other in parts[:i]:
            if not part.region.is_apart_from(other.region):
                raise Refused(f"{other.name} and {part.name} may overlap in {base.name}")


def size_of_reader(view: fx.Node, part: Part) -> list[Any] | None:
    """The shape of a reader of a part, as the graph can write it."""
    return _written(shape_of(view.meta["val"]), part)


def joined_size(part: Part) -> list[Any] | None:
    """The shape of a part where it is put into its base."""
    return _written(part.box, part)


def _written(wanted: Sequence[Size], part: Part) -> list[Any] | None:
    """A shape as graph arguments, with the sizes that a call has at hand."""
    symbolic = [size for size in wanted if type(size) is not int]
    if len(symbolic) == 1:
        return [size if type(size) is int else -1 for size in wanted]
    raw = part.size or ()
    at_hand = dict(zip(part.shape, raw, strict=False))
    if any(size not in at_hand for size in symbolic):
        return list(wanted) if tuple(wanted) == part.shape else None
    return [size if type(size) is int else at_hand[size] for size in wanted]


def _minus(left: Size, right: Size) -> Size:
    return size_of(as_dim(left) - right)


def _contiguous(shape: Sequence[Size]) -> tuple[Size, ...]:
    strides: list[Size] = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, times(strides[0], size))
    return tuple(strides[: len(shape)])
