"""Runs the right side of a rule on fake tensors and compares the results with what matched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.decl.dtypes import ANY
from fusiondsl.dims import Dim, Facts, Truth, evaluate, truth
from fusiondsl.dims.expr import Spread
from fusiondsl.engine.bindings import Binding
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.layout import layout_problem, misfit, same_layout, text
from fusiondsl.engine.recipe import (
    Inexpressible,
    Operands,
    OpStep,
    PrimitiveStep,
    Recipe,
    primitive,
    spell_out,
)
from fusiondsl.engine.symbols import Size, as_dim, shape_of, size_of
from fusiondsl.engine.typecheck import Problem, TypeBinder, scalar_value
from fusiondsl.ops.dtypes import from_torch

Values = dict[str, torch.Tensor]


def dry_run(
    compiled: Compiled,
    recipe: Recipe,
    operands: Operands,
    inputs: Mapping[str, torch.Tensor],
    wanted: Mapping[str, tuple[str, torch.Tensor]],
    facts: Facts,
    fake_mode: Any,
    shape_env: Any,
    relayout: frozenset[str],
) -> Values | Problem:
    """Fake values of everything the right side makes, or what is wrong with it.

    `wanted` maps a name of the right side to the matched name and value it must equal in dtype,
    shape (up to regrouping of leading dimensions) and strides.
    """
    values: Values = dict(inputs)
    with ExitStack() as stack:
        stack.enter_context(fake_mode)
        if shape_env is not None:
            # Results are compared size by size below; nothing decided on the way may stick.
            stack.enter_context(shape_env.suppress_guards())
        for step in recipe.steps:
            problem = _step(compiled, step, operands, values, facts)
            if problem is not None:
                return problem
    for name, (matched, value) in wanted.items():
        problem = _compare(matched, values[name], value, matched in relayout)
        if problem is not None:
            return problem
    return values


def _step(
    compiled: Compiled,
    step: PrimitiveStep | OpStep,
    operands: Operands,
    values: Values,
    facts: Facts,
) -> Problem | None:
    if isinstance(step, PrimitiveStep):
        results: tuple[Any, ...] = (_primitive(step, operands, values),)
    else:
        args = arguments(step.binding, step.operands, operands, values)
        problem = check_call(compiled, step.binding, args, facts)
        if problem is not None:
            return problem
        try:
            results = _call(compiled, step, args, operands, facts)
        # What a fake raises is its answer: this call is not one it takes.
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            return Problem("environment", f"the fake of {step.op} refuses this call: {first}")
    for name, value in zip(step.results, results, strict=False):
        if name is not None and isinstance(value, torch.Tensor):
            values[name] = value
    return None


def _primitive(step: PrimitiveStep, operands: Operands, values: Values) -> torch.Tensor:
    args = tuple(_argument(o, operands, values) for o in step.operands)
    like = next(iter(values.values()))
    op, args = spell_out(step.op, args, lambda tensor: tensor)
    written = primitive(op, concrete(args, values), like)
    result: torch.Tensor = written.target(*written.args, **written.kwargs)
    return result


def _argument(operand: ir.Operand, operands: Operands, values: Mapping[str, Any]) -> Any:
    if isinstance(operand, ir.Ref) and operand.name in values:
        return values[operand.name]
    if isinstance(operand, ir.ListOf):
        return tuple(_argument(item, operands, values) for item in operand.items)
    return operands.scalar(operand)


def concrete(item: Any, values: Mapping[str, torch.Tensor]) -> Any:
    """Sizes as torch takes them: an int, or the `SymInt` of a tensor that has this size."""
    if isinstance(item, tuple):
        return tuple(concrete(i, values) for i in item)
    if not isinstance(item, Dim):
        return item
    for value in values.values():
        for found, known in zip(value.shape, shape_of(value), strict=True):
            if known == item:
                return found
    raise Inexpressible(f"the size {item} is no size of a value of the rule")


def arguments(
    binding: Binding, written: tuple[ir.Operand, ...], operands: Operands, values: Mapping[str, Any]
) -> list[Any]:
    """Argument values in declaration order, tensors grouped as the op wants them."""
    args: list[Any] = []
    for argument, operand in zip(binding.arguments, written, strict=True):
        value = _argument(operand, operands, values)
        if argument.wants_float and type(value) is int:
            value = float(value)
        args.append(value)
    flat = to_flatten(binding, args)
    return [
        value.reshape(-1, *value.shape[value.dim() - keep :]) if keep is not None else value
        for value, keep in zip(args, flat, strict=True)
    ]


def to_flatten(binding: Binding, args: list[Any]) -> list[int | None]:
    """For each argument: how many trailing dimensions stay when leading ones must be joined."""
    declared = [p.type for p in binding.decl.call_params]
    groups: dict[str, set[tuple[Size, ...]]] = {}
    plan: list[int | None] = []
    for kind, value in zip(declared, args, strict=True):
        keep = None
        if isinstance(kind, ir.TensorType) and isinstance(value, torch.Tensor) and kind.dims:
            first = kind.dims[0]
            if isinstance(first, Spread):
                rest = len(kind.dims) - 1
                groups.setdefault(first.name, set()).add(shape_of(value)[: value.dim() - rest])
            elif value.dim() > len(kind.dims):
                keep = len(kind.dims) - 1
        plan.append(keep)
    uneven = {name for name, shapes in groups.items() if len(shapes) > 1}
    for i, (kind, value) in enumerate(zip(declared, args, strict=True)):
        if not isinstance(kind, ir.TensorType) or not kind.dims or value is None:
            continue
        first = kind.dims[0]
        if isinstance(first, Spread) and first.name in uneven:
            plan[i] = len(kind.dims) - 1
    return plan


def call_scope(
    compiled: Compiled, binding: Binding, args: list[Any], facts: Facts
) -> dict[str, Any] | Problem:
    """The declaration's dtype variables and dimensions for one call."""
    scope: dict[str, Any] = dict(compiled.constants)
    params = binding.decl.call_params
    for param, value in zip(params, args, strict=True):
        if not isinstance(param.type, ir.TensorType):
            scope[param.name] = scalar_value(value)
    binder = TypeBinder(scope, facts, compiled.target.arch, compiled.program.dtype_sets)
    for param, value in zip(params, args, strict=True):
        if isinstance(param.type, ir.TensorType) and isinstance(value, torch.Tensor):
            problem = binder.tensor(f"{param.name} of {binding.decl.name}", param.type, value)
            if problem is not None:
                return problem
    return binder.finish() or scope


