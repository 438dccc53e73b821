"""The levels of operators, loosest first, for reading and printing."""

from __future__ import annotations

COMPARISON = 4

BINARY: dict[str, int] = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "not in"), COMPARISON),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "//", "%"), 6),
    "**": 8,
}
UNARY: dict[str, int] = {"not": 3, "-": 7, "~": 7}
POSTFIX = 9
"""Calls, methods, subscripts and atoms."""
