"""Operations that differ: something in between, another op, a part in another graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import fx

from benchmarks.breaks.source import Broken, Make, Source, also_called, internal

aten = torch.ops.aten


def in_between(make: Make) -> Iterator[Broken]:
    """Something that is no part of the source stands between two calls of it."""
    for what, build in _BETWEEN.items():
        for index in range(len(internal(make()))):
            source = make()
            name, node, (reader, *_) = internal(source)[index]
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.element_size() < 2:
                continue
            added = build(source, node)
            reader.replace_input_with(node, added[-1])
            yield source.broken(what, name, "structure", added, *also_called(source, name))


def _negated(source: Source, node: fx.Node) -> list[fx.Node]:
    return [source.add(node, aten.neg.default, node)]


def _cut(source: Source, node: fx.Node) -> list[fx.Node]:
    width = node.meta["val"].shape[-1]
    axis = node.meta["val"].dim() - 1
    return [source.add(node, aten.slice.Tensor, node, axis, 0, width // 2)]


def _refolded(source: Source, node: fx.Node) -> list[fx.Node]:
    shape = list(node.meta["val"].shape)
    return [source.add(node, aten.reshape.default, node, [*shape[:-1], 2, shape[-1] // 2])]


def _rounded(source: Source, node: fx.Node) -> list[fx.Node]:
    low = source.add(node, aten._to_copy.default, node, dtype=torch.float8_e5m2)
    back = source.add(low, aten._to_copy.default, low, dtype=node.meta["val"].dtype)
    return [low, back]


_BETWEEN: dict[str, Callable[[Source, fx.Node], list[fx.Node]]] = {
    "op in between": _negated,
    "sliced columns": _cut,
    "changed last dim": _refolded,
    "lossy cast": _rounded,
}


def split_graphs(make: Make) -> Iterator[Broken]:
    """The first part of the source is in another graph."""
    for index in range(len(internal(make()))):
        source = make()
        name, node, _ = internal(source)[index]
        with source.graph.inserting_before(next(iter(source.graph.nodes))):
            given = source.graph.placeholder(f"{name}_given")
        given.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(given)
        _return_what_follows(source, given)
        _prune(source)
        yield source.broken("split over two graphs", name, "structure", given, name)


def _return_what_follows(source: Source, given: fx.Node) -> None:
    """The second graph has no result of the first."""
    after = {given}
    for node in source.graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    last = next(reversed(source.graph.nodes))
    last.args = (tuple(n for n in last.args[0] if n in after and n is not given),)


def other_ops(make: Make) -> Iterator[Broken]:
    """Another op stands where a call of the source should."""
    for index, call in enumerate(make().rule.match):
        source = make()
        ops = source.rules.program.ops
        if call.op not in ops or len(source.rule.match) == 1:
            continue
        named = [name for name in call.results if name and name in source.nodes]
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        inputs = [n for n in node.all_input_nodes if n.meta["val"].dim() >= 2]
        if not inputs:
            continue
        with source.graph.inserting_after(node):
            other = source.graph.call_function(aten.relu.default, (inputs[0],))
        other.meta["val"] = inputs[0].meta["val"]
        # What the op made is made by the other one; what nobody can make is given.
        made = [other]
        for place, name in enumerate(named):
            value = source.nodes[name]
            if place == 0:
                value.replace_all_uses_with(other)
                other.meta["val"] = value.meta["val"]
                continue
            with source.graph.inserting_before(next(iter(source.graph.nodes))):
                given = source.graph.placeholder(f"{name}_given")
            given.meta["val"] = value.meta["val"]
            value.replace_all_uses_with(given)
            made.append(given)
        _prune(source)
        # Whoever looks for its inputs sees the other op, or that they are not there.
        yield source.broken("another op", call.op, "structure", [*made, *inputs], *named)


def _prune(source: Source) -> None:
    """Erases what nobody uses any more, mutating wrappers included."""
    for node in reversed(source.graph.nodes):
        if node.op == "call_function" and not node.users:
            source.graph.erase_node(node)
