"""Raw mutation: which value a buffer holds where, and what else may be written or observed.

A graph after defunctionalisation has calls that write their arguments. Each write starts a new
*version* of the buffer; a read sees the version of the last write before it. Graphs without raw
mutation, the usual case in front of Inductor's post-grad hook, cost nothing here.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fusiondsl.engine import aten
from fusiondsl.graphs.opaque import OpaqueOp

if TYPE_CHECKING:
    from fusiondsl.engine.bindings import Bindings


UNKNOWN = -1
"""Index of a version that is no result of its writer."""
BETWEEN = -2
"""Index of a value inside of an operation that is two primitives; nothing is written."""


@dataclass(eq=False, slots=True)
class Version:
    """The value that `writer` leaves in buffer `node` as its result `index`."""

    node: fx.Node
    writer: fx.Node
    index: int
    users: dict[fx.Node, None]
    """Reads of the buffer after this write and before the next one."""
    observable: bool
    """The buffer is a graph input or has aliases read after the write: it cannot disappear."""
    next_writer: fx.Node | None = None
    """The call that writes the buffer next."""

    @property
    def meta(self) -> dict[str, Any]:
        return self.node.meta

    @property
    def name(self) -> str:
        return self.node.name

    op = "version"
    target = None

    def __lt__(self, other: Any) -> bool:
        return self.writer < (other.writer if isinstance(other, Version) else other)

    def __gt__(self, other: Any) -> bool:
        return self.writer > (other.writer if isinstance(other, Version) else other)


VALUES = (fx.Node, Version)
"""What a value of the normal view can be; a tuple, because `isinstance` of a union is slower."""


@lru_cache(maxsize=4096)
def is_mutating(target: Any) -> bool:
    """The operation may write an argument, or has an effect nobody declared."""
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    return isinstance(target, OpaqueOp)


@lru_cache(maxsize=4096)
def is_effectful(target: Any) -> bool:
    """Order matters for this operation beyond its data flow."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or target in fx.node._side_effectful_functions


class Mutations:
    """The raw writes of one graph."""

    def __init__(
        self, graph: fx.Graph, by_target: dict[Any, list[fx.Node]], bindings: Bindings
    ) -> None:
        self._bindings = bindings
        # A functionalised call is filed under the mutating op it wraps, but writes nothing.
        writers = [
            node
            for target, nodes in by_target.items()
            if is_mutating(target)
            for node in nodes
            if node.target is target
        ]
        self.any = bool(writers)
        self._position: dict[fx.Node, int] = {}
        self._writes: dict[fx.Node, list[tuple[int, fx.Node]]] = {}
        self._versions: dict[tuple[fx.Node, fx.Node], Version] = {}
        if self.any:
            self._collect(graph, writers)

    def _collect(self, graph: fx.Graph, writers: list[fx.Node]) -> None:
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        for writer in sorted(writers, key=self._position.__getitem__):
            for buffer in written_arguments(writer):
                root = root_of(buffer)
                self._writes.setdefault(root, []).append((self._position[writer], writer))

    @property
    def buffers(self) -> Collection[fx.Node]:
        """The memory that is written somewhere in the graph."""
        return self._writes.keys()

    def touches(self, *nodes: fx.Node) -> bool:
        """Some buffer behind these nodes is written somewhere in the graph."""
        return self.any and any(root_of(node) in self._writes for node in nodes)

    def written_between(self, node: fx.Node, first: fx.Node, last: fx.Node) -> fx.Node | None:
        """A write to the buffer of `node` after `first` and before `last`, if there is one."""
        if not self.any:
            return None
        low, high = self._position.get(first, -1), self._position.get(last, 1 << 60)
        low, high = min(low, high), max(low, high)
        for position, writer in self._writes.get(root_of(node), ()):
            if low < position < high:
                return writer
        return None

    def version(self, user: fx.Node, argument: fx.Node) -> Any:
        """The value `user` reads through `argument`."""
        writes = self._writes.get(root_of(argument))
        if not writes:
            return argument
        before = bisect_left(writes, (self._position[user],)) - 1
        if before < 0 or self._position[argument] > writes[before][0]:
            return argument
        writer = writes[before][1]
        return self.written(writer, argument) or self._unknown(writer, argument)

    def _unknown(self, writer: fx.Node, argument: fx.Node) -> Version:
        """What is left of a value after a write that no declaration describes, or to an alias."""
        key = (writer, argument)
        return self._versions.setdefault(key, Version(argument, writer, UNKNOWN, {}, True))

    def written(self, writer: fx.Node, buffer: Any) -> Version | None:
        """The version a call leaves in a buffer, None where the buffer is not what it writes."""
        if not isinstance(buffer, fx.Node):
            return None
        key = (writer, buffer)
        if key not in self._versions:
            version = self._make(writer, buffer)
            if version is None:
                return None
            self._versions[key] = version
        return self._versions[key]

    def _make(self, writer: fx.Node, buffer: fx.Node) -> Version | None:
        binding = self._bindings.of(writer.target)
        if binding is None:
            return None
        given = dict(zip(binding.names, writer.args, strict=False))
        given.update(writer.kwargs)
        for offset, name in enumerate(binding.mutated):
            if given.get(name) is buffer:
                index = binding.returns + offset
                return Version(buffer, writer, index, *self._readers(writer, buffer))
        return None

    def _readers(
        self, writer: fx.Node, buffer: fx.Node
    ) -> tuple[dict[fx.Node, None], bool, fx.Node | None]:
        root = root_of(buffer)
        start = self._position[writer]
        stop, after = next(
            ((p, node) for p, node in self._writes[root] if p > start), (1 << 60, None)
        )
        users = {u: None for u in buffer.users if start < self._position[u] <= stop}
        aliased = root is not buffer or any(
            is_alias(user) for user in buffer.users if user is not writer
        )
        return users, root.op != "call_function" or aliased, after


