"""Symbolic sizes as graph arguments: a `SymInt` input if there is one, else read off a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch import fx

from fusiondsl.dims.dim import Dim
from fusiondsl.engine.symbols import Size, shape_of, size_of

_SYM_SIZE = torch.ops.aten.sym_size.int


class Sizes:
    """Where the sizes of one graph can be read."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph

    @cached_property
    def _inputs(self) -> dict[Size, fx.Node]:
        inputs: dict[Size, fx.Node] = {}
        for node, value in self._values:
            if type(value) is torch.SymInt:
                inputs.setdefault(size_of(value), node)
        return inputs

    @cached_property
    def _values(self) -> list[tuple[fx.Node, Any]]:
        """Every input of the graph with its value."""
        return [
            (node, node.meta.get("val"))
            for node in self._graph.find_nodes(op="placeholder", sort=False)
        ]

    @cached_property
    def row_counts(self) -> frozenset[str]:
        """Symbols that are the number of rows of an input."""
        leading = {
            shape_of(value)[: max(1, value.dim() - 1)]
            for _, value in self._values
            if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides
        }
        rows = {Dim.product(sizes).as_symbol() for sizes in leading if symbolic(sizes)}
        return frozenset(name for name in rows if name is not None)

    def source(
        self, size: Size, tensors: Iterable[fx.Node]
    ) -> fx.Node | tuple[fx.Node, int] | None:
        """A node that is the size, or a (tensor, dimension) that has it."""
        if size in self._inputs:
            return self._inputs[size]
        for node in tensors:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            for dim, found in enumerate(shape_of(value)):
                if found == size:
                    return node, dim
        return None

    def are_inputs(self, sizes: tuple[Size, ...]) -> bool:
        """The graph is given all of them."""
        return all(map(self._inputs.__contains__, sizes))

    def expressible(self, size: Size, tensors: Iterable[fx.Node]) -> bool:
        return type(size) is int or self.source(size, tensors) is not None


def symbolic(shape: Iterable[Size]) -> list[Size]:
    return [size for size in shape if type(size) is not int]


def sym_size(graph: fx.Graph, tensor: fx.Node, dim: int) -> fx.Node:
    node = graph.call_function(_SYM_SIZE, (tensor, dim))
    node.meta["val"] = tensor.meta["val"].shape[dim]
    return node
