"""Values that the text leaves out: tuples of multi-output nodes, from their items and schemas."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._ops import OpOverload

from fusiondsl.graphs.annotations import Annotations


def complete(graph: fx.Graph, annotations: Annotations) -> None:
    """Gives every unannotated node that is read by `getitem` a tuple or list of values."""
    _type_buffers(graph, annotations)
    for node in graph.nodes:
        if "val" in node.meta:
            continue
        items = _items(node)
        if items:
            node.meta["val"] = _assemble(node, items, annotations)


def _type_buffers(graph: fx.Graph, annotations: Annotations) -> None:
    """Inputs without a type that a functionalised call writes are of the type of what it leaves."""
    for node in reversed(graph.nodes):
        if node.target not in (auto_functionalized, auto_functionalized_v2):
            continue
        items = _items(node)
        for index, buffer in enumerate(_mutated(node), start=_own_returns(node)):
            item = items.get(index)
            untyped = isinstance(buffer, fx.Node) and "val" not in buffer.meta
            if untyped and isinstance(item, torch.Tensor):
                sizes, strides = tuple(item.shape), tuple(item.stride())
                value = annotations.tensor(item.dtype, sizes, strides, item.device, None)
                buffer.meta["val"] = value


def _items(node: fx.Node) -> dict[int, Any]:
    items: dict[int, Any] = {}
    for user in node.users:
        if user.target is operator.getitem and user.args[0] is node and type(user.args[1]) is int:
            items.setdefault(user.args[1], user.meta.get("val"))
    return items


def _assemble(node: fx.Node, items: dict[int, Any], annotations: Annotations) -> Any:
    mutated = _mutated(node)
    returns = _own_returns(node)
    count = max(max(items) + 1, returns + len(mutated))
    values = [items.get(index) for index in range(count)]
    for index, buffer in enumerate(mutated, start=returns):
        if index < count and values[index] is None:
            values[index] = _like(buffer, annotations)
    return values if _is_list(node) else tuple(values)


def _is_list(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1:
        return False
    return isinstance(schema.returns[0].type, torch.ListType)


def _own_returns(node: fx.Node) -> int:
    """How many items stand before the mutated ones."""
    if node.target in (auto_functionalized, auto_functionalized_v2):
        op = node.args[0]
        return max(1, len(op._schema.returns)) if isinstance(op, OpOverload) else 1
    if isinstance(node.target, OpOverload) and not _is_list(node):
        return len(node.target._schema.returns)
    return 0


def _mutated(node: fx.Node) -> list[Any]:
    """The buffers whose new contents follow the op's own returns."""
    if node.target is auto_functionalized_v2:
        return list(node.kwargs.get("_all_bases", ()))  # type: ignore[arg-type]
    op = node.args[0] if node.target is auto_functionalized else None
    if not isinstance(op, OpOverload):
        return []
    names = [a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
    return [node.kwargs.get(name) for name in names]


def _like(buffer: Any, annotations: Annotations) -> Any:
    """The new contents of a buffer: another value of the same form (one each for a list)."""
    if isinstance(buffer, (list, tuple)):
        return [_like(item, annotations) for item in buffer]
    value = buffer.meta.get("val") if isinstance(buffer, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return None
    return annotations.tensor(
        value.dtype, tuple(value.shape), tuple(value.stride()), value.device, None
    )
