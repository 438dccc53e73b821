"""Bases that an op writes through a reshape, for the time of a run as calls on the reshape itself.

`auto_functionalized_v2` is given whole bases and, for an argument that is a view, its size and
stride; it returns the bases. Where the view is all of its base, the same call on a reshape in front
of it, with a reshape behind it, is what rules can see. What no rule has taken goes back to what it
was.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2

from fusiondsl.dims import Dim
from fusiondsl.engine.symbols import Size, shape_of, size_of, strides_of

_RESHAPE = torch.ops.aten.reshape.default
_VIEW_KEYS = ("size", "stride", "storage_offset")


@contextmanager
def reshaped_bases(graph: fx.Graph) -> Iterator[None]:
    """Within, such calls are on reshapes of their bases."""
    calls = graph.find_nodes(op="call_function", target=auto_functionalized_v2)
    opened = [view for call in calls for view in _opened(call)]
    try:
        yield
    finally:
        for view in reversed(opened):
            view.close()


@dataclass(slots=True)
class _View:
    """One argument of a call that is a reshape of its base."""

    call: fx.Node
    place: int
    """Of the base among those of the call."""
    keys: dict[str, Any]
    """What says so in the call."""
    order: tuple[str, ...]
    """Of all keywords of the call."""
    before: fx.Node
    after: tuple[tuple[fx.Node, fx.Node], ...]
    """Items of the call, each with its reshape to the form of the base."""

    def close(self) -> None:
        call, before = self.call, self.before
        given: dict[str, Any] = dict(call.kwargs)
        if not call._erased and given["_all_bases"][self.place] is before:
            bases = list(given["_all_bases"])
            bases[self.place] = before.args[0]
            given |= self.keys | {"_all_bases": bases}
            call.kwargs = {key: given[key] for key in self.order}
            for item, reshaped in self.after:
                reshaped.replace_all_uses_with(item)
                item.meta["val"] = reshaped.meta["val"]
                call.graph.erase_node(reshaped)
        if not before._erased and not before.users:
            before.graph.erase_node(before)


def _opened(call: fx.Node) -> Iterator[_View]:
    given: dict[str, Any] = dict(call.kwargs)
    target, bases = call.args[0], given.get("_all_bases")
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(bases, (list, tuple)):
        return
    places = [v for k, v in given.items() if k.endswith("_base_index")]
    first = max(len(target._schema.returns), 1)
    for key in [k for k in given if k.startswith("_") and k.endswith("_size")]:
        name = key.removesuffix("size")
        place = given.get(f"{name}base_index")
        if type(place) is not int or places.count(place) > 1:
            continue
        keys = {f"{name}{k}": given.get(f"{name}{k}") for k in _VIEW_KEYS}
        found = _open(call, place, keys, first + place)
        if found is not None:
            yield found


def _open(call: fx.Node, place: int, keys: dict[str, Any], index: int) -> _View | None:
    size, stride, offset = keys.values()
    given: dict[str, Any] = dict(call.kwargs)
    base = given["_all_bases"][place]
    value = base.meta.get("val")
    if getattr(value, "fake_mode", None) is None or not (type(offset) is int and offset == 0):
        return None
    shape, strides = tuple(map(_size, size)), tuple(map(_size, stride))
    whole = shape_of(value)
    back = _written(whole, size, shape)
    same = _product(shape) == _product(whole) and strides == _contiguous(shape)
    if not same or back is None or strides_of(value) != _contiguous(whole):
        return None
    name = next(iter(keys)).removeprefix("_").removesuffix("_size")
    graph, seen = call.graph, _seen(value, size)
    with graph.inserting_before(call):
        before = _reshape(graph, base, list(size), seen, f"{call.name}_{name}")
    after = []
    for item in [u for u in call.users if u.target is operator.getitem and u.args[1] == index]:
        with graph.inserting_after(item):
            reshaped = _reshape(graph, item, back, item.meta["val"], f"{item.name}_base")
        for user in [user for user in item.users if user is not reshaped]:
            user.replace_input_with(item, reshaped)
        item.meta["val"] = seen
        after.append((item, reshaped))
    bases = list(given["_all_bases"])
    bases[place] = before
    kept = {k: v for k, v in given.items() if k not in keys}
    call.kwargs = {**kept, "_all_bases": bases}
    return _View(call, place, keys, tuple(given), before, tuple(after))


def _reshape(graph: fx.Graph, node: fx.Node, size: Any, value: Any, name: str) -> fx.Node:
    made = graph.create_node("call_function", _RESHAPE, (node, size), name=name)
    made.meta["val"] = value
    return made


def _seen(value: torch.Tensor, size: Sequence[Any]) -> torch.Tensor:
    """The fake of a reshape; what that asks of symbolic sizes leaves no guard."""
    mode: Any = getattr(value, "fake_mode", None)
    with ExitStack() as stack:
        stack.enter_context(mode)
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.suppress_guards())
        return value.view([n.meta["val"] if isinstance(n, fx.Node) else n for n in size])


def _size(item: Any) -> Size:
    return size_of(item.meta["val"] if isinstance(item, fx.Node) else item)


def _product(shape: Sequence[Size]) -> Dim:
    return Dim.product(shape) if shape else Dim.const(1)


def _contiguous(shape: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(size_of(_product(shape[i + 1 :])) for i in range(len(shape)))


def _written(wanted: Sequence[Size], nodes: Sequence[Any], sizes: Sequence[Size]) -> Any | None:
    """A shape as graph arguments, with the sizes that a call has at hand."""
    at_hand = dict(zip(sizes, nodes, strict=True))
    symbolic = [size for size in wanted if type(size) is not int]
    if len(symbolic) == 1:
        return [size if type(size) is int else -1 for size in wanted]
    if any(size not in at_hand for size in symbolic):
        return None
    return [size if type(size) is int else at_hand[size] for size in wanted]
