"""FX graphs in and out: the reader for printed graphs, and a lossless form of our own.

A graph that is rewritten where it is needs neither: they are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusiondsl.graphs.dumps import Kind
    from fusiondsl.graphs.opaque import OpaqueOp
    from fusiondsl.graphs.reader import ReadGraph, read
    from fusiondsl.graphs.saved import load, save

__all__ = ["Kind", "OpaqueOp", "ReadGraph", "load", "read", "save"]

_HOMES = {
    "Kind": "dumps",
    "OpaqueOp": "opaque",
    "ReadGraph": "reader",
    "load": "saved",
    "read": "reader",
    "save": "saved",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
