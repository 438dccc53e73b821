"""Whether two trees say the same, wherever they stand in their files."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

_POSITIONS = frozenset({"span", "func_span", "source"})


def structure(node: Any) -> Any:
    """`node` as nested tuples without positions; hashable, equal where the trees are equal."""
    if isinstance(node, tuple | list):
        return tuple(structure(part) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return (type(node).__name__, node)
    kept = (field.name for field in fields(node) if field.name not in _POSITIONS)
    return (type(node).__name__, *(structure(getattr(node, name)) for name in kept))
