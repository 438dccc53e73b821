"""The right side of a rule as a recipe: evaluated once on fake tensors, then written as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.dims import Dim, Facts, Invalid, Unknown, evaluate
from fusiondsl.engine.bindings import Binding, Bindings
from fusiondsl.engine.symbols import Size, size_of
from fusiondsl.ops.registry import overload

aten = torch.ops.aten
prims = torch.ops.prims


@dataclass(frozen=True, slots=True, eq=False)
class RecipeStep:
    """One call to write: a declared op (`binding` and `target`), or a primitive."""

    op: str
    operands: tuple[ir.Operand, ...]
    results: tuple[str | None, ...]
    binding: Binding | None
    target: torch._ops.OpOverload | None
    types: Mapping[str, ir.TensorType]
    """Types of the results, as the checker inferred them or the rule annotates them."""

    @property
    def mutates(self) -> bool:
        return self.binding is not None and bool(self.binding.mutated)


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    steps: tuple[RecipeStep, ...]
    reads_strides: bool
    """The layout of some result may depend on the layout of an input."""


def build_recipe(rule: ir.Rule, program: ir.Program, bindings: Bindings) -> Recipe | str:
    """The recipe, or which op of the right side this process does not have."""
    steps: list[RecipeStep] = []
    for call in rule.replace:
        decl = program.ops.get(call.op)
        if decl is None:
            steps.append(RecipeStep(call.op, call.args, call.results, None, None, {}))
            continue
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
        steps.append(RecipeStep(call.op, call.args, call.results, binding, target, types))
    return Recipe(tuple(steps), any(map(_reads_strides, steps)))


def _reads_strides(step: RecipeStep) -> bool:
    """Our own fakes declare every stride and buffers are fresh; anything else may look."""
    if step.binding is None:
        return True
    own_results = step.binding.returns > 0
    inout = any(p.kind == "inout" for p in step.binding.decl.params)
    return inout or (step.binding.decl.extern and own_results)


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


_UNARY = {
    name: getattr(aten, name).default
    for name in [
        "neg",
        "abs",
        "exp",
        "exp2",
        "log2",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sigmoid",
        "silu",
        "relu",
        "tanh",
        "ceil",
        "floor",
        "square",
    ]
} | {"round_even": aten.round.default}
_BINARY = {
    "add": aten.add.Tensor,
    "sub": aten.sub.Tensor,
    "mul": aten.mul.Tensor,
    "div": aten.div.Tensor,
    "maximum": aten.maximum.default,
    "minimum": aten.minimum.default,
    "matmul": aten.mm.default,
    "pow": aten.pow.Tensor_Scalar,
    "clamp_min": aten.clamp_min.default,
    "clamp_max": aten.clamp_max.default,
}
_REDUCE = {
    "mean": aten.mean.dim,
    "sum": aten.sum.dim_IntList,
    "amax": aten.amax.default,
    "amin": aten.amin.default,
}


def primitive(name: str, args: tuple[Any, ...], like: torch.Tensor) -> Written:
    """How a primitive is written; `like` gives the device of created tensors."""
    if name in _UNARY:
        return Written(_UNARY[name], (args[0],), {})
    if name in _BINARY:
        return Written(_BINARY[name], args[:2], {})
    if name in _REDUCE:
        return Written(_REDUCE[name], (args[0], [args[1]]), {})
    if name == "cast":
        return Written(prims.convert_element_type.default, args[:2], {})
    if name == "bitcast":
        return Written(aten.view.dtype, args[:2], {})
    if name == "view":
        return Written(aten.reshape.default, (args[0], list(args[1])), {})
    if name == "slice":
        return Written(aten.slice.Tensor, (args[0], args[1], args[2], args[3]), {})
    if name == "cat":
        return Written(aten.cat.default, (list(args[0]), args[1]), {})
    if name == "pad":
        return Written(aten.constant_pad_nd.default, (args[0], [args[1], args[2]], args[3]), {})
    return _creation(name, args, like)


CREATIONS = frozenset(
    {"prim.zeros", "prim.zeros_like", "prim.full", "prim.empty", "prim.empty_like"}
)


def _creation(name: str, args: tuple[Any, ...], like: torch.Tensor) -> Written:
    options = {"device": like.device, "pin_memory": False}
    if name == "zeros":
        options |= {"dtype": args[1], "layout": torch.strided}
        return Written(aten.full.default, (list(args[0]), 0), options)
    if name == "full":
        options |= {"dtype": args[2], "layout": torch.strided}
        return Written(aten.full.default, (list(args[0]), args[1]), options)
    if name == "empty":
        return Written(aten.empty.memory_format, (list(args[0]),), options | {"dtype": args[1]})
    raise Inexpressible(f"{name} cannot be written")


def sizes_of(shape: torch.Size) -> tuple[Size, ...]:
    return tuple(size_of(size) for size in shape)
