"""What a graph computes, as expressions that do not depend on names, order or duplicate calls.

Our fused ops are lowered to vLLM's by the declaration's own `impl "torch:..."`, so that both sides
speak of the same kernels.
"""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusiondsl.dims.expr import Expr, Literal, Name, Sequence
from fusiondsl.graphs.opaque import OpaqueOp
from fusiondsl.graphs.targets import name_of
from fusiondsl.ir.program import Impl, OpDecl, Program

Value: TypeAlias = tuple[Any, ...]

aten = torch.ops.aten
RESHAPES = {aten.reshape.default, aten.view.default, aten.squeeze.dim}
_ZEROS = {aten.zeros.default, aten.zeros_like.default}
_FULL = {aten.full.default, aten.full_like.default}


class Values:
    """Expressions of the values of one graph."""

    def __init__(self, program: Program, defaults: dict[str, list[list[Any]]]) -> None:
        self._ours = {decl.torch_name: decl for decl in program.ops.values() if not decl.extern}
        self._defaults = defaults
        self._known: dict[fx.Node, Value] = {}

    def outputs(self, graph: fx.Graph) -> list[Value]:
        for node in graph.nodes:
            if node.op != "output":
                self._known[node] = self._value(node)
        (result,) = graph.output_node().args
        assert isinstance(result, (tuple, list))
        return [self._argument(item) for item in result]

    def _value(self, node: fx.Node) -> Value:
        val = node.meta.get("val")
        if isinstance(val, (int, torch.SymInt)):
            return ("size", str(val))
        if node.op == "placeholder":
            return ("input", node.target)
        assert node.op == "call_function", node
        if node.target in _ZEROS or (node.target in _FULL and node.args[1] == 0):
            return ("zeros", *_form(val))
        if node.target is aten.empty.memory_format:
            return _buffer(val)
        if node.target in RESHAPES:
            return self._reshaped(node)
        if node.target is aten.clone.default:  # outputs of a graph never share memory
            source = node.args[0]
            assert isinstance(source, fx.Node)
            return self._known[source]
        if node.target is operator.getitem:
            return self._item(node)
        if node.target is aten.slice.Tensor:
            return self._slice(node)
        return self._call(node)

    def _reshaped(self, node: fx.Node) -> Value:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        # Of several reshapes in a row only the last counts.
        while source.target in RESHAPES:
            if _form(source.meta["val"]) == _form(node.meta["val"]):
                return self._known[source]
            source = source.args[0]
            assert isinstance(source, fx.Node)
        value = self._known[source]
        if _form(source.meta["val"]) == _form(node.meta["val"]):
            return value
        return ("reshape", value, *_form(node.meta["val"]))

    def _item(self, node: fx.Node) -> Value:
        source, index = node.args
        assert isinstance(source, fx.Node)
        assert isinstance(index, int)
        decl = self._ours.get(_torch_name(source))
        if decl is None:
            return ("item", self._known[source], index)
        result = decl.results[index].name
        return ("item", self._known[source], _position(decl, _impl(decl), result))

    def _slice(self, node: fx.Node) -> Value:
        source, dim, *rest = node.args
        assert isinstance(source, fx.Node)
        assert isinstance(dim, int)
        rank = source.meta["val"].dim()
        return ("slice", self._known[source], dim % rank, *(self._argument(arg) for arg in rest))

    def _call(self, node: fx.Node) -> Value:
        name = _torch_name(node)
        decl = self._ours.get(name)
        if decl is not None:
            return self._lowered(node, decl)
        args = [self._argument(arg) for arg in node.args]
        kwargs = {key: self._argument(arg) for key, arg in node.kwargs.items()}
        if node.target is auto_functionalized:
            # A buffer that is made for the call says nothing but its form.
            return ("call", _name_of(node.args[0]), (), _sorted(kwargs))
        return ("call", name, self._trimmed(name, args), _sorted(kwargs))

    def _lowered(self, node: fx.Node, decl: OpDecl) -> Value:
        impl = _impl(decl)
        bound = dict(zip((p.name for p in decl.params), node.args, strict=False))
        bound.update(node.kwargs)
        name = impl.location.removeprefix("torch:")
        args = [self._argument(_evaluate(expr, bound)) for expr in impl.args]
        buffers = dict(zip((r.name for r in decl.results), node.meta["val"], strict=True))
        kwargs = {
            key: _buffer(buffers[expr.id])
            if isinstance(expr, Name) and expr.id in buffers
            else self._argument(_evaluate(expr, bound))
            for key, expr in impl.kwargs
        }
        return ("call", name, self._trimmed(name, args), _sorted(kwargs))

    def _trimmed(self, name: str, args: list[Value]) -> tuple[Value, ...]:
        """Arguments without trailing ones that are the default."""
        for position, default in reversed(self._defaults.get(name, [])):
            if len(args) == position + 1 and args[position] == self._argument(default):
                args = args[:position]
        return tuple(args)

    def _argument(self, arg: Any) -> Value:
        if isinstance(arg, fx.Node):
            return self._known[arg]
        if isinstance(arg, (list, tuple)):
            return ("list", *(self._argument(item) for item in arg))
        return (type(arg).__name__, str(arg))


def _form(val: Any) -> tuple[Any, ...]:
    return str(tuple(val.shape)), str(tuple(val.stride())), val.dtype, str(val.device)


def _buffer(val: Any) -> Value:
    return ("buffer", *_form(val))


def _sorted(kwargs: dict[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(kwargs.items()))


def _torch_name(node: fx.Node) -> str:
    return _name_of(node.target)


def _name_of(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name if target._overloadname == "default" else str(target)
    if isinstance(target, OpaqueOp):
        plain = target.torch_name is not None and target.overload == "default"
        return str(target.torch_name) if plain else target.name
    return name_of(target)


def _impl(decl: OpDecl) -> Impl:
    return next(impl for impl in decl.impls if impl.location.startswith("torch:"))


def _position(decl: OpDecl, impl: Impl, result: str) -> int:
    """Which item of the call it is: what is returned, then what is written."""
    shape = impl.results
    returned = shape.items if isinstance(shape, Sequence) else () if shape is None else (shape,)
    results = {r.name for r in decl.results}
    written = [e for _, e in impl.kwargs if isinstance(e, Name) and e.id in results]
    names = [item.id for item in (*returned, *written) if isinstance(item, Name)]
    return names.index(result)


def _evaluate(expr: Expr, bound: dict[str, Any]) -> Any:
    if isinstance(expr, Name):
        return bound[expr.id]
    assert isinstance(expr, Literal), expr
    return expr.value
