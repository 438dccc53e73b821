"""The part of a graph around a site: what its calls need, with the rest as inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import fx

from fusiondsl.engine.why.answer import Cause, SiteAnswer
from fusiondsl.engine.why.show import innermost_frame

_RINGS = 6
"""Times the neighbours are added, before all of the graph is taken."""


def parts(gm: fx.GraphModule, site: SiteAnswer) -> Iterator[fx.GraphModule]:
    """Parts with the site in them, the smallest first, the whole graph last.

    A smaller part may be told something else about: a write, a rule that goes first and who reads a
    value can be outside of it.
    """
    nodes = {node.name: node for node in gm.graph.nodes}
    kept = {nodes[name] for name in _named(site) if name in nodes}
    for _ in range(_RINGS):
        kept = _closed(kept)
        yield _part(gm, kept)
        wider = kept | {near for node in kept for near in _neighbours(node)}
        if wider == kept:
            break
        kept = wider
    yield _part(gm, set(gm.graph.nodes))


def _named(site: SiteAnswer) -> Iterator[str]:
    yield from (site.node, *site.nodes)
    yield from _named_in(site.causes)


def _named_in(causes: Iterable[Cause]) -> Iterator[str]:
    for cause in causes:
        yield from (name for name in (cause.node, cause.field) if name is not None)
        yield from _named_in(cause.because)


def _neighbours(node: fx.Node) -> Iterator[fx.Node]:
    yield from node.all_input_nodes
    if node.op != "placeholder":  # a weight has readers in every layer
        yield from (user for user in node.users if user.op != "output")


def _closed(kept: set[fx.Node]) -> set[fx.Node]:
    """With what stands in between, items of what has several results, and whose items they are."""
    inner = {node for node in kept if node.op not in ("placeholder", "output")}
    inner |= _in_between(inner)
    inner |= {user for node in inner for user in node.users if _is_item(user)}
    for node in list(inner):
        while _is_item(node):
            (node,) = node.all_input_nodes
            inner.add(node)
    return inner | {node for node in kept if node.op == "placeholder"}


def _in_between(kept: set[fx.Node]) -> set[fx.Node]:
    """Nodes on a way from one of these to another."""
    if not kept:
        return set()
    first, last = min(kept), max(kept)
    after: set[fx.Node] = set()
    node = first
    while node is not last:
        if node in kept or any(source in after for source in node.all_input_nodes):
            after.add(node)
        node = node.next
    found: set[fx.Node] = set()
    while node is not first:
        node = node.prev
        if node in after and any(user in found or user in kept for user in node.users):
            found.add(node)
    return found


def _is_item(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem" and len(node.all_input_nodes) == 1


def _part(gm: fx.GraphModule, kept: set[fx.Node]) -> fx.GraphModule:
    """A graph of these nodes under their names; what they read is its inputs."""
    inner = [node for node in gm.graph.nodes if node in kept and node.op != "output"]
    inner = [node for node in inner if node.op != "placeholder"]
    needed = {source for node in inner for source in node.all_input_nodes}
    needed |= {node for node in kept if node.op == "placeholder"}
    graph = fx.Graph(gm)
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node in needed and node not in inner:
            made[node] = _given(graph, node)
    for node in inner:
        made[node] = graph.node_copy(node, made.__getitem__)
        made[node].meta = _meta(node)
    leaving = [node for node in inner if any(user not in made for user in node.users)]
    graph.output(tuple(made[node] for node in leaving))
    return fx.GraphModule(gm, graph)


def _given(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """An input with the value of a node; what stands for no value is taken as it is."""
    if node.op == "get_attr" and "val" not in node.meta:
        given = graph.node_copy(node)
    else:
        given = graph.create_node("placeholder", node.name, name=node.name)
    given.meta = _meta(node)
    return given


def _meta(node: fx.Node) -> dict[str, Any]:
    """The value, and the line of the model."""
    meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    frame = innermost_frame(node)
    return meta if frame is None else {**meta, "stack_trace": frame}
