"""Python references of axiom ops: the operations whose meaning is not written in the language."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Reference: TypeAlias = Callable[..., Any]
"""Takes the op's call arguments in order; returns its one result or a tuple of them."""

_FAMILIES = ("attention", "collectives", "fp8", "mx")

_references: dict[str, Reference] = {}


def axiom(name: str) -> Callable[[Reference], Reference]:
    """Registers the decorated function as the reference of axiom op `name`."""

    def register(function: Reference) -> Reference:
        _references[name] = function
        return function

    return register


def find(name: str) -> Reference | None:
    """The reference of an axiom op, None where there is none."""
    for family in _FAMILIES:
        import_module(f"{__name__}.{family}")
    return _references.get(name)
