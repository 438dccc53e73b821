"""Where the new nodes of a site may stand: after all inputs, before every user of an output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.engine.mutation import Version, is_effectful, is_mutating
from fusiondsl.engine.site import Site
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View


class Place(NamedTuple):
    """New nodes go before `point`; `moved` follow them, in order."""

    point: fx.Node
    moved: tuple[fx.Node, ...] = ()


def find_place(view: View, site: Site, inputs: Callable[[], list[Any]]) -> Place | Problem:
    """The place for a site's new nodes, computed on the graph as it is now."""
    place = _position(site, inputs)
    if isinstance(place, Problem):
        return place
    return _crosses_write(view, site, inputs, place) or _crosses_effect(view, site, place) or place


def _position(site: Site, inputs: Callable[[], list[Any]]) -> Place | Problem:
    last_matched = max([call.node for call in site.calls])
    first_user = _first_user(site)
    if first_user is None or last_matched < first_user:
        # Whatever a matched call reads stands in front of it already.
        return Place(last_matched)
    point = first_user
    nodes = [_node(value) for value in inputs()]
    late = [node for node in nodes if not node < point]
    if not late:
        return Place(point)
    last_input = max(late)
    moved = _dependents(site, first_user, last_input)
    if any(node in moved for node in nodes):
        cyclic = next(node for node in nodes if node in moved)
        message = f"{cyclic.name} is computed from an output and is an input: a cycle"
        return Problem("structure", message, about=cyclic.name, node=cyclic.name)
    for node in moved:
        if is_mutating(node.target) or is_effectful(node.target):
            return _would_move(node)
    return Place(last_input.next, tuple(moved))


def _node(value: Any) -> fx.Node:
    """The node a value exists from."""
    return value.writer if isinstance(value, Version) else value


def _first_user(site: Site) -> fx.Node | None:
    first: fx.Node | None = None
    for _, _, values in site.outputs:
        for value in values:
            for user in value.users:
                if user not in site.own and (first is None or user < first):
                    first = user
    return first


def _dependents(site: Site, first: fx.Node, last: fx.Node) -> dict[fx.Node, None]:
    """Nodes from `first` to `last` that depend on an output, in graph order."""
    outputs = {v for _, _, values in site.outputs for v in values if isinstance(v, fx.Node)}
    dependents: dict[fx.Node, None] = {}
    node = first
    while True:
        if node not in site.own and any(
            source in dependents or source in outputs for source in node.all_input_nodes
        ):
            dependents[node] = None
        if node is last:
            return dependents
        node = node.next


def _crosses_write(
    view: View, site: Site, inputs: Callable[[], list[Any]], place: Place
) -> Problem | None:
    """No buffer that is read may be written between its old and its new reader."""
    mutations = view.mutations
    if not mutations.any:
        return None
    if place.moved:
        return Problem("effect", "nodes would have to move in a graph that writes its buffers")
    inside = [node for node in site.own if node not in site.staying]
    for value in inputs():
        buffer = value.node if isinstance(value, Version) else value
        for node in inside:
            if buffer not in node.all_input_nodes:
                continue
            writer = mutations.written_between(buffer, node, place.point)
            if writer is not None and writer not in site.own:
                message = f"{buffer.name} is written by {writer.name} in between"
                return Problem("effect", message, about=buffer.name, node=writer.name)
    return None


def _crosses_effect(view: View, site: Site, place: Place) -> Problem | None:
    """Effects on one resource keep their order."""
    for node in place.moved:
        mine = _resources(view, node)
        if mine and any(
            other not in place.moved and mine & _resources(view, other)
            for other in _between(node, place.point)
        ):
            return _would_move(node)
    for index, effects in site.rule.effects.items():
        if index in site.rule.kept_calls:
            continue
        origin = site.calls[index].node
        resources = {effect.resource for effect in effects}
        for node in _between(min(origin, place.point, *place.moved), max(origin, place.point)):
            # Before the call then and now, or after it both times.
            stays_before = node < place.point and node not in place.moved
            if node in site.own or (node < origin) == stays_before:
                continue
            if _resources(view, node) & resources:
                message = f"{node.name} uses the same {min(resources)} in between"
                return Problem("effect", message, about=min(resources), node=node.name)
    return None


def _would_move(node: fx.Node) -> Problem:
    message = f"{node.name} would have to move and has an effect"
    return Problem("effect", message, about=node.name, node=node.name)


def _between(first: fx.Node, second: fx.Node) -> Iterator[fx.Node]:
    """Nodes from one to the other, whichever comes first; neither end of the graph."""
    node, last = (first, second) if first < second else (second, first)
    while node is not last and node.op != "root":
        yield node
        node = node.next


def _resources(view: View, node: fx.Node) -> set[str]:
    if node.op != "call_function":
        return set()
    wrapped = node.target in (auto_functionalized, auto_functionalized_v2)
    binding = view.bindings.of(node.args[0] if wrapped else node.target)
    return set() if binding is None else {effect.resource for effect in binding.decl.effects}
