"""Nodes of a graph as they are drawn: what they do, what they give, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.engine.why.show import model_line, operation

_DTYPES = {
    getattr(torch, there): name for name, (there, _, _) in DTYPES.items() if hasattr(torch, there)
}
_KINDS = {"placeholder": "input", "get_attr": "input", "output": "output"}
_DEEPEST = 6
"""Nested lists of an argument that are written out."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page says of one node."""

    name: str
    kind: str
    """`input`, `item`, `op` or `output`."""
    op: str
    arguments: str
    values: tuple[str, ...]
    """Dtype, shape, strides and device of each value."""
    line: str | None
    """The line of the model."""
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """A graph at one moment: its nodes by name, in order."""

    nodes: Mapping[str, Shown]
    _identities: Mapping[str, fx.Node]

    @classmethod
    def at(cls, graph: fx.Graph) -> Look:
        nodes = {node.name: node for node in graph.nodes}
        return cls({name: shown(node) for name, node in nodes.items()}, nodes)

    def has(self, name: str, other: Look) -> bool:
        """Whether the node `other` knows by this name is here."""
        return self._identities.get(name) is other._identities[name]


def shown(node: fx.Node) -> Shown:
    kind = _KINDS.get(node.op, "op")
    if kind == "op" and getattr(node.target, "__name__", "") == "getitem":
        kind = "item"
    return Shown(
        node.name,
        kind,
        _op(node),
        "" if node.op == "placeholder" else ", ".join(_arguments(node)),
        tuple(_values(node.meta.get("val"))),
        model_line(node),
        tuple(source.name for source in node.all_input_nodes),
    )


def _op(node: fx.Node) -> str:
    if node.op == "placeholder":
        return "input"
    if node.op == "get_attr":
        return f"attribute {node.target}"
    return "output" if node.op == "output" else operation(node)


def _arguments(node: fx.Node) -> Iterator[str]:
    yield from map(_argument, node.args)
    for name, value in node.kwargs.items():
        yield f"{name}={_argument(value)}"


def _argument(value: Any, depth: int = 0) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple, dict)) and depth == _DEEPEST:
        return "..."
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_argument(item, depth + 1) for item in value)}]"
    if isinstance(value, dict):
        items = (f"{key}: {_argument(item, depth + 1)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (type(None), bool, int, float, torch.dtype, torch.device)):
        return str(value).removeprefix("torch.")
    return _plain(value)


def _plain(value: Any) -> str:
    """Objects by what they are: their own text may name an address, another one every time."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(value)
    if isinstance(value, (torch.layout, torch.memory_format, slice)):
        return str(value).removeprefix("torch.")
    return f"<{type(value).__name__}>"


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _values(item)
    elif isinstance(value, torch.Tensor):
        yield _tensor(value)
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield f"Sym({value})"
    elif isinstance(value, (bool, int, float)):
        yield str(value)


def _tensor(tensor: torch.Tensor) -> str:
    dtype = _DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    strides = ""
    if tensor.layout is torch.strided:
        strides = f"[{', '.join(map(str, tensor.stride()))}]"
    return f"{dtype}[{', '.join(map(str, tensor.shape))}]{strides}{tensor.device}"
