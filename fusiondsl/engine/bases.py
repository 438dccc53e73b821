"""Bases that an op writes through views, for the time of a run as calls on the views themselves.

`auto_functionalized_v2` is given whole bases and says of each argument which part of one it is; it
returns the bases. A call on the parts, cut out in front of it, is what rules can see: who reads a
part that was written reads an item of the call, who reads another part reads the old base, and who
reads more than that reads the old base with the new parts put in. What no rule has taken goes back
to what it was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2

from fusiondsl.engine import aten
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.parts import (
    KEYS,
    Base,
    Calls,
    Part,
    Refused,
    faking,
    first_item,
    joined_size,
    size_of_reader,
)
from fusiondsl.engine.symbols import shape_of, strides_of

_ATEN = torch.ops.aten
_CARRIED = ("stack_trace", "nn_module_stack", "original_aten", "from_node", "seq_nr", "custom")


# Assigning either takes the node out of the graph's tables and puts it back; these are for others.
_set_args: Callable[[fx.Node, Any], None] = vars(fx.Node)["args"].fset
_set_kwargs: Callable[[fx.Node, Any], None] = vars(fx.Node)["kwargs"].fset


@dataclass(frozen=True, slots=True)
class Unopened:
    """A call on parts of a base that stays as it is."""

    call: str
    op: str
    """As rules name it."""
    reason: str


@contextmanager
def opened_bases(graph: fx.Graph, bindings: Bindings) -> Iterator[Sequence[Unopened]]:
    """Within, declared ops are called on parts of bases; given are the calls that are not."""
    calls = graph.find_nodes(op="call_function", target=auto_functionalized_v2)
    partial = [call for call in calls if _has_parts(call) and bindings.of(call.args[0])]
    if not partial:
        yield ()
        return
    opening = _Opening(graph, bindings)
    try:
        # From the back: who reads what a later call has left alone reads an earlier one.
        for call in sorted(partial, reverse=True):
            opening.open(call)
        yield opening.unopened
    finally:
        opening.close()


def _has_parts(call: fx.Node) -> bool:
    places = [v for k, v in call.kwargs.items() if k.endswith("_base_index") and v is not None]
    return len(set(places)) < len(places) or any(
        key.endswith(("_storage_offset", "_slice_dim")) for key in call.kwargs
    )


_State: TypeAlias = tuple[Any, tuple[Any, ...], dict[str, Any]]


def unread() -> None:
    """Stands for a node that nobody reads while a call is open."""
    raise AssertionError("a call on parts of a base was not put back")


class _Joined:
    """A base with parts put in, while a call is open."""

    __name__ = "joined"

    def __call__(self, *_: Any) -> None:
        unread()

    def __str__(self) -> str:
        return "all of its base"


_JOINED = _Joined()


@dataclass(eq=False, slots=True)
class _Opened:
    """One call as it was, and what was made of it."""

    call: fx.Node
    kwargs: dict[str, Any]
    value: Any
    bases: list[Base]
    before: dict[fx.Node, _State] = field(default_factory=dict)
    """Nodes that were there, as they were."""
    after: dict[fx.Node, _State] = field(default_factory=dict)
    moved: set[fx.Node] = field(default_factory=set)
    cut: list[fx.Node] = field(default_factory=list)
    """New nodes in front of the call."""
    roots: dict[int, fx.Node] = field(default_factory=dict)
    """By place: the new node that reads the base."""
    wholes: list[tuple[Base, fx.Node]] = field(default_factory=list)
    """A base with other readers, and what they read."""
    borrowed: list[torch.Tensor] = field(default_factory=list)
    """Values of items that are those of views."""
    named: list[tuple[fx.Node, fx.Node]] = field(default_factory=list)
    """Nodes that nobody reads, and those that have their names instead."""

    def touch(self, node: fx.Node) -> None:
        self.before.setdefault(node, _state(node))

    def set(self, node: fx.Node, target: Any, args: tuple[Any, ...]) -> None:
        self.touch(node)
        _put(node, (target, args, {}))

    def redirect(self, user: fx.Node, old: fx.Node, new: fx.Node) -> None:
        self.touch(user)
        user.replace_input_with(old, new)

    def stub(self, node: fx.Node) -> None:
        self.set(node, unread, ())

    def name_after(self, stub: fx.Node, node: fx.Node) -> None:
        """What is said of the node is said of one that the graph has without us."""
        if all(node is not named for _, named in self.named):
            self.named.append((stub, node))
            _swap_names(stub, node)


def _state(node: fx.Node) -> _State:
    return node.target, node.args, dict(node.kwargs)


def _swap_names(left: fx.Node, right: fx.Node) -> None:
    left.name, right.name = right.name, left.name


def _put(node: fx.Node, state: _State) -> None:
    target, args, kwargs = state
    if node.target is not target:
        node.target = target
    _set_args(node, args)
    if kwargs or node.kwargs:
        _set_kwargs(node, kwargs)


class _Opening:
    """The calls of one graph that are open."""

    def __init__(self, graph: fx.Graph, bindings: Bindings) -> None:
        self._graph = graph
        self._bindings = bindings
        self._calls = Calls(graph, bindings)
        self._opened: list[_Opened] = []
        self._retired: set[fx.Node] = set()
        """New bases that are gone, because what is read of them is elsewhere."""
        self._borrowed: list[torch.Tensor] = []
        """Values that what rules have written took over from views of one memory."""
        self.unopened: list[Unopened] = []

    # --- open ------------------------------------------------------------------------------------

    def open(self, call: fx.Node) -> None:
        try:
            bases = self._calls.bases(call)
        except Refused as refused:
            binding = self._bindings.of(call.args[0])
            assert binding is not None, call
            self.unopened.append(Unopened(call.name, binding.name, str(refused)))
            return
        self._opened.append(self._open(call, bases))

    def _open(self, call: fx.Node, bases: list[Base]) -> _Opened:
        opened = _Opened(call, dict(call.kwargs), call.meta.get("val"), bases)
        first = first_item(call)
        said = _said(bases)
        given: dict[str, Any] = {k: v for k, v in call.kwargs.items() if k not in said}
        all_bases = list(given["_all_bases"])
        values = list(opened.value) if isinstance(opened.value, (tuple, list)) else []
        values += [None] * (first + len(all_bases) - len(values))
        for base in bases:
            for part in base.parts:
                is_first = part is base.parts[0]
                place = base.place if is_first else len(all_bases)
                source = self._cut(opened, base, part)
                if is_first:
                    all_bases[place] = source
                else:
                    all_bases.append(source)
                    values.append(None)
                given[f"_{part.name}_base_index"] = place
                value = _borrowed(base, part)
                if value is None:
                    value = _alone(part.value)
                else:
                    opened.borrowed.append(value)
                values[first + place] = value
                if base.whole or part in base.exact.values():
                    part.item = self._item(call, part, first + place, value)
        _set_kwargs(call, {**given, "_all_bases": all_bases})
        call.meta["val"] = tuple(values)
        for base in bases:
            self._redirect(opened, base)
        opened.after = {node: _state(node) for node in opened.before}
        return opened

    def _cut(self, opened: _Opened, base: Base, part: Part) -> fx.Node:
        """The part of the old base, in front of the call."""
        node = base.node
        with self._graph.inserting_before(opened.call):
            for made in _cut_out(self._graph, node, part, f"{opened.call.name}_{part.name}"):
                if node is base.node:
                    opened.roots.setdefault(base.place, made)
                opened.cut.append(made)
                node = made
        node.meta["val"] = part.value
        return node

    def _item(self, call: fx.Node, part: Part, index: int, value: torch.Tensor) -> fx.Node:
        with self._graph.inserting_after(call):
            item = self._graph.create_node(
                "call_function", operator.getitem, (call, index), name=f"{part.name}_of_{call.name}"
            )
        item.meta["val"] = value
        return item

    def _redirect(self, opened: _Opened, base: Base) -> None:
        for reader, part in base.exact.items():
            assert part.item is not None, reader
            if shape_of(reader.meta["val"]) != part.shape:
                size = size_of_reader(reader, part)
                opened.set(reader, _ATEN.reshape.default, (part.item, size))
                continue
            for user in list(reader.users):
                opened.redirect(user, reader, part.item)
            opened.stub(reader)
            opened.name_after(reader, part.item)
        for reader, new in base.moved:
            opened.redirect(reader, new, base.node)
            opened.moved.add(reader)
        if base.whole:
            whole = self._whole(base)
            for reader, new in base.whole:
                opened.redirect(reader, new, whole)
            opened.wholes.append((base, whole))
            opened.name_after(base.news[0], whole)
        for view in base.views:
            if not view.users:
                opened.stub(view)
        for new in base.news:
            if new not in base.exact:
                opened.stub(new)

    def _whole(self, base: Base) -> fx.Node:
        """Stands for the old base with all parts put in, in front of whoever reads that."""
        items = [part.item for part in base.parts]
        first = min(reader for reader, _ in base.whole)
        with self._graph.inserting_before(first):
            node = self._graph.call_function(_JOINED, (base.node, *items))
        node.meta["val"] = base.news[0].meta.get("val")
        return node

    # --- close -----------------------------------------------------------------------------------

    def close(self) -> None:
        for opened in reversed(self._opened):
            if opened.call._erased:
                self._settle(opened)
                self._borrowed += opened.borrowed
            elif any(base.node in self._retired for base in opened.bases):
                self._keep_open(opened)
            else:
                self._restore(opened)
        if self._borrowed:
            _give_memory(self._graph, self._borrowed)

    def _restore(self, opened: _Opened) -> None:
        for stub, node in reversed(opened.named):
            _swap_names(stub, node)
        for node, state in opened.before.items():
            if node._erased:
                continue
            if node in opened.moved or _state(node) == opened.after[node]:
                _put(node, state)
        self._restore_call(opened)
        for base, whole in opened.wholes:
            whole.replace_all_uses_with(base.news[0])
            self._graph.erase_node(whole)
        for base in opened.bases:
            for part in base.parts:
                self._give_back(opened, base, part)
        _erase_unread(opened.cut)
        self._describe(opened, opened.cut)

    def _restore_call(self, opened: _Opened) -> None:
        call = opened.call
        given: dict[str, Any] = dict(call.kwargs)
        count = len(opened.kwargs["_all_bases"])
        bases = list(given["_all_bases"])[:count]
        for place, root in opened.roots.items():
            bases[place] = root.args[0]
        said = {k: v for k, v in opened.kwargs.items() if k.startswith("_")}
        given |= said | {"_all_bases": bases}
        _set_kwargs(call, {key: given[key] for key in opened.kwargs})
        if opened.value is not None:
            call.meta["val"] = opened.value

    def _give_back(self, opened: _Opened, base: Base, part: Part) -> None:
        """Whoever has come to read a part reads it where it was read, or from the new base."""
        item = part.item
        if item is None or item._erased:
            return
        for reader in _readers(base, part):
            for user in [user for user in item.users if reader < user]:
                user.replace_input_with(item, reader)
        if item.users:
            new = self._first_new(opened.call, base)
            node = new
            with self._graph.inserting_before(new.next):
                made = list(_cut_out(self._graph, new, part, item.name))
            node = made[-1] if made else new
            item.replace_all_uses_with(node)
            self._describe(opened, made)
        self._graph.erase_node(item)

    def _first_new(self, call: fx.Node, base: Base) -> fx.Node:
        """The new base, right behind the call."""
        new = next((new for new in base.news if not new._erased), None)
        if new is not None:
            call.append(new)
            return new
        place = first_item(call) + base.place
        with self._graph.inserting_after(call):
            new = self._graph.call_function(operator.getitem, (call, place))
        new.meta["val"] = call.meta["val"][place]
        return new

    def _settle(self, opened: _Opened) -> None:
        """What is left of a call on parts that stays one, or that a rule has taken."""
        views = {view for base in opened.bases for view in (*base.views, *base.exact)}
        news = {new for base in opened.bases for new in base.news}
        for node in reversed(list(opened.before)):
            if node._erased or node.users or not (node.target is unread or node in views):
                continue
            if node in news:
                self._retired.add(node)
            self._graph.erase_node(node)
        for reader in [reader for base in opened.bases for reader in base.exact]:
            if not reader._erased:
                reader.meta["val"] = _evaluated(reader)
        for base, whole in opened.wholes:
            self._describe(opened, self._join(base, whole))
        _erase_unread(opened.cut)
        self._describe(opened, opened.cut)
        for base in opened.bases:
            node = base.node
            if not node._erased and not node.users and id(node.target) in aten.ALLOCATION_IDS:
                self._graph.erase_node(node)

    def _join(self, base: Base, whole: fx.Node) -> list[fx.Node]:
        """The parts put into the old base, for whoever still reads all of it."""
        made: list[fx.Node] = []
        if whole.users:
            node: Any
            node, *items = whole.args
            with self._graph.inserting_before(whole):
                for part, item in zip(base.parts, items, strict=True):
                    made += _put_in(self._graph, node, item, part)
                    node = made[-1] if made else item
            whole.replace_all_uses_with(node)
        self._graph.erase_node(whole)
        return made

    def _keep_open(self, opened: _Opened) -> None:
        """The base is gone: who read it reads its parts."""
        self._settle(opened)
        call = opened.call
        call.meta["val"] = _evaluated(call)
        for item in call.users:
            index: Any = item.args[1]
            item.meta |= {"val": call.meta["val"][index], **_origin(item)}
        if "eager_input_vals" in call.meta:
            kwargs = fx.map_arg(dict(call.kwargs), lambda node: node.meta.get("val"))
            call.meta["eager_input_vals"] = (call.args, kwargs)

    def _describe(self, opened: _Opened, made: Iterable[fx.Node]) -> None:
        """Nodes that stay are told where they come from."""
        for node in made:
            if node._erased:
                continue
            carried = {k: v for k, v in opened.call.meta.items() if k in _CARRIED}
            node.meta = {**carried, "val": _evaluated(node), **_origin(node)}


# --- nodes and values ----------------------------------------------------------------------------


def _readers(base: Base, part: Part) -> list[fx.Node]:
    """Those of the part as it is that the graph has had all along."""
    return [
        reader
        for reader, read in base.exact.items()
        if read is part and not reader._erased and shape_of(reader.meta["val"]) == part.shape
    ]


def _cut_out(graph: fx.Graph, node: fx.Node, part: Part, name: str) -> Iterator[fx.Node]:
    """New nodes that cut a part out of a base, the part last."""
    for cut, start, end in part.cuts:
        node = graph.create_node(
            "call_function", _ATEN.slice.Tensor, (node, cut.dim, start, end), name=name
        )
        yield node
    if part.size is not None:
        target = _ATEN.reshape.default
        yield graph.create_node("call_function", target, (node, list(part.size)), name=name)


def _borrowed(base: Base, part: Part) -> torch.Tensor | None:
    """The value of a reader that shows just a part: what the part will be, but for its memory."""
    for reader, shown in base.exact.items():
        value: torch.Tensor = reader.meta["val"]
        alike = shown is part and shape_of(value) == part.shape
        if alike and strides_of(value) == part.region.strides:
            return value
    return None


def _alone(value: torch.Tensor) -> torch.Tensor:
    """A value like another, with memory of its own."""
    form: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    with faking(value):
        return torch.empty_strided(value.shape, value.stride(), **form)


def _give_memory(graph: fx.Graph, borrowed: Iterable[torch.Tensor]) -> None:
    own = {id(value): _alone(value) for value in borrowed}
    for node in graph.nodes:
        value = node.meta.get("val")
        if id(value) in own:
            node.meta["val"] = own[id(value)]
        elif isinstance(value, tuple) and any(id(item) in own for item in value):
            node.meta["val"] = tuple([own.get(id(item), item) for item in value])


def _put_in(graph: fx.Graph, base: Any, value: Any, part: Part) -> list[fx.Node]:
    """New nodes that put a part into a base, all of it last."""
    made: list[fx.Node] = []

    def call(target: Any, *args: Any) -> fx.Node:
        made.append(graph.call_function(target, args))
        return made[-1]

    if part.box != part.shape:
        value = call(_ATEN.reshape.default, value, joined_size(part))
    ends = [(cut.dim, start, end) for cut, start, end in part.cuts]
    around = [base]
    for end in ends[:-1]:
        around.append(call(_ATEN.slice.Tensor, around[-1], *end))
    for outer, end in zip(reversed(around), reversed(ends), strict=False):
        value = call(_ATEN.slice_scatter.default, outer, value, *end)
    return made


def _erase_unread(nodes: Sequence[fx.Node]) -> None:
    for node in reversed(nodes):
        if not node._erased and not node.users:
            node.graph.erase_node(node)


def _origin(node: fx.Node) -> dict[str, Any]:
    """The rule that wrote the nearest node around, because of which this one is there."""
    seen, waiting = {node}, [node]
    for found in waiting:
        if "fusiondsl" in found.meta:
            return {"fusiondsl": found.meta["fusiondsl"]}
        around = [n for n in (*found.users, *found.all_input_nodes) if n not in seen]
        seen.update(around)
        waiting += around
    return {}


def _evaluated(node: fx.Node) -> Any:
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    values = (source.meta["val"] for source in node.all_input_nodes)
    target: Any = node.target
    with faking(next(value for value in values if isinstance(value, torch.Tensor))):
        return target(*args, **kwargs)


def _said(bases: Iterable[Base]) -> set[str]:
    """The keywords that say which part of a base an argument is."""
    return {f"_{p.name}_{what}" for base in bases for p in base.parts for what in KEYS}
