"""Symbolic sizes as graph arguments: a `SymInt` input if there is one, else read off a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusiondsl import ir
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.expr import Expr, Name, Spread
from fusiondsl.engine.bindings import Binding, Bindings
from fusiondsl.engine.symbols import Size, as_dim, shape_of, size_of

_SYM_SIZE = torch.ops.aten.sym_size.int


class Sizes:
    """Where the sizes of one graph can be read."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._equal: Mapping[str, str] | None = None

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

    def equal(self, bindings: Bindings) -> Mapping[str, str]:
        """Symbols that calls of the graph need to be equal, each with the one that stands for it.

        An op declared for `T` positions and `T` tokens runs with as many of one as of the other,
        whatever symbols the graph has for them.
        """
        if self._equal is None:
            several = len(self.row_counts) > 1
            self._equal = _united(self._graph, bindings) if several else {}
        return self._equal

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


def _united(graph: fx.Graph, bindings: Bindings) -> dict[str, str]:
    """By symbol the first that it must be equal to."""
    standing: dict[str, str] = {}
    for node in graph.nodes:
        binding, given = _declared(node, bindings)
        if binding is None:
            continue
        seen: dict[str, str] = {}
        for name, symbol in _named_symbols(binding, given):
            symbol = standing.get(symbol, symbol)
            first = seen.setdefault(name, symbol)
            first = standing.get(first, first)
            if first != symbol:
                standing = {s: first if to == symbol else to for s, to in standing.items()}
                standing[symbol] = first
    return standing


def _declared(node: fx.Node, bindings: Bindings) -> tuple[Binding | None, Mapping[str, Any]]:
    """The declaration that a call stands for, and its arguments by name."""
    if node.op != "call_function":
        return None, {}
    if node.target is auto_functionalized:
        return bindings.of(node.args[0]), node.kwargs
    binding = bindings.of(node.target)
    names = () if binding is None else binding.names
    return binding, {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _named_symbols(binding: Binding, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of dimensions in the declaration, with the symbols that stand there."""
    for param in binding.decl.params:
        value = given.get(param.name)
        tensor = value.meta.get("val") if isinstance(value, fx.Node) else None
        if not isinstance(param.type, ir.TensorType) or not isinstance(tensor, torch.Tensor):
            continue
        shape = shape_of(tensor)
        if len(shape) != len(param.type.dims):
            continue
        for expr, size in zip(param.type.dims, shape, strict=True):
            name, symbol = _name(expr), as_dim(size).as_symbol()
            if name is not None and symbol is not None:
                yield name, symbol


def _name(expr: Expr) -> str | None:
    if isinstance(expr, Spread):
        return expr.name
    return expr.id if isinstance(expr, Name) else None
