"""Both sides of a rule as functions over tensors, which whoever traces them sees as torch ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Dim, Facts, Truth, truth
from fusiondsl.engine.bindings import Binding
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.dryrun import buffer_dtype, buffer_shape, call_scope, concrete
from fusiondsl.engine.recipe import Operands, primitive, spell_out
from fusiondsl.engine.typecheck import Problem, TypeBinder, scalar_value
from fusiondsl.ops.registry import overload


class Refused(RuntimeError):
    """The rule does not hold for these tensors. Inductor takes a `RuntimeError` as no match."""


@dataclass(frozen=True, eq=False)
class Spelling:
    """A rule of a compiled set, with one form for each semantic op of its source."""

    compiled: Compiled
    rule: ir.Rule
    forms: Mapping[str, ir.Form]
    scalars: Mapping[str, Any]
    """Values of the scalar parameters."""
    tokens: range | None
    """Token counts the graph is compiled for."""

    @property
    def tensors(self) -> tuple[ir.Param, ...]:
        return tuple(p for p in self.rule.params if isinstance(p.type, ir.TensorType))

    def source(self, tensors: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> Any:
        """What the rule replaces, written as these forms; raises `Refused` where it does not hold.

        `buffers` are what mutating ops write into, in the order of the calls.
        """
        scope = self.checked(tensors)
        run = _Run(self, scope, list(buffers))
        values = run.calls(self.rule.match, self._named(tensors), run.typed_by_rule())
        return self._outputs(values, [matched for matched, _ in self.rule.outputs])

    def replacement(self, tensors: Sequence[torch.Tensor]) -> Any:
        run = _Run(self, self.checked(tensors), None)
        values = run.calls(self.rule.replace, self._named(tensors), run.typed_by_rule())
        return self._outputs(values, [written for _, written in self.rule.outputs])

    def buffers(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Buffers of the sizes that the source needs."""
        run = _Run(self, self.checked(tensors), None)
        run.calls(self.rule.match, self._named(tensors), run.typed_by_rule())
        return run.made

    def checked(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Dims and dtypes of the tensors; every condition of the rule holds for them."""
        scope: dict[str, Any] = {**self.compiled.constants}
        scope.update({name: scalar_value(value) for name, value in self.scalars.items()})
        target, sets = self.compiled.target, self.compiled.program.dtype_sets
        binder = TypeBinder(scope, NO_FACTS, target.arch, sets)
        for param, tensor in zip(self.tensors, tensors, strict=True):
            assert isinstance(param.type, ir.TensorType)
            _refuse(binder.tensor(param.name, param.type, tensor))
        _refuse(binder.finish())
        for param, tensor in zip(self.tensors, tensors, strict=True):
            assert isinstance(param.type, ir.TensorType)
            if param.type.dims[1:] and tensor.dim() != len(param.type.dims):
                raise Refused(f"{param.name} has more than one leading dimension")
        facts = self._facts(scope)
        for condition in self.rule.where:
            verdict = truth(condition.expr, scope, facts, self.compiled.functions)
            if verdict.truth is not Truth.TRUE:
                raise Refused(f"{self.rule.name}: {verdict.reason}")
        return scope

    def _facts(self, scope: Mapping[str, Any]) -> Facts:
        tokens = scope.get("tokens")
        symbol = tokens.as_symbol() if isinstance(tokens, Dim) else None
        if symbol is None or self.tokens is None:
            return NO_FACTS
        return NO_FACTS.with_range(symbol, self.tokens.start, self.tokens.stop - 1)

    def _named(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        return {param.name: tensor for param, tensor in zip(self.tensors, tensors, strict=True)}

    def _outputs(self, values: Mapping[str, Any], names: Sequence[str]) -> Any:
        found = [values[name] for name in names]
        return found[0] if len(found) == 1 else tuple(found)


@dataclass(frozen=True)
class _Typed:
    """What is known of the values of a body: types, and what their names stand for."""

    types: Mapping[str, ir.TensorType]
    scope: Mapping[str, Any]

    def of_results(self, call: ir.Call, binding: Binding) -> _Typed:
        """The types of a call's results, by what its op calls them."""
        pairs = zip(binding.results, call.results, strict=False)
        types = {own: self.types[name] for own, name in pairs if name and name in self.types}
        return _Typed(types, self.scope)


class _Run:
    """One evaluation of a body."""

    def __init__(
        self, spelling: Spelling, scope: Mapping[str, Any], buffers: list[torch.Tensor] | None
    ) -> None:
        self.spelling = spelling
        self.compiled = spelling.compiled
        self.scope = scope
        self.given = buffers
        """Buffers to write into; None to make them."""
        self.made: list[torch.Tensor] = []

    def typed_by_rule(self) -> _Typed:
        types = {n: t for n, t in self.spelling.rule.types if isinstance(t, ir.TensorType)}
        return _Typed(types, self.scope)

    def calls(
        self, body: Sequence[ir.Call], values: dict[str, Any], typed: _Typed
    ) -> dict[str, Any]:
        for call in body:
            results = self._call(call, values, typed)
            values.update({n: r for n, r in zip(call.results, results, strict=False) if n})
        return values

    def _call(self, call: ir.Call, values: Mapping[str, Any], typed: _Typed) -> Sequence[Any]:
        decl = self.compiled.program.ops.get(call.op)
        if decl is None:
            return (self._primitive(call, values, typed.scope),)
        target = overload(decl)
        binding = None if target is None else self.compiled.bindings.of(target)
        if target is None or binding is None:
            raise Refused(f"this process has no op {decl.torch_name} as declared")
        args = [self._operand(operand, values, typed.scope) for operand in call.args]
        form = self.spelling.forms.get(call.op)
        if form is not None:
            return self._form(form, binding, args)
        if binding.mutated:
            return self._mutating(target, binding, args, typed.of_results(call, binding))
        positional, keywords = binding.written(args)
        result = target(*positional, **keywords)
        return result if isinstance(result, tuple) else (result,)

    def _form(self, form: ir.Form, binding: Binding, args: list[Any]) -> Sequence[Any]:
        params = binding.decl.call_params
        values = {param.name: arg for param, arg in zip(params, args, strict=True)}
        scope = {**self._scope_of(binding, args), **_scalars(values)}
        for condition in form.where:
            verdict = truth(condition.expr, scope, NO_FACTS, self.compiled.functions)
            if verdict.truth is not Truth.TRUE:
                raise Refused(f"the form {form.name}: {verdict.reason}")
        results = zip(form.results, binding.decl.results, strict=True)
        types = {
            name: result.type
            for name, result in results
            if name is not None and isinstance(result.type, ir.TensorType)
        }
        made = self.calls(form.body, values, _Typed(types, scope))
        return [None if name is None else made[name] for name in form.results]

    def _mutating(
        self, target: Any, binding: Binding, args: list[Any], typed: _Typed
    ) -> Sequence[Any]:
        named = dict(zip([a.name for a in binding.arguments], args, strict=True))
        own = _Typed({}, self._scope_of(binding, args))
        for param in binding.decl.params:
            if param.kind == "out" and isinstance(param.type, ir.TensorType):
                known = typed.types.get(param.name)
                scope = own.scope if known is None else typed.scope
                named[param.name] = self._buffer(known or param.type, scope, args)
        kwargs = {name: named.get(name) for name in binding.names}
        items = auto_functionalized(target, **kwargs)
        return items[binding.item_offset :]

    def _buffer(
        self, declared: ir.TensorType, scope: Mapping[str, Any], args: list[Any]
    ) -> torch.Tensor:
        if self.given is not None:
            return self.given.pop(0)
        tensors = {str(i): arg for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
        shape = concrete(buffer_shape(declared, scope, NO_FACTS), tensors)
        dtype = buffer_dtype(self.compiled, declared, scope)
        buffer = torch.empty(shape, dtype=dtype, device=next(iter(tensors.values())).device)
        self.made.append(buffer)
        return buffer

    def _scope_of(self, binding: Binding, args: list[Any]) -> dict[str, Any]:
        scope = call_scope(self.compiled, binding, args, NO_FACTS)
        if isinstance(scope, Problem):
            raise Refused(scope.message)
        return scope

    def _primitive(
        self, call: ir.Call, values: Mapping[str, Any], scope: Mapping[str, Any]
    ) -> torch.Tensor:
        tensors = {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
        args = tuple(self._operand(operand, values, scope) for operand in call.args)
        op, args = spell_out(call.op, args, lambda tensor: tensor)
        written = primitive(op, concrete(args, tensors), next(iter(tensors.values())))
        result: torch.Tensor = written.target(*written.args, **written.kwargs)
        return result

    def _operand(
        self, operand: ir.Operand, values: Mapping[str, Any], scope: Mapping[str, Any]
    ) -> Any:
        if isinstance(operand, ir.Ref) and operand.name in values:
            return values[operand.name]
        if isinstance(operand, ir.ListOf):
            return [self._operand(item, values, scope) for item in operand.items]
        if isinstance(operand, ir.Anything):
            raise Refused("`_` as an argument cannot be traced")
        functions, dtypes = self.compiled.functions, self.compiled.dtypes
        return Operands(self.compiled.bindings, scope, NO_FACTS, functions, dtypes).scalar(operand)


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: scalar_value(v) for k, v in values.items() if not isinstance(v, torch.Tensor)}


def _refuse(problem: Problem | None) -> None:
    if problem is not None:
        raise Refused(problem.message)
