"""FX graphs in and out: the reader for printed graphs, and a lossless form of our own."""

from fusiondsl.graphs.dumps import Kind
from fusiondsl.graphs.opaque import OpaqueOp
from fusiondsl.graphs.reader import ReadGraph, read
from fusiondsl.graphs.saved import load, save

__all__ = ["Kind", "OpaqueOp", "ReadGraph", "load", "read", "save"]
