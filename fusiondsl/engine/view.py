"""The normal view of a graph: canonical calls and values, computed on demand, changing nothing.

A *value* is a node: the node of a single-output operation, the first `getitem` of one item of a
multi-output operation, or a `Version` where raw mutation makes one buffer hold several values.
A *call* is an operation with its arguments in declaration order, omitted ones filled in, whatever
its spelling in the graph: positional or keyword, `auto_functionalized` v1 or v2, raw mutating, or
aten code as a primitive.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.engine import aten
from fusiondsl.engine.bindings import Binding, Bindings
from fusiondsl.engine.mutation import BETWEEN, UNKNOWN, Mutations, Version
from fusiondsl.engine.symbols import Size, shape_of

Value = fx.Node | Version


class Call:
    """One operation of the graph in canonical form."""

    __slots__ = ("args", "binding", "buffers", "node", "op", "readings", "results")

    def __init__(
        self,
        op: str,
        args: tuple[Any, ...],
        node: fx.Node,
        binding: Binding | None,
        results: dict[int, list[Any]],
        buffers: tuple[Any, ...] = (),
    ) -> None:
        self.op = op
        self.args = args
        self.node = node
        self.binding = binding
        self.results = results
        """Nodes of each result; the first is the canonical one, the rest are duplicates."""
        self.buffers = buffers
        """Write-only buffers handed in."""
        self.readings: dict[str, Any] = {}
        """The call as each op that was asked for, filled by recognition."""

    def result(self, index: int) -> Any | None:
        """The canonical value of a result, None where the graph never takes it."""
        nodes = self.results.get(index)
        return nodes[0] if nodes else None


class View:
    """Canonical calls of one graph. Valid until the graph changes."""

    def __init__(self, graph: fx.Graph, bindings: Bindings) -> None:
        self.graph = graph
        self.bindings = bindings
        self.by_target = _index(graph)
        self.targets_by_name: dict[str, list[Any]] = {}
        for target in self.by_target:
            binding = bindings.of(target)
            if binding is not None:
                self.targets_by_name.setdefault(binding.name, []).append(target)
        self.mutations = Mutations(graph, self.by_target, bindings)
        self.halved = False
        """Some operation was read as two primitives, with a value that the graph does not have."""
        self._calls: dict[fx.Node, Any] = {}
        self._defs: dict[Any, Any] = {}
        self._shapes: dict[fx.Node, tuple[Size, ...] | None] = {}
        self._stripped: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        """What stands behind transparent nodes: exactly, and with leading dimensions regrouped."""

    # --- candidates ------------------------------------------------------------------------------

    def nodes_of(self, target: Any) -> list[fx.Node]:
        return self.by_target.get(target, [])

    @cached_property
    def no_ops(self) -> frozenset[fx.Node]:
        """Operations that can stand between two calls and change nothing."""
        found = (n for t, nodes in self.by_target.items() if id(t) in aten.NO_OP_IDS for n in nodes)
        return frozenset(found)

    # --- values ----------------------------------------------------------------------------------

    def read(self, user: fx.Node, argument: Any) -> Any:
        """What `user` reads through `argument`: the value a buffer holds at that point."""
        if not self.mutations.any or not isinstance(argument, fx.Node):
            return argument
        return self.mutations.version(user, argument)

    def define(self, value: Any) -> tuple[Call, int] | None:
        """The call and result index that produce a value."""
        found: tuple[Call, int] | None = self._defs.get(value, _MISSING)
        if found is _MISSING:
            found = self._defs[value] = self._define(value)
        return found

    def _define(self, value: Any) -> tuple[Call, int] | None:
        if isinstance(value, Version):
            if value.index == BETWEEN:
                return self._clamped_below(value), 0
            call = None if value.index == UNKNOWN else self.call(value.writer)
            return None if call is None else (call, value.index)
        if value.op != "call_function":
            return None
        if value.target is operator.getitem:
            return self._define_item(value)
        call = self.call(value)
        if call is None or call.result(0) is not value:
            return None
        return call, 0

    def _define_item(self, item: fx.Node) -> tuple[Call, int] | None:
        parent, index = item.args
        if not isinstance(parent, fx.Node) or type(index) is not int:
            return None
        if id(parent.target) in aten.ITEM_READER_IDS:
            primitive = aten.read_item(parent, index)
            if primitive is None:
                return None
            args = tuple(self.read(parent, a) for a in primitive.args)
            return Call(primitive.op, args, parent, None, {0: [item]}), 0
        call = self.call(parent)
        if call is None:
            return None
        likely = index - (0 if call.binding is None else call.binding.item_offset)
        if item in call.results.get(likely, ()):
            return call, likely
        for position, nodes in call.results.items():
            if item in nodes:
                return call, position
        return None

    def inside(self, op: str, args: tuple[Any, ...], like: Any, reader: fx.Node) -> Version:
        """A value that the graph does not have, as `reader` would read it in another spelling."""
        self.halved = True
        node = like.node if isinstance(like, Version) else like
        value = Version(node, reader, BETWEEN, {reader: None}, False)
        self._defs[value] = Call(op, args, reader, None, {0: [value]}), 0
        return value

    def canonical(self, value: Any) -> Any:
        """The representative of a value: duplicate `getitem`s are one."""
        if value.target is not operator.getitem:
            return value
        definition = self.define(value)
        nodes = None if definition is None else definition[0].results.get(definition[1])
        return nodes[0] if nodes else value

    def shape(self, node: Any) -> tuple[Size, ...] | None:
        node = node.node if isinstance(node, Version) else node
        try:
            return self._shapes[node]
        except KeyError:
            value = node.meta.get("val")
            found = shape_of(value) if isinstance(value, torch.Tensor) else None
            self._shapes[node] = found
            return found

    # --- transparent operations ------------------------------------------------------------------

    def strip(self, value: Any, *, regroup: bool = False) -> Any:
        """The value behind operations that change nothing.

        With `regroup`, also behind reshapes of leading dimensions that keep the last one.
        """
        known = self._stripped[regroup]
        found = known.get(value)
        if found is None:
            found = known[value] = self._strip(value, regroup)
        return found

    def _strip(self, value: Any, regroup: bool) -> Any:
        if id(value.target) not in aten.NO_OP_IDS or not isinstance(value, fx.Node):
            return self.canonical(value)
        source = self._behind(value, regroup)
        return value if source is None else self.strip(source, regroup=regroup)

    def _behind(self, node: fx.Node, regroup: bool) -> Any | None:
        """What a node passes on unchanged, itself or at the end of reshapes that cancel out."""
        source = aten.first_argument(node)
        if not isinstance(source, fx.Node):
            return None
        if self._transparent(node, source, regroup):
            return self.read(node, source)
        if id(node.target) not in aten.VIEW_IDS or self.mutations.touches(node):
            return None
        while id(source.target) in aten.VIEW_IDS:
            behind = aten.first_argument(source)
            if not isinstance(behind, fx.Node):
                return None
            if self._transparent(node, behind, regroup):
                return behind
            source = behind
        return None

    def _transparent(self, node: fx.Node, source: fx.Node, regroup: bool) -> bool:
        after, before = node.meta.get("val"), source.meta.get("val")
        if not isinstance(after, torch.Tensor) or not isinstance(before, torch.Tensor):
            return False
        if after.dtype is not before.dtype:
            return False
        if id(node.target) in aten.COPY_IDS and self.mutations.touches(node, source):
            return False
        new, old = self.shape(node), self.shape(source)
        if new == old:
            return True
        if not regroup or id(node.target) not in aten.VIEW_IDS or not new or not old:
            return False
        return new[-1] == old[-1]

    def behind_views(self, value: Any) -> list[Any]:
        """A value and what stands behind each reshape in front of it, nearest first."""
        chain = [self.strip(value)]
        while isinstance(chain[-1], fx.Node) and id(chain[-1].target) in aten.VIEW_IDS:
            source = aten.first_argument(chain[-1])
            if not isinstance(source, fx.Node):
                break
            chain.append(self.strip(self.read(chain[-1], source)))
        return chain

    # --- calls -----------------------------------------------------------------------------------

    def call(self, node: fx.Node) -> Call | None:
        """The canonical call a node performs, None for what no declaration covers."""
        found: Call | None = self._calls.get(node, _MISSING)
        if found is _MISSING:
            found = self._calls[node] = self._call(node)
        return found

    def now(self, node: fx.Node) -> Call | None:
        """The canonical call of a node that may have been rewritten since the view was made."""
        return self._call(node)

    def _call(self, node: fx.Node) -> Call | None:
        target = node.target
        if target is auto_functionalized:
            return self._call_v1(node)
        if target is auto_functionalized_v2:
            return self._call_v2(node)
        if id(target) in aten.READER_IDS:
            primitive = aten.read(node)
            if primitive is None:
                return None
            args = primitive.args
            if self.mutations.any:
                args = tuple(self.read(node, a) for a in args)
            if primitive.op == aten.CLAMP:
                self.halved = True
                args = (Version(node, node, BETWEEN, {node: None}, False), args[2])
                return Call("prim.clamp_max", args, node, None, {0: [node]})
            return Call(primitive.op, args, node, None, {0: [node]})
        binding = self.bindings.of(target)
        return None if binding is None else self._call_declared(node, binding)

    def _clamped_below(self, between: Version) -> Call:
        """The first half of a clamp to both sides."""
        node = between.node
        primitive = aten.read(node)
        assert primitive is not None, node
        source, low, _ = primitive.args
        return Call("prim.clamp_min", (self.read(node, source), low), node, None, {0: [between]})

    def _call_declared(self, node: fx.Node, binding: Binding) -> Call | None:
        if _is_plain(node, binding) and not self.mutations.any:
            written = node.args if not binding.unlike else _alike(binding, list(node.args))
            return Call(binding.name, written, node, binding, _own_results(node, binding))
        given = _by_name(node.args, node.kwargs, binding)
        if given is None:
            return None
        args = _ordered(binding, given)
        if args is None:
            return None
        if self.mutations.any:
            args = tuple(self.read(node, a) for a in args)
        results = _own_results(node, binding)
        if not binding.mutated:
            return Call(binding.name, args, node, binding, results)
        for offset, name in enumerate(binding.mutated):
            version = self.mutations.written(node, given[name]) if given.get(name) else None
            if version is not None:
                results[binding.returns + offset] = [version]
        return Call(binding.name, args, node, binding, results, _buffers(binding, given))

    def _call_v1(self, node: fx.Node) -> Call | None:
        binding = self.bindings.of(node.args[0])
        given: dict[str, Any] = node.kwargs
        args = None if binding is None else _ordered(binding, given)
        if binding is None or args is None:
            return None
        results = _items(node, binding.item_offset)
        if self.mutations.any:
            args = tuple(self.read(node, a) for a in args)
        return Call(binding.name, args, node, binding, results, _buffers(binding, given))

    def _call_v2(self, node: fx.Node) -> Call | None:
        """Whole bases only: parts of them were set apart before."""
        binding = self.bindings.of(node.args[0])
        if binding is None:
            return None
        given = {k: v for k, v in node.kwargs.items() if not k.startswith("_")}
        bases = node.kwargs.get("_all_bases")
        if not isinstance(bases, (list, tuple)):
            return None
        if _makes_outputs(node, binding):
            return self._call_out(node, binding, given)
        item_of_argument: dict[str, int] = {}
        for name in binding.mutated:
            prefix = f"_{name}_"
            if any(f"{prefix}{part}" in node.kwargs for part in _PARTS):
                return None
            index = node.kwargs.get(f"{prefix}base_index", _MISSING)
            if index is _MISSING:
                return None
            if index is None:
                given[name] = None
                continue
            if type(index) is not int or index in item_of_argument.values():
                return None
            item_of_argument[name] = index
            given[name] = bases[index]
        args = _ordered(binding, given)
        if args is None:
            return None
        first = max(binding.returns, 1)
        items = _items(node, 0)
        results = {i: items[i] for i in range(binding.returns) if i in items}
        for offset, name in enumerate(binding.mutated):
            nodes = items.get(first + item_of_argument[name]) if name in item_of_argument else None
            if nodes:
                results[binding.returns + offset] = nodes
        if 0 in items and binding.returns == 0 and _returns_argument(node.args[0]):
            results[0] = [*results.get(0, ()), *items[0]]
        buffers = _buffers(binding, given)
        return Call(binding.name, args, node, binding, results, buffers)

    def _call_out(self, node: fx.Node, binding: Binding, given: dict[str, Any]) -> Call | None:
        """The memory of what an out= op writes is made with the call, which returns just that."""
        args = _ordered(binding, given)
        if args is None:
            return None
        results = {0: [node]} if len(binding.mutated) == 1 else _items(node, 0)
        return Call(binding.name, args, node, binding, results)


_MISSING: Any = object()
_PARTS = ("size", "slice_dim", "length")
"""What `auto_functionalized_v2` has of an argument that is not all of its base."""


def _makes_outputs(node: fx.Node, binding: Binding) -> bool:
    target: Any = node.args[0]
    return (
        binding.returns == 0
        and bool(binding.mutated)
        and all(f"_{name}_dtype" in node.kwargs for name in binding.mutated)
        and len(target._schema.returns) == len(binding.mutated)
    )


def _returns_argument(target: Any) -> bool:
    """What an op returns is the argument it writes."""
    returns = target._schema.returns
    return len(returns) == 1 and returns[0].alias_info is not None


def _index(graph: fx.Graph) -> dict[Any, list[fx.Node]]:
    """Nodes by target; functionalised mutating operations under the operation they wrap."""
    # By identity first: hashing an overload runs Python code.
    by_id: defaultdict[int, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "call_function":
            by_id[id(node.target)].append(node)
    wrapped: defaultdict[int, list[fx.Node]] = defaultdict(list)
    for wrapper in (auto_functionalized, auto_functionalized_v2):
        for node in by_id.pop(id(wrapper), ()):
            wrapped[id(node.args[0])].append(node)
    by_target: dict[Any, list[fx.Node]] = {}
    for nodes in by_id.values():
        by_target.setdefault(nodes[0].target, []).extend(nodes)
    for nodes in wrapped.values():
        by_target.setdefault(nodes[0].args[0], []).extend(nodes)
    return by_target


def _is_plain(node: fx.Node, binding: Binding) -> bool:
    """All arguments stand there as they are declared, and none is written."""
    if node.kwargs or binding.mutated or not binding.is_positional:
        return False
    return len(node.args) == len(binding.arguments)


def _by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], binding: Binding
) -> dict[str, Any] | None:
    """Arguments by name; None where the graph passes one the declaration does not know."""
    if len(args) > len(binding.names) or not kwargs.keys() <= binding.known:
        return None
    given = dict(zip(binding.names, args, strict=False))
    given.update(kwargs)
    return given


def _ordered(binding: Binding, given: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Call arguments in declaration order, defaults filled in."""
    names = given.keys()
    if not binding.needed <= names <= binding.known:
        return None
    full = given if len(names) == len(binding.known) else {**binding.defaults, **given}
    return _alike(binding, [full[argument.name] for argument in binding.arguments])


def _alike(binding: Binding, ordered: list[Any]) -> tuple[Any, ...]:
    """The arguments, each written in one way only."""
    for place, wants_float in binding.unlike:
        value = ordered[place]
        if isinstance(value, list):
            ordered[place] = tuple(value)
        elif wants_float and type(value) is int:
            ordered[place] = float(value)
    return tuple(ordered)


def _own_results(node: fx.Node, binding: Binding) -> dict[int, list[Any]]:
    return {0: [node]} if binding.returns == 1 else _items(node, 0)


def _buffers(binding: Binding, given: Mapping[str, Any]) -> tuple[fx.Node, ...]:
    return tuple([given[n] for n in binding.buffers if given.get(n) is not None])


def _items(node: fx.Node, offset: int) -> dict[int, list[Any]]:
    """`getitem` users by result index."""
    items: dict[int, list[Any]] = {}
    for user in node.users:
        if user.target is operator.getitem:
            index: Any = user.args[1]
            if type(index) is int:
                items.setdefault(index - offset, []).append(user)
    return items
