"""The right side of a rule as a recipe: evaluated once on fake tensors, then written as nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.decl.primitives import REDUCTIONS
from fusiondsl.dims import Dim, Facts, Invalid, Unknown, evaluate
from fusiondsl.engine import aten
from fusiondsl.engine.bindings import Binding, Bindings
from fusiondsl.engine.pattern import references
from fusiondsl.engine.symbols import shape_of, size_of
from fusiondsl.ops.registry import overload

_ATEN = torch.ops.aten


@dataclass(frozen=True, slots=True, eq=False)
class PrimitiveStep:
    """One primitive to write."""

    op: str
    operands: tuple[ir.Operand, ...]
    results: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OpStep:
    """One call of a declared op to write."""

    op: str
    operands: tuple[ir.Operand, ...]
    results: tuple[str | None, ...]
    binding: Binding
    target: torch._ops.OpOverload
    types: Mapping[str, ir.TensorType]
    """Types of the results, as the checker inferred them or the rule annotates them."""
    buffers: tuple[tuple[str, str | None], ...]
    """Write-only arguments with the results that are written there."""

    @property
    def mutates(self) -> bool:
        return bool(self.binding.mutated)

    def laid_out(self) -> Iterator[ir.Operand]:
        """Operands whose layout may pass on to a result or make the fake refuse.

        Our own fakes declare every stride and read none; the fake of another op may look.
        """
        decl = self.binding.decl
        kinds = {p.name: p.kind for p in decl.params}
        for argument, operand in zip(self.binding.arguments, self.operands, strict=True):
            if decl.extern or kinds[argument.name] == "inout":
                yield operand


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    steps: tuple[PrimitiveStep | OpStep, ...]
    laid_out: frozenset[str]
    """Values whose layout the outcome of the steps may depend on."""


def build_recipe(rule: ir.Rule, program: ir.Program, bindings: Bindings) -> Recipe | str:
    """The recipe, or which op of the right side this process does not have."""
    steps: list[PrimitiveStep | OpStep] = []
    for call in rule.replace:
        step = _step(rule, call, program, bindings)
        if isinstance(step, str):
            return step
        steps.append(step)
    return Recipe(tuple(steps), frozenset(_laid_out(steps)))


def _laid_out(steps: Iterable[PrimitiveStep | OpStep]) -> Iterator[str]:
    for step in steps:
        operands = step.operands if isinstance(step, PrimitiveStep) else step.laid_out()
        for operand in operands:
            yield from references(operand)


def _step(
    rule: ir.Rule, call: ir.Call, program: ir.Program, bindings: Bindings
) -> PrimitiveStep | OpStep | str:
    decl = program.ops.get(call.op)
    if decl is None:
        return PrimitiveStep(call.op, call.args, call.results)
    target = overload(decl)
    if target is None:
        return f"the op {decl.torch_name} is not registered in this process"
    binding = bindings.of(target)
    if binding is None:
        return (
            f"the registered schema of {decl.torch_name} differs from the declaration: "
            f"{target._schema}"
        )
    types = {
        name: declared
        for name, declared in rule.types
        if name in call.results and isinstance(declared, ir.TensorType)
    }
    names = dict(zip(binding.results, call.results, strict=False))
    buffers = tuple((buffer, names.get(buffer)) for buffer in binding.buffers)
    return OpStep(call.op, call.args, call.results, binding, target, types, buffers)


# --- scalars ------------------------------------------------------------------------------------


class Operands:
    """Scalar and dimension operands as graph arguments."""

    def __init__(
        self,
        bindings: Bindings,
        scope: Mapping[str, Any],
        facts: Facts,
        functions: Mapping[str, Any],
        dtypes: Mapping[str, torch.dtype],
    ) -> None:
        self._bindings = bindings
        self.scope = scope
        self._facts = facts
        self._functions = functions
        self._dtypes = dtypes

    def scalar(self, operand: ir.Operand) -> Any:
        """A number, string, dtype, None, `Size`, or a tuple of those.

        Raises `Inexpressible` where the operand has no value at this site.
        """
        if isinstance(operand, ir.Const):
            return self._bindings.constant(operand)
        if isinstance(operand, ir.ListOf):
            return tuple(self.scalar(item) for item in operand.items)
        if isinstance(operand, ir.Ref):
            return self.plain(self.scope[operand.name])
        if isinstance(operand, ir.Computed):
            return self.plain(evaluate(operand.expr, self.scope, self._facts, self._functions))
        raise Inexpressible(f"{operand} has no value")

    def plain(self, value: Any) -> Any:
        if isinstance(value, (Unknown, Invalid)):
            raise Inexpressible(getattr(value, "cause", "") or getattr(value, "message", ""))
        if isinstance(value, Dim):
            return size_of(value)
        if isinstance(value, ir.DType):
            return self._dtypes[value.name]
        if isinstance(value, tuple):
            return tuple(self.plain(item) for item in value)
        return value


class Inexpressible(Exception):
    """An operand of the right side cannot be written at this site."""


# --- primitives ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A primitive as one dispatcher call. Sizes stay `Size`s until nodes are made."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


_ARGUMENTS: Mapping[str, Callable[..., tuple[Any, ...]]] = {
    **{f"prim.{name}": lambda x, axis: (x, [axis]) for name in REDUCTIONS},
    "prim.view": lambda x, shape: (x, list(shape)),
    "prim.cat": lambda parts, axis: (list(parts), axis),
    "prim.pad": lambda x, before, after, value: (x, [before, after], value),
}
"""Where the overload wants its arguments in another form than the primitive has them."""


def primitive(op: str, args: tuple[Any, ...], like: torch.Tensor) -> Written:
    """How a primitive is written; `like` gives the device of created tensors."""
    targets = aten.TARGETS.get(op)
    if targets is None:
        return _creation(op, args, like)
    arrange = _ARGUMENTS.get(op)
    return Written(targets[0], args if arrange is None else arrange(*args), {})


def spell_out(
    op: str, args: tuple[Any, ...], value: Callable[[Any], torch.Tensor]
) -> tuple[str, tuple[Any, ...]]:
    """`zeros_like(x)` as `zeros` of its shape and dtype; the one open size of a view as -1.

    The larger of a value and a number is a clamp.
    """
    if op == "prim.view":
        shape = args[1]
        inferred = 0 not in shape and sum(type(size) is not int for size in shape) == 1
        written = tuple(s if type(s) is int or not inferred else -1 for s in shape)
        return op, (args[0], written)
    if op in _CLAMPS and any(isinstance(arg, (int, float)) for arg in args):
        tensor, number = args if isinstance(args[1], (int, float)) else reversed(args)
        return _CLAMPS[op], (tensor, number)
    if op not in _LIKE:
        return op, args
    source = value(args[0])
    return op.removesuffix("_like"), (shape_of(source), source.dtype)


_CLAMPS = {"prim.maximum": "prim.clamp_min", "prim.minimum": "prim.clamp_max"}
_LIKE = frozenset({"prim.zeros_like", "prim.empty_like"})
CREATIONS = _LIKE | {"prim.zeros", "prim.full", "prim.empty"}


def _creation(op: str, args: tuple[Any, ...], like: torch.Tensor) -> Written:
    options = {"device": like.device, "pin_memory": False}
    if op == "prim.zeros":
        options |= {"dtype": args[1], "layout": torch.strided}
        return Written(_ATEN.full.default, (list(args[0]), 0), options)
    if op == "prim.full":
        options |= {"dtype": args[2], "layout": torch.strided}
        return Written(_ATEN.full.default, (list(args[0]), args[1]), options)
    if op == "prim.empty":
        return Written(_ATEN.empty.memory_format, (list(args[0]),), options | {"dtype": args[1]})
    raise Inexpressible(f"{op.removeprefix('prim.')} cannot be written")