@lru_cache(maxsize=4096)
def _may_alias(target: Any) -> bool:
    if target in aten.COPIES:
        return False
    if target in aten.NO_OPS:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(r.alias_info is not None for r in target._schema.returns) or any(
        r.type.kind() == "ListType" and target.namespace == "aten" for r in target._schema.returns
    )


@lru_cache(maxsize=4096)
def _aliased_place(target: Any) -> int:
    """Of the argument that a result may share memory with: of an out= op the last one."""
    schema: Any = getattr(target, "_schema", None)
    returned = schema.returns[0].alias_info if schema is not None and schema.returns else None
    if returned is None:
        return 0
    arguments = enumerate(schema.arguments)
    given = ((i, a.alias_info) for i, a in arguments if a.alias_info is not None)
    return next((i for i, info in given if info.before_set & returned.before_set), 0)


def is_alias(node: fx.Node) -> bool:
    """The node may share memory with an argument."""
    return node.target is operator.getitem or _may_alias(node.target)


def _shared(node: fx.Node) -> Any:
    """The argument that a node may share memory with."""
    place = 0 if node.target is operator.getitem else _aliased_place(node.target)
    if place == 0:
        return aten.first_argument(node)
    if place < len(node.args):
        return node.args[place]
    target: Any = node.target
    return node.kwargs.get(target._schema.arguments[place].name)


def root_of(node: fx.Node) -> fx.Node:
    """The node that owns the memory of `node`."""
    while is_alias(node):
        source = _shared(node)
        if not isinstance(source, fx.Node):
            break
        if node.target is operator.getitem and not _may_alias(source.target):
            break
        node = source
    return node


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """The arguments an operation writes, by its schema; all of them where it has none."""
    target: Any = node.target
    if isinstance(target, OpaqueOp):
        return node.all_input_nodes
    written: list[fx.Node] = []
    for i, argument in enumerate(target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        values = value if isinstance(value, (list, tuple)) else (value,)
        written.extend(v for v in values if isinstance(v, fx.Node))
    return written
