"""Declared types against the tensors of a graph: binds dtype variables and dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8, fp8_of
from fusiondsl.dims import Dim, Facts, Mismatch, solve
from fusiondsl.dims.expr import Expr, Name, Spread
from fusiondsl.engine.mutation import Version
from fusiondsl.engine.symbols import Size, as_dim, shape_of, size_of
from fusiondsl.ops.dtypes import from_torch


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a value does not fit. `kind` is a `RefusalKind` value."""

    kind: str
    message: str
    label: str | None = None
    """Of the condition that refuses."""
    about: str | None = None
    """The name in the rule that does not fit, where it is one."""
    node: str | None = None
    """The node of the graph that is in the way, where it is not the site's own."""


class TypeBinder:
    """Collects what types say about values, then solves it together."""

    def __init__(
        self,
        scope: dict[str, Any],
        facts: Facts,
        arch: str | None,
        dtype_sets: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.scope = scope
        self.leading: dict[str, tuple[Size, ...]] = {}
        """The sizes behind each `name..`, by name."""
        self.facts = facts
        self._arch = arch
        self._sets = dtype_sets
        self._equations: list[tuple[Expr, Dim]] = []
        self._about: list[str] = []

    def tensor(self, name: str, declared: ir.TensorType, value: torch.Tensor) -> Problem | None:
        return self.dtype(name, declared.dtype, value.dtype) or self.dims(
            name, declared.dims, shape_of(value)
        )

    def dtype(self, name: str, declared: str, actual: torch.dtype) -> Problem | None:
        found = from_torch(actual)
        if declared == ANY:
            return None
        wanted = fp8_of(self._arch) if declared == FP8 else declared
        if wanted in DTYPES:
            allowed: tuple[str, ...] = (wanted,)
        elif wanted in self._sets:
            allowed = self._sets[wanted]
        else:
            return self._dtype_variable(name, wanted, found)
        if found in allowed:
            return None
        message = f"{name} is {found}, the rule wants {' or '.join(allowed)}"
        return Problem("dtype", message, about=name)

    def _dtype_variable(self, name: str, variable: str, found: str) -> Problem | None:
        bound = self.scope.get(variable)
        if bound is None:
            self.scope[variable] = ir.DType(found)
            return None
        wanted = bound.name if isinstance(bound, ir.DType) else str(bound)
        if wanted == FP8:
            wanted = fp8_of(self._arch)
        if wanted == found:
            return None
        message = f"{name} is {found}, but {variable} is {wanted} here"
        return Problem("dtype", message, about=name)

    def dims(
        self, name: str, declared: tuple[Expr, ...], actual: tuple[Size, ...]
    ) -> Problem | None:
        if declared and isinstance(declared[0], Spread):
            return self._spread(name, declared[0].name, declared[1:], actual)
        if len(declared) != len(actual):
            message = f"{name} has {len(actual)} dimensions, the rule wants {len(declared)}"
            return Problem("shape", message, about=name)
        self._equate(name, declared, actual)
        return None

    def _spread(
        self, name: str, spread: str, rest: tuple[Expr, ...], actual: tuple[Size, ...]
    ) -> Problem | None:
        if len(actual) < len(rest):
            wanted = f"the rule wants at least {len(rest)}"
            message = f"{name} has {len(actual)} dimensions, {wanted}"
            return Problem("shape", message, about=name)
        split = len(actual) - len(rest)
        leading = actual[:split]
        self.leading.setdefault(spread, leading)
        product = Dim.product(leading) if leading else Dim.const(1)
        self._equations.append((Name(spread), product))
        self._about.append(name)
        self._equate(name, rest, actual[split:])
        return None

    def _equate(self, name: str, declared: Iterable[Expr], actual: Iterable[Size]) -> None:
        for expr, size in zip(declared, actual, strict=True):
            self._equations.append((expr, as_dim(size)))
            self._about.append(name)

    def finish(self) -> Problem | None:
        solution = solve(self._equations, self.scope, self.facts)
        if isinstance(solution, Mismatch):
            name = self._about[solution.index]
            return Problem("shape", f"a size of {name}: {solution.reason}", about=name)
        self.scope.update(solution.bound)
        return None


def scalar_value(item: Any) -> Any:
    """A captured graph argument as a value of conditions."""
    if isinstance(item, torch.dtype):
        return ir.DType(from_torch(item))
    if isinstance(item, (fx.Node, Version)):
        value = item.meta.get("val")
        return as_dim(size_of(value)) if isinstance(value, (int, torch.SymInt)) else item
    if isinstance(item, (list, tuple)):
        return tuple(scalar_value(element) for element in item)
    return item


def fits_kind(declared: ir.ScalarType, item: Any) -> bool:
    """Type-strict: `true` is no int, `1` no float."""
    if item is None:
        return declared.optional
    if declared.is_list:
        element = ir.ScalarType(declared.kind)
        return isinstance(item, (list, tuple)) and all(fits_kind(element, i) for i in item)
    if isinstance(item, fx.Node):
        value = item.meta.get("val")
        if declared.kind == "layer":
            return not isinstance(value, (torch.Tensor, int, float, torch.SymInt, torch.SymFloat))
        return declared.kind == "int" and isinstance(value, (int, torch.SymInt))
    kinds: dict[str, type] = {
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "dtype": torch.dtype,
    }
    wanted = kinds.get(declared.kind)
    if wanted is None:  # `layer`: opaque
        return True
    return type(item) is wanted or (wanted is torch.dtype and isinstance(item, torch.dtype))
