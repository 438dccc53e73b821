"""FX graphs in and out: the reader for printed graphs, and a lossless form of our own.

A graph that is rewritten where it is needs neither: they are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusiondsl.lazy import on_first_use

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

__getattr__ = on_first_use(__name__, _HOMES)
