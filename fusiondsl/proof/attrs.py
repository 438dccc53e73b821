"""Attributes: scalars as a proof compares them, each tagged with what it is."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

from fusiondsl.dims.expr import DType
from fusiondsl.proof.size import Size

Attr: TypeAlias = tuple[Any, ...]
"""`("int", Size)`, `("float", hex)`, `("bool", b)`, `("str", s)`, `("dtype", format)`,
`("name", n)` for one that is not known, `("expr", op, ...)` for a sum of these, or `NONE`."""

NONE: Final[Attr] = ("none",)


def of_value(value: int | float | str | bool | DType | None) -> Attr:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", Size.const(value))
    if isinstance(value, float):
        return of_float(value)
    return ("dtype", value.name) if isinstance(value, DType) else ("str", value)


def of_float(value: float) -> Attr:
    # 0.0 and -0.0 are equal keys, and two numbers here
    return ("float", value.hex())


def number(attr: Attr) -> float | None:
    """The value of a known number."""
    if attr[0] == "float":
        return float.fromhex(attr[1])
    if attr[0] == "int":
        value: int | None = attr[1].value
        return None if value is None else float(value)
    return None


def size(attr: Attr) -> Size | None:
    if attr[0] == "int":
        found: Size = attr[1]
        return found
    return Size.symbol(attr[1]) if attr[0] == "name" else None


def is_known(attr: Attr) -> bool:
    """Is it one value, whatever the graph holds?"""
    if attr[0] == "int":
        return attr[1].value is not None
    return attr[0] in ("float", "bool", "str", "none")


def as_f32(value: float) -> float:
    """The nearest f32, which is what arithmetic in f32 sees of a constant."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def show(attr: Attr) -> str:
    """As a rule would write it."""
    kind = attr[0]
    if kind == "float":
        return _shortest(float.fromhex(attr[1]))
    if kind == "bool":
        return "true" if attr[1] else "false"
    if kind == "str":
        return f'"{attr[1]}"'
    if kind == "none":
        return "none"
    if kind == "expr":
        return f"({f' {attr[1]} '.join(show(part) for part in attr[2:])})"
    return str(attr[1])


def _shortest(value: float) -> str:
    """The fewest digits that are the same number in f32, where it is one."""
    if as_f32(value) != value:
        return repr(value)
    digits = (f"{value:.{count}g}" for count in range(1, 10))
    text = next((d for d in digits if as_f32(float(d)) == value), repr(value))
    return repr(float(text))
