"""What an expression in a body is: a tensor, a scalar or a list of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fusiondsl.analysis.kinds import Kind
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Expr
from fusiondsl.ir.program import Operand, TensorType


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A value of the body; `type` is None when an error about it was already reported."""

    operand: Operand
    name: str
    type: TensorType | None


@dataclass(frozen=True, slots=True)
class ScalarValue:
    operand: Operand
    kind: Kind
    expr: Expr
    """What was written, lets put in; sizes and conditions are made of it."""


@dataclass(frozen=True, slots=True)
class ListValue:
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class AnyValue:
    """`_`."""

    span: Span | None


Value: TypeAlias = TensorValue | ScalarValue | ListValue | AnyValue
