"""Which constants are the rounded reciprocals of others."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import torch


class _Format(NamedTuple):
    """The normal numbers of a format."""

    least: float
    most: float


_SINGLE = _Format(2.0**-126, torch.finfo(torch.float32).max)
_DOUBLE = _Format(2.0**-1022, torch.finfo(torch.float64).max)
_COMPUTED_IN = {
    torch.float64: _DOUBLE,
    torch.float32: _SINGLE,
    torch.bfloat16: _SINGLE,
    torch.float16: _SINGLE,
}
"""By dtype of the operands: a constant beside half-precision values is of single precision."""

FLOATS = frozenset(_COMPUTED_IN)
HALVES = frozenset({torch.bfloat16, torch.float16})

_MOST_WHOLE = 2**53
"""Whole numbers up to this one are numbers of double precision."""


def is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _MOST_WHOLE)


def is_reciprocal(number: Any, of: Any, dtype: torch.dtype) -> bool:
    """`number` is `1 / of`, rounded as Python rounds it, or as the operation would.

    Zeros, infinities and NaNs are reciprocals of nothing here. Neither is what is subnormal in the
    format of the operation, or has a subnormal reciprocal: some devices make zero of that.
    """
    format = _COMPUTED_IN.get(dtype)
    if format is None or not (_is_normal(number, format) and _is_normal(of, format)):
        return False
    if number == 1.0 / of:
        return True
    # The quotient of two numbers of single precision survives being rounded to double first.
    return format is _SINGLE and number == _in_single(1.0 / _in_single(of))


def reciprocals(of: Any, dtype: torch.dtype) -> tuple[float, ...]:
    """All that `is_reciprocal` takes for one of `of`."""
    if not is_number(of) or not of:
        return ()
    found = [1.0 / of]
    if _COMPUTED_IN.get(dtype) is _SINGLE and _is_normal(of, _SINGLE):
        found.append(_in_single(1.0 / _in_single(of)))
    return tuple(c for c in dict.fromkeys(found) if is_reciprocal(c, of, dtype))


def inverse(number: Any, dtype: torch.dtype) -> float | None:
    """What `number` is the reciprocal of: of what fits, the number that is shortest to write."""
    if not is_number(number) or not number:
        return None
    about = 1.0 / number
    near = {about, math.nextafter(about, math.inf), math.nextafter(about, -math.inf)}
    if abs(about) <= _SINGLE.most:
        near.add(_in_single(about))
    fits = [c for c in near if is_reciprocal(number, c, dtype)]
    return min(fits, key=lambda c: (len(repr(c)), abs(c - about), c), default=None)


def is_about(number: Any, of: Any) -> bool:
    """Whoever wrote `number` may well have meant `1 / of`."""
    return is_number(number) and is_number(of) and 0.99 < number * of < 1.01


def is_power_of_two(number: Any) -> bool:
    """No reciprocal of it is rounded, and neither is a product with that."""
    return is_number(number) and abs(math.frexp(number)[0]) == 0.5


def _is_normal(number: Any, format: _Format) -> bool:
    return is_number(number) and format.least <= abs(number) <= format.most


def _in_single(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
