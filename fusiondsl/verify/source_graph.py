"""The source of a rule as an FX graph with fake values: what the rule must recognise."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._subclasses.fake_tensor import FakeTensorMode

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Dim
from fusiondsl.dims import names as names_in
from fusiondsl.dims.expr import Name, Spread
from fusiondsl.engine.bindings import Binding
from fusiondsl.engine.compile import Compiled, dtype_table
from fusiondsl.engine.dryrun import buffer_dtype, buffer_shape, call_scope
from fusiondsl.engine.recipe import Operands, primitive, spell_out
from fusiondsl.ops.context import Context
from fusiondsl.ops.dtypes import from_torch
from fusiondsl.ops.registry import overload
from fusiondsl.ops.scope import Scope, sizes

_PLACEHOLDER_SCALARS: Mapping[str, Any] = {"int": 1, "float": 1.0, "bool": False}
"""What stands for `_` in the source where the parameter has no default."""

_MADE_UP: Mapping[str, Any] = {**_PLACEHOLDER_SCALARS, "str": "", "layer": "layers.0"}
"""Scalars of a reader."""


class NoSource(Exception):
    """The source cannot be built for these values; the message says why."""


def source_graph(
    rule: ir.Rule,
    compiled: Compiled,
    values: Mapping[str, Any],
    misread: str | None = None,
) -> fx.GraphModule:
    """A graph of exactly the rule's `match`, its replaced and kept values returned.

    `values` has every dim (a spread as a tuple), dtype variable and scalar. Semantic ops are
    written as our own registered op. A value whose readers the rule names is read by one of them
    instead of being returned, unless that condition has the label `misread`.
    """
    return named_source(rule, compiled, values, misread)[0]


def named_source(
    rule: ir.Rule,
    compiled: Compiled,
    values: Mapping[str, Any],
    misread: str | None = None,
) -> tuple[fx.GraphModule, dict[str, fx.Node]]:
    """The same with the nodes of all names of the rule's `match`."""
    try:
        builder = _Builder(rule, compiled, values)
        return builder.build(misread), builder.nodes
    except NoSource:
        raise
    except Exception as error:  # a fake or a schema refuses what the example asks for
        raise NoSource(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


class _Builder:
    def __init__(self, rule: ir.Rule, compiled: Compiled, values: Mapping[str, Any]) -> None:
        self.rule = rule
        self.compiled = compiled
        self.values = values
        self.graph = fx.Graph()
        self.mode = FakeTensorMode()
        self.nodes: dict[str, fx.Node] = {}
        self.dtypes = dtype_table(compiled.target.arch)
        scope = {**compiled.constants, **{k: scope_value(v) for k, v in values.items()}}
        self.operands = Operands(
            compiled.bindings, scope, NO_FACTS, compiled.functions, self.dtypes
        )

    def build(self, misread: str | None) -> fx.GraphModule:
        for param in self.rule.params:
            if isinstance(param.type, ir.TensorType):
                self._input(param.name, param.type)
        for call in self.rule.match:
            self._write(call)
        names = dict.fromkeys([*(matched for matched, _ in self.rule.outputs), *self.rule.kept])
        for readers in self.rule.readers:
            if misread is not None and readers.label == misread:
                continue
            self._read(readers)
            names.pop(readers.value, None)
        self.graph.output(tuple(self.nodes[name] for name in names if name in self.nodes))
        return fx.GraphModule(torch.nn.Module(), self.graph)

    def _input(self, name: str, declared: ir.TensorType) -> None:
        scope = Scope(dict(self.values), Context.of(self.compiled.program))
        shape = [int(size) for size in sizes(declared.dims, scope)]
        dtype = self._dtype(declared, scope)
        node = self.graph.placeholder(name)
        with self.mode:
            if declared.strides is None:
                node.meta["val"] = torch.empty(shape, dtype=dtype)
            else:
                strides = [int(stride) for stride in sizes(declared.strides, scope)]
                node.meta["val"] = torch.empty_strided(shape, strides, dtype=dtype)
        self.nodes[name] = node

    def _dtype(self, declared: ir.TensorType, scope: Scope) -> torch.dtype:
        if declared.dtype in self.dtypes:
            return self.dtypes[declared.dtype]
        if declared.dtype == "any":
            return torch.float32
        found = scope.lookup(declared.dtype)
        first = found[0] if isinstance(found, tuple) else found
        return first if isinstance(first, torch.dtype) else self.dtypes[str(first)]

    # --- readers ---------------------------------------------------------------------------------

    def _read(self, readers: ir.Readers) -> None:
        """A call that reads the value as the rule says; what else it takes is made up."""
        op, parameter = readers.roles[0]
        decl = self.compiled.program.ops[op]
        target = overload(decl)
        binding = None if target is None else self.compiled.bindings.of(target)
        if target is None or binding is None:
            raise NoSource(f"this process has no op {decl.torch_name} as declared")
        value = self.nodes[readers.value]
        scope = self._scope_of_reader(decl, parameter, _val(value))
        given = dict(readers.given)
        args: list[Any] = []
        for param in decl.call_params:
            if param.name == parameter:
                args.append(value)
            elif param.name in given:
                args.append(self._operand(ir.Ref(given[param.name])))
            else:
                args.append(self._made_up(param, scope, f"{readers.value}_{param.name}"))
        if binding.mutated:
            named = dict(zip([a.name for a in binding.arguments], args, strict=True))
            kwargs = {name: named.get(name) for name in binding.names}
            self._call(auto_functionalized, (target,), kwargs)
            return
        positional, keywords = binding.written(args)
        self._call(target, positional, keywords)

    def _scope_of_reader(
        self, decl: ir.OpDecl, parameter: str, value: torch.Tensor
    ) -> dict[str, Any]:
        """Sizes of the value as the reader calls them; 1 for others, and its dtype for all."""
        types = [p.type for p in decl.call_params if isinstance(p.type, ir.TensorType)]
        scope: dict[str, Any] = {t.dtype: value.dtype for t in types}
        for dim in (d for t in types for d in t.dims):
            if isinstance(dim, Spread):
                scope[dim.name] = (1,)
            scope.update((name, 1) for name in names_in(dim) if not isinstance(dim, Spread))
        (read,) = (p.type for p in decl.call_params if p.name == parameter)
        assert isinstance(read, ir.TensorType)
        trailing = [d for d in read.dims if not isinstance(d, Spread)]
        split = value.dim() - len(trailing)
        for dim in (d for d in read.dims if isinstance(d, Spread)):
            scope[dim.name] = tuple(value.shape[:split])
        for dim, size in zip(trailing, value.shape[split:], strict=True):
            if isinstance(dim, Name):
                scope[dim.id] = size
        return scope

    def _made_up(self, param: ir.Param, values: dict[str, Any], name: str) -> Any:
        if isinstance(param.type, ir.ScalarType):
            return None if param.type.optional else _MADE_UP[param.type.kind]
        if param.type.optional:
            return None
        scope = Scope(values, Context.of(self.compiled.program))
        shape = [int(size) for size in sizes(param.type.dims, scope)]
        with self.graph.inserting_before(next(iter(self.graph.nodes))):
            node = self.graph.placeholder(name)
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=self._dtype(param.type, scope))
        return node

    # --- calls ---------------------------------------------------------------------------------

    def _write(self, call: ir.Call) -> None:
        decl = self.compiled.program.ops.get(call.op)
        if decl is None:
            self._primitive(call)
            return
        target = overload(decl)
        binding = None if target is None else self.compiled.bindings.of(target)
        if target is None or binding is None:
            raise NoSource(f"this process has no op {decl.torch_name} as declared")
        args = [self._argument(operand, binding, index) for index, operand in enumerate(call.args)]
        if binding.mutated:
            self._mutating(call, target, binding, args)
            return
        positional, keywords = binding.written(args)
        node = self._call(target, positional, keywords)
        if binding.returns == 1:
            self._name(call.results[0], node)
        else:
            self._items(call, node, 0)

    def _primitive(self, call: ir.Call) -> None:
        args = tuple(self._operand(operand) for operand in call.args)
        op, args = spell_out(call.op, args, _val)
        with self.mode:
            device = torch.empty(())
        written = primitive(op, args, device)
        self._name(call.results[0], self._call(written.target, written.args, dict(written.kwargs)))

    def _mutating(self, call: ir.Call, target: Any, binding: Binding, args: list[Any]) -> None:
        named = dict(zip([a.name for a in binding.arguments], args, strict=True))
        vals = [_val(arg) for arg in args]
        scope = call_scope(self.compiled, binding, vals, NO_FACTS)
        if not isinstance(scope, dict):
            raise NoSource(scope.message)
        for param in binding.decl.params:
            if param.kind == "out" and isinstance(param.type, ir.TensorType):
                named[param.name] = self._buffer(param.type, scope)
        kwargs = {name: named.get(name) for name in binding.names}
        node = self._call(auto_functionalized, (target,), kwargs)
        self._items(call, node, binding.item_offset)

    def _buffer(self, declared: ir.TensorType, scope: Mapping[str, Any]) -> fx.Node:
        shape = list(buffer_shape(declared, scope, NO_FACTS))
        dtype = buffer_dtype(self.compiled, declared, scope)
        return self._call(torch.ops.aten.empty.memory_format, (shape,), {"dtype": dtype})

    def _call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        fake_args, fake_kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with self.mode:
            node.meta["val"] = target(*fake_args, **fake_kwargs)
        return node

    def _items(self, call: ir.Call, node: fx.Node, offset: int) -> None:
        for index, name in enumerate(call.results):
            if name is not None:
                self._name(name, self._call(operator.getitem, (node, index + offset), {}))

    def _name(self, name: str | None, node: fx.Node) -> None:
        if name is not None:
            self.nodes[name] = node

    # --- operands ------------------------------------------------------------------------------

    def _argument(self, operand: ir.Operand, binding: Binding, index: int) -> Any:
        argument = binding.arguments[index]
        if isinstance(operand, ir.Anything):
            return self._anything(binding, index)
        value = self._operand(operand)
        return float(value) if argument.wants_float and type(value) is int else value

    def _anything(self, binding: Binding, index: int) -> Any:
        argument, param = binding.arguments[index], binding.decl.call_params[index]
        if argument.default is not Binding.REQUIRED:
            return argument.default
        kind = param.type.kind if isinstance(param.type, ir.ScalarType) else "tensor"
        if kind not in _PLACEHOLDER_SCALARS:
            raise NoSource(f"`_` for {param.name} of {binding.name} can be anything")
        return _PLACEHOLDER_SCALARS[kind]

    def _operand(self, operand: ir.Operand) -> Any:
        if isinstance(operand, ir.Ref) and operand.name in self.nodes:
            return self.nodes[operand.name]
        if isinstance(operand, ir.ListOf):
            return [self._operand(item) for item in operand.items]
        return self.operands.scalar(operand)


def scope_value(value: Any) -> Any:
    """A chosen value as conditions see it: sizes as `Dim`, dtypes by name."""
    if isinstance(value, torch.dtype):
        return ir.DType(from_torch(value))
    if isinstance(value, tuple):
        return Dim.const(prod(value))
    if isinstance(value, list):
        return tuple(map(scope_value, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Dim.const(value)
    return value


def _val(arg: Any) -> Any:
    if isinstance(arg, fx.Node):
        return arg.meta["val"]
    return [_val(item) for item in arg] if isinstance(arg, list) else arg
