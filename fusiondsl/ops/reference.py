"""The CPU reference of an op: its `means` interpreted, its axioms looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fusiondsl.dims.expr import Spread
from fusiondsl.ir.program import (
    Branch,
    Call,
    Computed,
    Const,
    ListOf,
    OpDecl,
    Operand,
    Param,
    Ref,
    Step,
    TensorType,
    Unrounded,
)
from fusiondsl.ops import primitives, references
from fusiondsl.ops.binding import bind, check_conditions, default_of, dtype_of
from fusiondsl.ops.context import Context
from fusiondsl.ops.errors import MissingKernelError
from fusiondsl.ops.fake import device_of, taken
from fusiondsl.ops.lookup import declared_overload
from fusiondsl.ops.primitives import Value
from fusiondsl.ops.scope import Scope, constant, evaluate

_PRIMITIVE = "prim."


def run(
    decl: OpDecl, context: Context, arguments: Mapping[str, Any]
) -> dict[str, torch.Tensor | None]:
    """Results of one call by name, mutated arguments included; arguments are left as they are."""
    with _creating_on(device_of(decl, arguments)):
        outputs = call(decl, context, _as_values(arguments))
    return {n: None if value is None else value.tensor for n, value in outputs.items()}


def values(decl: OpDecl, context: Context, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Every tensor that the meaning of `decl` names in one call, temporaries included."""
    body = _Body(decl, context, _as_values(arguments))
    body.steps(decl.means or ())
    return {n: v.tensor for n, v in body.values.items() if isinstance(v, Value)}


def call(decl: OpDecl, context: Context, arguments: Mapping[str, Any]) -> dict[str, Value | None]:
    """As `run`, over values that carry their unrounded form.

    An op refuses what its `where` refuses, also inside the meaning of another.
    """
    if decl.axiom:
        return _axiom(decl, context, arguments)
    if decl.means is None:
        return _existing(decl, arguments)
    # The meaning reads nothing but the values passed, so a caller may pass unrounded ones.
    body = _Body(decl, context, arguments)
    check_conditions(decl, body.scope)
    body.steps(decl.means)
    return body.outputs()


def _creating_on(device: torch.device) -> AbstractContextManager[object]:
    """Where a body's `zeros` and `full` live; the default costs nothing."""
    return nullcontext() if device.type == "cpu" else device


def _as_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {n: Value(a) if isinstance(a, torch.Tensor) else a for n, a in arguments.items()}


def _axiom(decl: OpDecl, context: Context, arguments: Mapping[str, Any]) -> dict[str, Value | None]:
    function = references.find(decl.name)
    if function is None:
        raise MissingKernelError(f"the axiom op `{decl.name}` has no reference implementation")
    scope = _scope(decl, context, arguments)
    check_conditions(decl, scope)
    passed = [_plain(arguments[p.name]) for p in decl.call_params]
    return _rounded(decl, scope, _named(decl, function(*passed)))


def _existing(decl: OpDecl, arguments: Mapping[str, Any]) -> dict[str, Value | None]:
    """An op without a meaning of its own: the torch op, where a library has defined it."""
    op = declared_overload(decl) if decl.extern else None
    if op is None or any(p.kind != "read" for p in decl.params):
        raise MissingKernelError(f"op `{decl.name}` has no meaning to run as its reference")
    passed = {p.name: _plain(_given(decl, p, arguments)) for p in decl.params}
    keywords = {p.name: passed.pop(p.name) for p in decl.params if p.keyword_only}
    return _named(decl, op(*passed.values(), **keywords))


def _named(decl: OpDecl, returned: Any) -> dict[str, Value | None]:
    parts = returned if isinstance(returned, (tuple, list)) else (returned,)
    return {
        result.name: Value(part) if isinstance(part, torch.Tensor) else part
        for result, part in zip(decl.call_results, parts, strict=True)
    }


def _rounded(
    decl: OpDecl, scope: Scope, outputs: dict[str, Value | None]
) -> dict[str, Value | None]:
    """Gives every result its declared dtype, keeping the value the reference computed."""
    for result in decl.call_results:
        value = outputs[result.name]
        if value is None or not isinstance(result.type, TensorType):
            continue
        dtype = dtype_of(result.type, scope)
        if value.tensor.dtype != dtype:
            outputs[result.name] = Value(value.tensor.to(dtype), value.tensor)
    return outputs


def _scope(decl: OpDecl, context: Context, arguments: Mapping[str, Any]) -> Scope:
    """Binds dims and dtypes; a call inside a body writes no buffers and no tokens."""
    tensors = {p.name: _plain(_given(decl, p, arguments)) for p in decl.params}
    dtypes = {n: v.dtype for n, v in arguments.items() if isinstance(v, Value)}
    return bind(decl, tensors, context, dtypes)


def _given(decl: OpDecl, param: Param, arguments: Mapping[str, Any]) -> Any:
    if param.name in arguments:
        return arguments[param.name]
    return None if param.kind in ("out", "token") else default_of(decl, param)


def _plain(argument: Any) -> Any:
    if isinstance(argument, Value):
        return argument.tensor
    if isinstance(argument, (list, tuple)):
        return [_plain(a) for a in argument]
    return argument


def _forget_rounding(argument: Any) -> Any:
    """A body sees its arguments as they are passed: `~` reaches no further than its own steps."""
    if isinstance(argument, Value):
        return Value(argument.tensor, nominal=argument.nominal)
    return argument


class _Body:
    """One run of a `means` body."""

    def __init__(self, decl: OpDecl, context: Context, arguments: Mapping[str, Any]) -> None:
        self.decl = decl
        self.context = context
        self.scope: Scope = _scope(decl, context, arguments)
        self.values: dict[str, Any] = {
            p.name: _forget_rounding(_given(decl, p, arguments)) for p in decl.params
        }

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Branch):
                self.steps(taken(step, self.scope, self.decl))
            else:
                self._bind(step, self._call(step))

    def outputs(self) -> dict[str, Value | None]:
        names = [r.name for r in self.decl.call_results]
        return {name: self.values.get(name) for name in names}

    def _bind(self, step: Call, results: Sequence[Value | None]) -> None:
        for name, value in zip(step.results, results, strict=False):
            if name is not None:
                self.values[name] = value

    def _call(self, step: Call) -> Sequence[Value | None]:
        args = [self.operand(a) for a in step.args]
        if step.op.startswith(_PRIMITIVE):
            return (primitives.apply(step.op.removeprefix(_PRIMITIVE), args),)
        callee = self.context.ops[step.op]
        named = dict(zip((p.name for p in callee.call_params), args, strict=True))
        return tuple(call(callee, self.context, named).values())

    def operand(self, operand: Operand) -> Any:
        if isinstance(operand, Ref):
            return self._name(operand.name)
        if isinstance(operand, Const):
            return constant(operand.value)
        if isinstance(operand, Unrounded):
            value: Value = self.values[operand.name]
            return value.skipping_rounding()
        if isinstance(operand, ListOf):
            return self._list(operand)
        if isinstance(operand, Computed):
            return evaluate(operand.expr, self.scope)
        raise AssertionError(f"{operand} in a meaning")

    def _name(self, name: str) -> Any:
        return self.values[name] if name in self.values else self.scope.lookup(name)

    def _list(self, operand: ListOf) -> list[Any]:
        items: list[Any] = []
        for item in operand.items:
            if isinstance(item, Computed) and isinstance(item.expr, Spread):
                items.extend(self.scope.values[item.expr.name])
            else:
                items.append(self.operand(item))
        return items
