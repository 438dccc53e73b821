"""Nodes and values of a graph in words, and the lines of a model they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.dims import show
from fusiondsl.engine.mutation import VALUES, Version
from fusiondsl.engine.typecheck import scalar_value
from fusiondsl.graphs.opaque import OpaqueOp

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+?)\n\s*(.*)')
_MANY = 3


def value_text(value: Any) -> str:
    """A graph argument as a rule would write it."""
    if isinstance(value, VALUES):
        return value.name
    return show(scalar_value(value))


def target_text(node: Any) -> str:
    """What a node does: `torch.ops.aten.mul.Tensor` as `aten.mul.Tensor`."""
    if isinstance(node, Version):
        return f"{node.name} as {target_text(node.writer)} leaves it"
    if not isinstance(node, fx.Node):
        return value_text(node)
    if node.op == "placeholder":
        return "an input of the graph"
    if node.op == "output":
        return "the output of the graph"
    if node.op == "get_attr":
        return f"the attribute {node.target}"
    return operation(node)


def operation(node: fx.Node) -> str:
    target: Any = node.target
    if target in (auto_functionalized, auto_functionalized_v2):
        target = node.args[0]
    if node.op == "call_function" and getattr(target, "__name__", "") == "getitem":
        parent = node.args[0]
        return f"item {node.args[1]} of {operation(parent)}" if isinstance(parent, fx.Node) else ""
    if isinstance(target, (torch._ops.OpOverload, OpaqueOp)) or not callable(target):
        return str(target).removeprefix("torch.ops.")
    return str(getattr(target, "__name__", target))


def several(texts: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    found = list(dict.fromkeys(texts))
    if len(found) <= _MANY:
        return ", ".join(found)
    return f"{', '.join(found[:_MANY])} and {len(found) - _MANY} more"


def model_line(node: Any) -> str | None:
    """The innermost line of the model that made a node, `file.py:12 in forward: x = ...`."""
    node = node.writer if isinstance(node, Version) else node
    trace = node.meta.get("stack_trace") if isinstance(node, fx.Node) else None
    frames = _FRAME.findall(trace) if isinstance(trace, str) else []
    if not frames:
        return None
    file, line, function, code = frames[-1]
    return f"{file}:{line} in {function}" + (f": {code.strip()}" if code.strip() else "")
