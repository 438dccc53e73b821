"""The text of an FX graph as data: statements and expressions, located, not yet resolved."""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias

from fusiondsl.diagnostics.source import Span


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: number, string, `None`, `True`, `False`, `Ellipsis`, `inf`, `nan`."""

    value: int | float | str | bool | EllipsisType | None
    span: Span


@dataclass(frozen=True, slots=True)
class Dotted:
    """`mm`, `torch.bfloat16`, `self.layer.weight`."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Attribute:
    """`.name` on something that is not a plain dotted name."""

    receiver: Expr
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    func: Expr
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Item:
    receiver: Expr
    index: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Listing:
    """A list or a tuple."""

    items: tuple[Expr, ...]
    is_list: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Mapping:
    items: tuple[tuple[Expr, Expr], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Prefix:
    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Infix:
    op: str
    left: Expr
    right: Expr
    span: Span


Expr: TypeAlias = Constant | Dotted | Attribute | Call | Item | Listing | Mapping | Prefix | Infix


@dataclass(frozen=True, slots=True)
class Parameter:
    """A placeholder. `annotation` is the span of the annotation's text, without its quotes."""

    name: str
    annotation: Span | None
    default: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Assign:
    """`name: "annotation" = value`; `trace` is the origin given by the comment above."""

    name: str
    annotation: Span | None
    value: Expr
    trace: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Inplace:
    """`target += value` or `target[index] = value`: the node's name follows as an alias."""

    op: str
    target: Expr
    value: Expr
    trace: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Unpacked:
    """`a, b, = fx_pytree.tree_flatten_spec(..)`: the inputs, where parameters are trees of them."""

    params: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """`a = b = None`: the last use of these values has passed."""

    names: tuple[str, ...]


Statement: TypeAlias = Assign | Inplace | Free | Unpacked


@dataclass(frozen=True, slots=True)
class GraphText:
    path: tuple[str, ...]
    """Names of the enclosing classes, outermost first."""
    params: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    result: Expr | None
    """What `return` gives; None where the text ends before it."""
    span: Span
    open: bool = False
    """Part of the graph is not in the text: names that are never defined are inputs."""
    cut: bool = False
    """The text ends before the graph does."""
    notes: tuple[str, ...] = ()
    """What was left out or could not be read, in words."""
