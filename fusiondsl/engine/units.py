"""What can be rewritten by itself, whatever is rewritten before: one site, or a knot of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from fusiondsl.engine.apply import Judged, Run, in_order
from fusiondsl.engine.mutation import Version
from fusiondsl.engine.place import Place
from fusiondsl.engine.site import Site
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View


@dataclass(slots=True, eq=False)
class Unit:
    """Sites that are settled together."""

    sites: list[Judged]
    nodes: frozenset[fx.Node]
    """All that one of the sites would rewrite or erase."""
    anchor: fx.Node | None
    """The first result a single site replaces."""


@dataclass(slots=True, eq=False)
class _Knot:
    """Sites within one stretch of the graph."""

    first: fx.Node
    last: fx.Node
    sites: list[Judged] = field(default_factory=list)


def units(
    run: Run, view: View, sites: list[Judged], is_offered: Callable[[fx.Node], bool]
) -> list[Unit]:
    """Sites in units that do not depend on each other, settled as `Run.settle` settles them.

    A site whose new nodes simply stand where its last call stood can be rewritten before or after
    any other. Where a site moves nodes, or cannot be placed as the graph is, the order decides:
    all sites in that stretch of the graph are one unit. Losers are refused. A site that is offered
    at none of its nodes waits for the graph pass, and so must what it leaves in place.
    """
    places = {id(site): run.place(view, site) for site, _ in sites}
    bound = [site for site, _ in sites if not _stands_alone(site, places[id(site)])]
    knots = _knots(bound, sites) if bound else []
    tied = {id(site) for knot in knots for site, _ in knot.sites}
    found: list[Unit] = []
    taken: dict[fx.Node, Site] = {}
    alone = {site: verdict for site, verdict in sites if id(site) not in tied}
    for site in in_order(alone):
        if run.loses(site, taken):
            continue
        claimed = site.claimed()
        waits = not any(map(is_offered, claimed))
        taken.update(dict.fromkeys(site.own if waits else claimed, site))
        found.append(Unit([(site, alone[site])], frozenset(claimed), _first_result(site)))
    for knot in knots:
        problems = [(s, p) for s, _ in knot.sites if isinstance(p := places[id(s)], Problem)]
        if len(problems) < len(knot.sites):
            nodes = frozenset(node for site, _ in knot.sites for node in site.claimed())
            found.append(Unit(knot.sites, nodes, None))
            continue
        for site, problem in problems:
            run.refuse(site, problem)
    return found


def _first_result(site: Site) -> fx.Node | None:
    value = site.outputs[0][2][0] if site.outputs else None
    return value if isinstance(value, fx.Node) else None


def _stands_alone(site: Site, place: Place | Problem) -> bool:
    """The place follows from the site's own calls, and no other rewrite changes that.

    Inputs stand before the call that reads them and users of outputs behind the last call, and both
    stay so when they become nodes of another such site.
    """
    if isinstance(place, Problem) or place.moved:
        return False
    return place.point is max(call.node for call in site.calls)


def _knots(bound: list[Site], sites: list[Judged]) -> list[_Knot]:
    """The stretches of bound sites, widened until no other site reaches into one."""
    reach = {id(site): _reach(site) for site, _ in sites}
    knots = [_Knot(*reach[id(site)]) for site in bound]
    waiting = list(sites)
    while True:
        knots = _merged(knots)
        inside = [(item, k) for item in waiting if (k := _over(knots, reach[id(item[0])]))]
        if not inside:
            return knots
        for item, knot in inside:
            first, last = reach[id(item[0])]
            knot.first, knot.last = min(knot.first, first), max(knot.last, last)
            knot.sites.append(item)
        placed = {id(item[0]) for item, _ in inside}
        waiting = [item for item in waiting if id(item[0]) not in placed]


def _over(knots: list[_Knot], reach: tuple[fx.Node, fx.Node]) -> _Knot | None:
    first, last = reach
    return next((k for k in knots if not (k.last < first or last < k.first)), None)


def _merged(knots: list[_Knot]) -> list[_Knot]:
    merged: list[_Knot] = []
    for knot in sorted(knots, key=lambda k: k.first):
        if not merged or merged[-1].last < knot.first:
            merged.append(knot)
            continue
        merged[-1].last = max(merged[-1].last, knot.last)
        merged[-1].sites += knot.sites
    return merged


def _reach(site: Site) -> tuple[fx.Node, fx.Node]:
    """All the graph that placing a site looks at or changes."""
    inputs = [_node(value) for _, value in (*site.inputs, *site.kept)]
    return min(site.own), max(*site.own, *inputs)


def _node(value: Any) -> fx.Node:
    return value.writer if isinstance(value, Version) else value
