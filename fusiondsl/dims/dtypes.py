"""What a dtype's name says: whether it is one, and how many bytes an element takes."""

from __future__ import annotations

import re

_NAME = re.compile(r"fp8|b8|bf16|f(?:16|32|64)|[iu](?:8|16|32|64)|f([48])e\d+m\d+[a-z]*(?:x(\d))?")
_DIGITS = re.compile(r"\d+")

FP8 = "fp8"
FP8_CANDIDATES = frozenset({"f8e4m3fn", "f8e4m3fnuz"})
"""What the arch-dependent `fp8` may turn out to be."""


def is_dtype(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def itemsize(name: str) -> int | None:
    """Bytes of one element, None for a name that is no dtype (`any`, a variable)."""
    match = _NAME.fullmatch(name)
    digits = _DIGITS.search(name)
    if match is None or digits is None:
        return None
    bits = int(digits.group()) * int(match.group(2) or 1)
    return bits // 8
