"""Copies of a graph to try things on."""

from __future__ import annotations

from torch import fx


def copy_of(graph: fx.Graph) -> fx.Graph:
    """The same nodes under the same names."""
    copied = fx.Graph(graph.owning_module)
    copied.output(copied.graph_copy(graph, {}))
    return copied