def check_call(
    compiled: Compiled, binding: Binding, args: list[Any], facts: Facts
) -> Problem | None:
    """The op's own constraints hold for this call."""
    scope = call_scope(compiled, binding, args, facts)
    if isinstance(scope, Problem):
        return scope
    for condition in binding.decl.where:
        verdict = truth(condition.expr, scope, facts, compiled.functions)
        if verdict.truth is not Truth.TRUE:
            kind = "predicate false" if verdict.truth is Truth.FALSE else "predicate unknown"
            return Problem(kind, f"{binding.decl.name}: {verdict.reason}", condition.label)
    return misfit(binding, args, scope, facts)


def _call(
    compiled: Compiled, step: OpStep, args: list[Any], operands: Operands, facts: Facts
) -> tuple[Any, ...]:
    if not step.mutates:
        positional, keywords = step.binding.written(args)
        result = step.target(*positional, **keywords)
        return result if isinstance(result, tuple) else (result,)
    return mutated_results(compiled, step, args, operands, facts)


def mutated_results(
    compiled: Compiled, step: OpStep, args: list[Any], operands: Operands, facts: Facts
) -> tuple[Any, ...]:
    """Results of a functionalised mutating call: own returns, then a value an argument."""
    kinds = buffer_kinds(compiled, step, args, operands, facts)
    named = dict(zip([a.name for a in step.binding.arguments], args, strict=True))
    like = next(a for a in args if isinstance(a, torch.Tensor))
    mutated: list[Any] = []
    for param in step.binding.decl.params:
        if param.kind == "inout":
            given = named[param.name]
            mutated.append(None if given is None else torch.empty_like(given))
        elif param.kind == "out":
            shape, dtype = kinds[param.name]
            sizes = concrete(shape, {str(i): a for i, a in enumerate(args) if _is_tensor(a)})
            mutated.append(torch.empty(sizes, dtype=dtype, device=like.device))
            named[param.name] = mutated[-1]
    ordered = [named.get(name) for name in step.binding.names]
    returned = step.target(*ordered)
    own = () if returned is None else returned if isinstance(returned, tuple) else (returned,)
    return (*own, *mutated)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def buffer_kinds(
    compiled: Compiled, step: OpStep, args: list[Any], operands: Operands, facts: Facts
) -> dict[str, tuple[tuple[Size, ...], torch.dtype]]:
    """Shape and dtype of every write-only buffer of a call.

    What the rule says of the result counts, in the rule's names; for results it does not name, the
    declaration in its own. Leading dimensions are those of the arguments the call gets.
    """
    leading = _leading(step.binding, args)
    own: dict[str, Any] | None = None
    kinds: dict[str, tuple[tuple[Size, ...], torch.dtype]] = {}
    names = dict(zip(step.binding.results, step.results, strict=False))
    for param in step.binding.decl.params:
        if param.kind != "out":
            continue
        declared = step.types.get(names.get(param.name) or "")
        scope = operands.scope
        if declared is None or declared.dtype == ANY:
            if own is None:
                found = call_scope(compiled, step.binding, args, facts)
                assert not isinstance(found, Problem)
                own = found
            assert isinstance(param.type, ir.TensorType)
            declared, scope = param.type, own
        shape = buffer_shape(declared, scope, facts)
        assert isinstance(param.type, ir.TensorType)
        first = param.type.dims[0] if param.type.dims else None
        if isinstance(first, Spread) and first.name in leading:
            shape = (*leading[first.name], *shape[1 - len(param.type.dims) :])
        kinds[param.name] = shape, buffer_dtype(compiled, declared, scope)
    return kinds


