"""Whether two trees say the same, wherever they stand in their files."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from fusiondsl.diagnostics.source import Source, Span


def structure(node: Any) -> Any:
    """`node` as nested tuples without positions; hashable, equal where the trees are equal."""
    if isinstance(node, tuple | list):
        return tuple(structure(part) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return (type(node).__name__, node)
    parts = (getattr(node, field.name) for field in fields(node))
    kept = (part for part in parts if not isinstance(part, Span | Source))
    return (type(node).__name__, *(structure(part) for part in kept))
