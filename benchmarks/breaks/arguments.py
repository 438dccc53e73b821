"""Arguments of calls that differ: literals, arguments nobody declared, attributes of primitives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from benchmarks.breaks.source import Broken, Make, Source, target_of
from fusiondsl import ir


def literals(make: Make) -> Iterator[Broken]:
    """A literal of the source has another value in the graph."""
    source = make()
    for index, call in enumerate(source.rule.match):
        decl = source.rules.program.ops.get(call.op)
        if decl is None:
            continue
        for param, operand in zip(decl.call_params, call.args, strict=True):
            if not isinstance(operand, ir.Const) or operand.value is None:
                continue
            fresh = make()
            node = fresh.call_of(fresh.rule.match[index])
            if node is None or not _set(fresh, node, param.name, _other(fresh, node, param.name)):
                continue
            default = param.default is not None and param.default == operand
            kind = "another value than the default" if default else "literal"
            yield fresh.broken(kind, f"{call.op}.{param.name}", "constant", node, param.name)


def _given(source: Source, node: fx.Node, name: str) -> Any:
    binding = source.rules.compiled.bindings.of(target_of(node))
    assert binding is not None
    if name in node.kwargs:
        return node.kwargs[name]
    place = binding.names.index(name)
    return node.args[place] if place < len(node.args) else None


def _other(source: Source, node: fx.Node, name: str) -> Any:
    value = _given(source, node, name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, torch.dtype):
        return torch.float64 if value is not torch.float64 else torch.float32
    if isinstance(value, (int, float)):
        return type(value)(value * 2 + 1)
    return f"{value}_other" if isinstance(value, str) else None


def _set(source: Source, node: fx.Node, name: str, value: Any) -> bool:
    if value is None:
        return False
    if name in node.kwargs or node.target is auto_functionalized:
        node.kwargs = {**node.kwargs, name: value}
        return True
    binding = source.rules.compiled.bindings.of(node.target)
    assert binding is not None
    place = binding.names.index(name)
    if place >= len(node.args):
        return False
    node.args = (*node.args[:place], value, *node.args[place + 1 :])
    return True


def keywords(make: Make) -> Iterator[Broken]:
    """A call is given an argument that its declaration does not name."""
    for index, call in enumerate(make().rule.match):
        source = make()
        if call.op not in source.rules.program.ops:
            continue
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        node.kwargs = {**node.kwargs, "unheard_of": True}
        yield source.broken("unnamed keyword", call.op, "constant", node, "unheard_of")


def attributes(make: Make) -> Iterator[Broken]:
    """A primitive has another axis, bound or value."""
    for index, call in enumerate(make().rule.match):
        source = make()
        if call.op not in ("prim.slice", "prim.pad"):
            continue
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        if call.op == "prim.slice":
            node.args = (node.args[0], 0, *node.args[2:])
            yield source.broken("other axis", call.op, "constant", node, "dim")
        else:
            node.args = (*node.args[:2], 1.0)
            yield source.broken("literal", call.op, "constant", node, "value")