def _leading(binding: Binding, args: list[Any]) -> dict[str, tuple[Size, ...]]:
    """What stands for each `name..` of the declaration."""
    found: dict[str, tuple[Size, ...]] = {}
    for param, value in zip(binding.decl.call_params, args, strict=True):
        if not isinstance(param.type, ir.TensorType) or not isinstance(value, torch.Tensor):
            continue
        first = param.type.dims[0] if param.type.dims else None
        if isinstance(first, Spread):
            shape = shape_of(value)
            found.setdefault(first.name, shape[: len(shape) - len(param.type.dims) + 1])
    return found


def buffer_shape(
    declared: ir.TensorType, scope: Mapping[str, Any], facts: Facts
) -> tuple[Size, ...]:
    shape: list[Size] = []
    for expr in declared.dims:
        value = scope.get(expr.name) if isinstance(expr, Spread) else evaluate(expr, scope, facts)
        if not isinstance(value, Dim):
            raise Inexpressible(f"a size of {declared.dtype} has no value: {value}")
        shape.append(size_of(value))
    return tuple(shape)


def buffer_dtype(
    compiled: Compiled, declared: ir.TensorType, scope: Mapping[str, Any]
) -> torch.dtype:
    table = compiled.dtypes
    if declared.dtype in table:
        return table[declared.dtype]
    bound = scope.get(declared.dtype)
    if isinstance(bound, ir.DType):
        return table[bound.name]
    raise Inexpressible(f"the dtype {declared.dtype} of a buffer is not determined")


def _compare(
    name: str, made: torch.Tensor, matched: torch.Tensor, relayout: bool
) -> Problem | None:
    if made.dtype is not matched.dtype:
        wanted, found = from_torch(matched.dtype), from_torch(made.dtype)
        message = f"{name} is {wanted}, the replacement makes {found}"
        return Problem("dtype", message, about=name)
    if made.device != matched.device:
        message = f"{name} is on {matched.device}, not on {made.device}"
        return Problem("structure", message, about=name)
    new, old = shape_of(made), shape_of(matched)
    if new != old and not regroups(new, old):
        message = f"{name} has the shape {text(old)}, not {text(new)}"
        return Problem("shape", message, about=name)
    return None if relayout or same_layout(made, matched) else layout_problem(name, made, matched)


def regroups(new: tuple[Size, ...], old: tuple[Size, ...]) -> bool:
    """The same elements in the same order, trailing dimension kept."""
    if not new or not old or new[-1] != old[-1]:
        return False
    return bool(_product(new) == _product(old))


def _product(shape: tuple[Size, ...]) -> Any:
    total = as_dim(1)
    for size in shape:
        total = total * as_dim(size)
    return total
