"""The primitives as torch functions over values that remember their unrounded form.

Half-precision results are computed in f32 and rounded once, as torch's own kernels do, so the
unrounded form of every value is at hand. Sums accumulate in f64: a reference must not depend on
the order in which one machine happens to add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from fusiondsl.ops.dtypes import is_half


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a body; `unrounded` is what `~` gives, None where nothing was rounded."""

    tensor: torch.Tensor
    unrounded: torch.Tensor | None = None
    nominal: torch.dtype | None = None
    """The dtype the types speak of, where `tensor` itself is an unrounded value."""

    @property
    def exact(self) -> torch.Tensor:
        return self.tensor if self.unrounded is None else self.unrounded

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype if self.nominal is None else self.nominal

    def skipping_rounding(self) -> Value:
        """`~` of this value."""
        return Value(self.exact, nominal=self.dtype)


Argument: TypeAlias = Any
"""A Value, a number, a dtype, a list of these, or None."""


def apply(name: str, args: Sequence[Argument]) -> Value:
    """The result of primitive `name`; `args` in the order of its declaration."""
    if name in _ROUNDED:
        return _rounded(_ROUNDED[name], args)
    if name in _MOVED:
        return _moved(_MOVED[name], args)
    return _OTHER[name](*args)


# --- arithmetic: computed in f32 at least, rounded once ------------------------------------------


def _wide(tensor: Any) -> Any:
    half = isinstance(tensor, torch.Tensor) and is_half(tensor.dtype)
    return tensor.float() if half else tensor


def _rounded(function: Callable[..., torch.Tensor], args: Sequence[Argument]) -> Value:
    tensors = [a.tensor if isinstance(a, Value) else a for a in args]
    dtype = _result_dtype(tensors)
    exact = function(*(_wide(t) for t in tensors))
    if dtype is None or not is_half(dtype):
        return Value(exact)
    return Value(exact.to(dtype), exact)


def _result_dtype(operands: list[Any]) -> torch.dtype | None:
    tensors = [t for t in operands if isinstance(t, torch.Tensor)]
    if not tensors:
        return None
    dtype = tensors[0].dtype
    for other in tensors[1:]:
        dtype = torch.promote_types(dtype, other.dtype)
    return dtype


def _div(x: Any, y: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        return torch.tensor(x / y)
    return torch.true_divide(x, y) if isinstance(x, torch.Tensor) else x / y


def _binary(pick: Callable[[Any, Any], torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
    """A torch function of two tensors that also takes a number on either side."""

    def function(x: Any, y: Any) -> torch.Tensor:
        like = x if isinstance(x, torch.Tensor) else y
        x, y = (
            v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=like.dtype) for v in (x, y)
        )
        return pick(x, y)

    return function


def _sum(x: torch.Tensor, dim: Any) -> torch.Tensor:
    return x.double().sum(dim).to(x.dtype) if x.is_floating_point() else x.sum(dim)


def _mean(x: torch.Tensor, dim: Any) -> torch.Tensor:
    return x.double().mean(dim).to(x.dtype)


_ROUNDED: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": _div,
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "pow": lambda x, exponent: torch.pow(x, exponent),
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log2": torch.log2,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "sigmoid": torch.sigmoid,
    # Inductor's decomposition, so that both spellings are one value.
    "silu": lambda x: x / (torch.exp(-x) + 1),
    "relu": torch.relu,
    "tanh": torch.tanh,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round_even": torch.round,
    "clamp_min": lambda x, least: torch.clamp(x, min=least),
    "clamp_max": lambda x, most: torch.clamp(x, max=most),
    "mean": _mean,
    "sum": _sum,
    "amax": lambda x, dim: torch.amax(x, dim),
    "amin": lambda x, dim: torch.amin(x, dim),
    "matmul": torch.matmul,
}


# --- movement: applied to both forms -------------------------------------------------------------


def _moved(function: Callable[..., torch.Tensor], args: Sequence[Argument]) -> Value:
    value, *rest = args
    exact = None if value.unrounded is None else function(value.unrounded, *rest)
    return Value(function(value.tensor, *rest), exact)


def _slice(x: torch.Tensor, dim: int, start: int | None, stop: int | None) -> torch.Tensor:
    begin = 0 if start is None else start
    index = slice(begin, stop)
    return x[(..., index, *(slice(None) for _ in range(-1 - dim)))]


_MOVED: dict[str, Callable[..., torch.Tensor]] = {
    "view": lambda x, shape: x.reshape(shape),
    "slice": _slice,
    # A kernel may round here; the reference does not.
    "maybe_round": lambda x: x,
    "pad": lambda x, before, after, value: functional.pad(x, (before, after), value=value),
}


# --- casts, creation -----------------------------------------------------------------------------


def _cast(x: Argument, dtype: torch.dtype) -> Value:
    tensor = x.tensor
    if _is_exact(tensor.dtype, dtype):
        exact = None if x.unrounded is None else x.unrounded.to(_wider(x.unrounded.dtype, dtype))
        return Value(tensor.to(dtype), exact)
    return Value(tensor.to(dtype), tensor)


def _is_exact(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether a cast loses nothing; then there is no rounding for `~` to skip."""
    if source == target:
        return True
    if not (source.is_floating_point and target.is_floating_point):
        return False
    return torch.promote_types(source, target) == target and target.itemsize > source.itemsize


def _wider(source: torch.dtype, target: torch.dtype) -> torch.dtype:
    return source if source.itemsize >= target.itemsize else target


def _cat(xs: Sequence[Value], dim: int) -> Value:
    return Value(torch.cat([x.tensor for x in xs], dim), torch.cat([x.exact for x in xs], dim))


_OTHER: dict[str, Callable[..., Value]] = {
    "cast": _cast,
    "bitcast": lambda x, dtype: Value(x.tensor.view(dtype)),
    "cat": _cat,
    "zeros": lambda shape, dtype: Value(torch.zeros(shape, dtype=dtype)),
    "zeros_like": lambda x: Value(torch.zeros_like(x.tensor)),
    "full": lambda shape, value, dtype: Value(torch.full(shape, value, dtype=dtype)),
    "empty": lambda shape, dtype: Value(torch.empty(shape, dtype=dtype)),
    "empty_like": lambda x: Value(torch.empty_like(x.tensor)),
}
