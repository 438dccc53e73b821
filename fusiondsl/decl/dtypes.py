"""Dtype names: one short name each, as FX graph dumps print them."""

from __future__ import annotations

# fusiondsl name -> (torch attribute, size of one element in bytes, is floating point)
DTYPES: dict[str, tuple[str, int, bool]] = {
    "f64": ("float64", 8, True),
    "f32": ("float32", 4, True),
    "f16": ("float16", 2, True),
    "bf16": ("bfloat16", 2, True),
    "f8e4m3fn": ("float8_e4m3fn", 1, True),
    "f8e4m3fnuz": ("float8_e4m3fnuz", 1, True),
    "f8e5m2": ("float8_e5m2", 1, True),
    "f8e5m2fnuz": ("float8_e5m2fnuz", 1, True),
    "f8e8m0fnu": ("float8_e8m0fnu", 1, True),
    "f4e2m1fnx2": ("float4_e2m1fn_x2", 1, True),
    "i64": ("int64", 8, False),
    "i32": ("int32", 4, False),
    "i16": ("int16", 2, False),
    "i8": ("int8", 1, False),
    "u8": ("uint8", 1, False),
    "u16": ("uint16", 2, False),
    "u32": ("uint32", 4, False),
    "u64": ("uint64", 8, False),
    "b8": ("bool", 1, False),
}

FP8 = "fp8"
"""The arch-dependent fp8: `f8e4m3fnuz` on gfx942 and older CDNA, `f8e4m3fn` elsewhere."""

ANY = "any"


def fp8_of(arch: str | None) -> str:
    return "f8e4m3fnuz" if arch in ("gfx940", "gfx941", "gfx942") else "f8e4m3fn"
