"""Expressions: one small language for dimensions, conditions, scalars and tensor values.

The nodes are shared by every layer; what an expression may contain depends on where it stands
(`analysis.names` and `analysis.types` say so). Spans never take part in equality or hashing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from fusiondsl.diagnostics.source import Span


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype as a value: its fusiondsl name (`bf16`, `f8e4m3fn`) or the arch-dependent `fp8`."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """`4096`, `1e-6`, `"silu"`, `true`, `none`. Byte sizes (`64 MiB`) are already integers."""

    value: int | float | str | bool | None
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a value, dimension, dtype, dtype set or `let`; may be dotted (`env.tp_size`)."""

    id: str
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`: any argument."""

    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Ellipsis_:
    """`..` in a subscript: all leading dimensions."""

    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Unary:
    """`op` is `-`, `not`, or `~` (skip the final rounding of a value, only in `means`)."""

    op: str
    operand: Expr
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Binary:
    """`op` is one of `+ - * / // % **`, `== != < <= > >= in` and `not in`, `and`, `or`."""

    op: str
    left: Expr
    right: Expr
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Keyword:
    name: str
    value: Expr
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Call:
    """`f(a, b, k = c)`; `func` is a possibly dotted op, primitive or predicate name."""

    func: str
    args: tuple[Expr, ...]
    kwargs: tuple[Keyword, ...] = ()
    span: Span | None = _span()
    func_span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Method:
    """`x.to(f32)`: a torch-like method on a tensor value."""

    receiver: Expr
    name: str
    args: tuple[Expr, ...]
    kwargs: tuple[Keyword, ...] = ()
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Slice:
    """`start:stop` inside a subscript; either may be missing."""

    start: Expr | None
    stop: Expr | None
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Subscript:
    """`x[.., :N]`."""

    receiver: Expr
    items: tuple[Expr, ...]
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Sequence:
    """`(a, b)` or `[a, b]`: a set in conditions, a list of sizes in bodies."""

    items: tuple[Expr, ...]
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Spread:
    """`tokens..`: any number of leading dimensions; `tokens` alone is then their product."""

    name: str
    span: Span | None = _span()


Expr: TypeAlias = (
    Literal
    | Name
    | Wildcard
    | Ellipsis_
    | Unary
    | Binary
    | Call
    | Method
    | Slice
    | Subscript
    | Sequence
    | Spread
)
