"""What names of conditions and sizes stand for outside of rules: constants, tables, dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusiondsl.decl.dtypes import DTYPES, FP8
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.evaluate import LookupTable, evaluate
from fusiondsl.dims.expr import DType, Expr
from fusiondsl.dims.facts import NO_FACTS, Facts
from fusiondsl.dims.functions import Function
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Unknown, Value
from fusiondsl.ir.program import Program


class NotConcrete(Exception):
    """The sizes or dtypes do not fit, or nothing says what they are."""


@dataclass(frozen=True)
class World:
    """What names stand for outside of rules, on one target."""

    constants: Mapping[str, Value]
    functions: Mapping[str, Function]
    dtype_sets: Mapping[str, tuple[str, ...]]
    fp8: str | None
    """What `fp8` is there; None while that is open."""

    def number(self, expr: Expr, scope: Mapping[str, Value]) -> int:
        value = evaluate(expr, {**self.constants, **scope}, NO_FACTS, self.functions)
        found = value.as_int() if isinstance(value, Dim) else value
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise NotConcrete
        return found

    def holds(self, expr: Expr, scope: Mapping[str, Value], facts: Facts = NO_FACTS) -> Truth:
        """Whether a condition holds; UNKNOWN where something has no value yet."""
        value = evaluate(expr, {**self.constants, **scope}, facts, self.functions)
        if isinstance(value, bool):
            return Truth.of(value)
        return value if isinstance(value, Truth) else Truth.UNKNOWN

    def dtypes(self, name: str, scope: Mapping[str, Value]) -> tuple[str, ...] | None:
        """The dtypes that a type's dtype may be; None where nothing says."""
        if name == FP8:
            return None if self.fp8 is None else (self.fp8,)
        if name in DTYPES:
            return (name,)
        if name in self.dtype_sets:
            return self.dtype_sets[name]
        bound = scope.get(name)
        if isinstance(bound, DType):
            return self.dtypes(FP8, {}) if bound.name == FP8 else (bound.name,)
        return None


def world_of(
    program: Program,
    fp8: str | None = "f8e4m3fn",
    answers: Sequence[tuple[str, Value]] = (),
) -> World:
    """The names a program gives out, on a target with this fp8 and these answers."""
    constants: dict[str, Value] = {n: c.value for n, c in program.lets.items()}
    for name, members in program.dtype_sets.items():
        constants[name] = tuple(DType(member) for member in members)
    constants.update({name: DType(name) for name in DTYPES})
    if fp8 is not None:
        constants[FP8] = DType(fp8)
    functions: dict[str, Any] = {
        name: LookupTable(
            name, table.params, tuple((r.keys, r.value) for r in table.rows), constants
        )
        for name, table in program.tables.items()
    }
    functions.update({name: _Answer(answer) for name, answer in answers})
    return World(constants, functions, program.dtype_sets, fp8)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An extern predicate that says the same whatever it is asked."""

    value: Value

    def __call__(self, args: Sequence[Value], facts: Facts) -> Value:
        return Unknown("not answered yet") if self.value is None else Truth.of(self.value is True)
