"""Strides: whether results have those of what they replace, and inputs those a target declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.dims import Dim, Facts, evaluate
from fusiondsl.dims.expr import Expr, Wildcard
from fusiondsl.engine.bindings import Binding
from fusiondsl.engine.symbols import Size, as_dim, shape_of, strides_of
from fusiondsl.engine.typecheck import Problem
from fusiondsl.ops.layout import every_stride

_ANY_LAYOUT = frozenset({"aten", "prims"})
"""Namespaces whose ops take tensors of any strides."""


def same_layout(made: torch.Tensor, matched: torch.Tensor) -> bool:
    """Strides that address memory are equal; where leading sizes are regrouped, both are dense."""
    if shape_of(made) != shape_of(matched):
        return is_contiguous(made) and is_contiguous(matched)
    shape = shape_of(made)
    a, b = strides_of(made), strides_of(matched)
    return all(size == 1 or x == y for size, x, y in zip(shape, a, b, strict=True))


def is_contiguous(value: torch.Tensor) -> bool:
    """In the order of the dimensions; a dimension of one element has no stride."""
    expected = as_dim(1)
    for size, stride in zip(reversed(shape_of(value)), reversed(strides_of(value)), strict=True):
        if size != 1 and as_dim(stride) != expected:
            return False
        expected = expected * as_dim(size)
    return True


def layout_problem(name: str, made: torch.Tensor, matched: torch.Tensor) -> Problem:
    return Problem(
        "layout",
        f"{name} has the strides {text(strides_of(matched))}, "
        f"the replacement makes {text(strides_of(made))}",
        about=name,
    )


def misfit(
    binding: Binding, args: Sequence[Any], scope: dict[str, Any], facts: Facts
) -> Problem | None:
    """An argument of an op that is not ours whose strides are not what the op declares.

    Our own ops copy such an argument before they call a kernel; nobody does that for others.
    """
    if not binding.decl.extern or binding.name.partition(".")[0] in _ANY_LAYOUT:
        return None
    for param, value in zip(binding.decl.call_params, args, strict=True):
        kind = param.type
        if not isinstance(kind, ir.TensorType) or not isinstance(value, torch.Tensor):
            continue
        if not _fits(kind, value, scope, facts):
            wanted = "a contiguous tensor" if kind.strides is None else "others"
            return Problem(
                "layout",
                f"{param.name} of {binding.name} has the strides {text(strides_of(value))} "
                f"for the shape {text(shape_of(value))}, the op declares {wanted}",
                about=param.name,
            )
    return None


def _fits(kind: ir.TensorType, value: torch.Tensor, scope: dict[str, Any], facts: Facts) -> bool:
    if kind.strides is None:
        return is_contiguous(value)
    shape, strides = shape_of(value), strides_of(value)
    wanted = every_stride(kind.strides, len(shape))
    if wanted is None:
        return False
    triples = zip(shape, strides, wanted, strict=True)
    return all(size == 1 or _is(stride, expr, scope, facts) for size, stride, expr in triples)


def _is(stride: Size, wanted: Expr, scope: dict[str, Any], facts: Facts) -> bool:
    if isinstance(wanted, Wildcard):
        return True
    expected = evaluate(wanted, scope, facts)
    return isinstance(expected, Dim) and expected == as_dim(stride)


def text(sizes: tuple[Size, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
