"""What the schema of an op calls a `layer`: an object that torch hands on and never looks at."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Layer:
    """A layer by its name.

    Where a schema has this type, torch takes any object: a name as `str` as well as what a library
    wraps its names in.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layer) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        return f"Layer({self.name!r})", {"Layer": Layer}


def _schema_type() -> str:
    try:
        opaque: Any = import_module("torch._library.opaque_object")
        opaque.register_opaque_type(Layer, typ="value")
    except (ImportError, AttributeError, TypeError):  # before torch 2.11
        return "str"
    return f"{Layer.__module__}.{Layer.__qualname__}"


SCHEMA_TYPE = _schema_type()
"""The type of a layer in a schema; a name as it is where torch has no opaque types."""
