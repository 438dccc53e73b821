"""Structural equality of two graphs: names and placement ignored, calls and values compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import fx


@dataclass(frozen=True)
class Comparison:
    """What two graphs have in common, size nodes and the default layout left out."""

    equal: bool
    left_nodes: int
    right_nodes: int
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]


def _val_signature(val: object) -> object:
    if isinstance(val, torch.Tensor):
        return (*map(str, val.shape), "|", *map(str, val.stride()), val.dtype, str(val.device))
    if isinstance(val, (tuple, list)):
        return tuple(_val_signature(item) for item in val)
    return str(val)


class _Fingerprints:
    """A structural hash a node: two nodes agree if everything they depend on agrees."""

    def __init__(self, graph: fx.Graph) -> None:
        self._of: dict[fx.Node, int] = {}
        self.counts: Counter[int] = Counter()
        self.names: dict[int, str] = {}
        for node in graph.nodes:
            fingerprint = hash(self._key(node))
            self._of[node] = fingerprint
            if _is_size(node):
                continue
            self.counts[fingerprint] += 1
            self.names.setdefault(fingerprint, node.format_node() or node.name)

    def _key(self, node: fx.Node) -> tuple[object, ...]:
        if _is_size(node):
            return ("size", str(node.meta["val"]))
        if node.op == "placeholder":
            return ("placeholder", str(node.target))
        kwargs = {
            name: value
            for name, value in node.kwargs.items()
            if not (name == "layout" and value == torch.strided)
        }
        val = None if node.op == "output" else _val_signature(node.meta.get("val"))
        arguments = self._argument(node.args), self._argument(tuple(sorted(kwargs.items())))
        return (node.op, str(node.target), *arguments, val)

    def _argument(self, value: object) -> object:
        if isinstance(value, fx.Node):
            return self._of[value]
        if isinstance(value, (list, tuple)):
            return tuple(self._argument(item) for item in value)
        return repr(value)


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def compare(left: fx.GraphModule, right: fx.GraphModule) -> Comparison:
    """Compare two graphs as multisets of nodes, each node with all that it depends on."""
    a, b = _Fingerprints(left.graph), _Fingerprints(right.graph)
    only_left = a.counts - b.counts
    only_right = b.counts - a.counts
    return Comparison(
        equal=not only_left and not only_right,
        left_nodes=a.counts.total(),
        right_nodes=b.counts.total(),
        only_left=tuple(a.names[f] for f in only_left),
        only_right=tuple(b.names[f] for f in only_right),
    )
