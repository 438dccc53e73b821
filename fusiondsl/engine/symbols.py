"""Sizes of fake tensors as `Dim`s, and the known ranges of their symbols, without adding a guard.

A `SymInt` is read through its expression only. It is never compared, converted or tested for
truth, so no guard can reach the graph's `ShapeEnv`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from fusiondsl.dims import Dim, Facts, Range

if TYPE_CHECKING:
    import sympy

Size: TypeAlias = int | Dim
"""A static size is a plain int, so that the common case compares at C speed."""


@lru_cache(maxsize=65536)
def _dim_of_expr(expr: sympy.Expr) -> Size:
    dim = _translate(expr)
    constant = dim.as_int()
    return dim if constant is None else constant


def _translate(expr: sympy.Expr) -> Dim:
    # Types are looked up by name: torch's own sympy functions have moved between releases.
    kind = type(expr).__name__
    if expr.is_Symbol:
        return Dim.symbol(str(expr))
    if expr.is_Integer:
        return Dim.const(int(expr))
    args: tuple[Any, ...] = expr.args
    if expr.is_Add:
        total = Dim.const(0)
        for arg in args:
            total = total + _translate(arg)
        return total
    if expr.is_Mul and all(not a.is_Rational or a.is_Integer for a in args):
        product = Dim.const(1)
        for arg in args:
            product = product * _translate(arg)
        return product
    if expr.is_Pow and args[1].is_Integer and int(args[1]) > 0:
        power = Dim.const(1)
        for _ in range(int(args[1])):
            power = power * _translate(args[0])
        return power
    if kind == "FloorDiv" and args[1].is_Integer:
        return _translate(args[0]) // int(args[1])
    if kind in ("Mod", "PythonMod") and args[1].is_Integer:
        return _translate(args[0]) % int(args[1])
    # Anything else is one opaque quantity: equal to itself, otherwise unknown.
    return Dim.symbol(str(expr))


def plain_reads() -> AbstractContextManager[None]:
    """Attributes of fake tensors without a look for overrides, which takes half of the time."""
    plain: AbstractContextManager[None] = torch._C.DisableTorchFunctionSubclass()
    return plain


def size_of(size: Any) -> Size:
    """An int, `SymInt` or `Size` as a `Size`."""
    if type(size) is int:
        return size
    if isinstance(size, Dim):
        constant = size.as_int()
        return size if constant is None else constant
    if isinstance(size, torch.SymInt):
        return _dim_of_expr(size.node.expr)
    return int(size)


def as_dim(size: Size) -> Dim:
    return size if isinstance(size, Dim) else Dim.const(size)


def _read(sizes: Any) -> tuple[Size, ...]:
    return tuple([s if type(s) is int else _dim_of_node(s.node) for s in sizes])


def _dim_of_node(node: Any) -> Size:
    # `expr` applies the replacements of the ShapeEnv; only the translation is remembered.
    return _dim_of_expr(node.expr)


def shape_of(value: torch.Tensor) -> tuple[Size, ...]:
    return _read(value.shape)


def device_of(value: torch.Tensor) -> torch.device:
    # FakeTensor's `device` goes through two properties; this is read for every matched value.
    device: torch.device | None = getattr(value, "_fake_device", None)
    return value.device if device is None else device


def strides_of(value: torch.Tensor) -> tuple[Size, ...]:
    return _read(value.stride())


def ranges_of(shape_env: Any, symbols: Iterable[str]) -> dict[str, Range]:
    """A private copy of what the graph's `ShapeEnv` knows about these symbols."""
    if shape_env is None:
        return {}
    known = {str(symbol): bounds for symbol, bounds in shape_env.var_to_range.items()}
    ranges: dict[str, Range] = {}
    for name in symbols:
        bounds = known.get(name)
        if bounds is not None:
            ranges[name] = Range(_finite(bounds.lower), _finite(bounds.upper))
    return ranges


_HUGE = 2**48
"""torch writes `no upper bound` as int_oo or as a number of this size."""


def _finite(bound: Any) -> int | None:
    if not getattr(bound, "is_Integer", False):
        return None
    number = int(bound)
    return number if abs(number) < _HUGE else None


def facts_for(shape_env: Any, sizes: Iterable[Size]) -> Facts:
    """Facts about every symbol in `sizes`."""
    symbols: set[str] = set()
    for size in sizes:
        if isinstance(size, Dim):
            symbols.update(size.symbols())
    return Facts(ranges_of(shape_env, sorted(symbols)))
