"""Nodes and values of a graph in words, and the lines of a model they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
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
    frame = innermost_frame(node)
    return None if frame is None else _in_short(frame)


def innermost_frame(node: Any) -> str | None:
    """That line as a stack trace has it."""
    node = node.writer if isinstance(node, Version) else node
    trace = node.meta.get("stack_trace") if isinstance(node, fx.Node) else None
    return _last_frame(trace) if isinstance(trace, str) else None


@lru_cache(maxsize=4096)
def _last_frame(trace: str) -> str | None:
    found = [match[0] for match in _FRAME.finditer(trace)]
    return found[-1] if found else None


@lru_cache(maxsize=4096)
def _in_short(frame: str) -> str | None:
    found = _FRAME.fullmatch(frame)
    if found is None:
        return None
    file, line, function, code = found.groups()
    return f"{file}:{line} in {function}" + (f": {code.strip()}" if code.strip() else "")
