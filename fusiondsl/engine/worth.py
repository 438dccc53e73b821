"""Whether a graph has what rules look for in another spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from torch import fx

from fusiondsl.engine import aten
from fusiondsl.engine.reciprocals import is_about, is_number
from fusiondsl.engine.respelled import OTHER_TARGETS, Others, is_one
from fusiondsl.engine.view import View
from fusiondsl.engine.wanted import PASSED, Readers, Wanted


def others_of(view: View, wanted: Wanted) -> Others | None:
    """None where nothing in the graph can be read in another way than it stands there.

    What can is looked for everywhere, which takes time: so a look at who reads it comes first.
    """
    there = {_KINDS[id(t)] for t in view.by_target if id(t) in _KINDS}
    if not there:
        return None
    if "power" in there:
        there.update(_powers(view))
    if "quotient" in there and any(map(is_one, _numerators(view))):
        there.add("reciprocal")
    possible = {
        op
        for op, has, also, is_read in _WORTH
        if op in wanted.ops and has <= there and also <= wanted.ops and is_read(view, wanted)
    }
    possible.update(wanted.ops.intersection(_by_constants(view, wanted, there)))
    return Others(view, wanted, frozenset(possible)) if possible else None


def _powers(view: View) -> Iterator[str]:
    """Roots and reciprocals that are written as powers."""
    for node in _nodes_of(view, "prim.pow"):
        primitive = aten.read(node)
        if primitive is None:
            continue
        if primitive.op == "prim.pow" and primitive.args[1] == -1:
            yield "reciprocal"
        elif primitive.op != "prim.square":
            yield "root" if primitive.op == "prim.sqrt" else "rsqrt"


def _numerators(view: View) -> Iterator[Any]:
    for node in _nodes_of(view, "prim.div"):
        yield from node.args[:1]


def _by_constants(view: View, wanted: Wanted, there: set[str]) -> Iterator[str]:
    """Whether a factor is about the reciprocal of what a rule divides by, or the reverse."""
    for op, kind, spelled, constants, any_constant in (
        ("prim.div", "product", "prim.mul", wanted.divisors, wanted.any_divisor),
        ("prim.mul", "quotient", "prim.div", wanted.factors, wanted.any_factor),
    ):
        if kind not in there or not (constants or any_constant):
            continue
        for given in _numbers(view, spelled):
            if any_constant or any(is_about(given, c) for c in constants):
                yield op
                break


def _numbers(view: View, op: str) -> Iterator[Any]:
    for node in _nodes_of(view, op):
        yield from filter(is_number, node.args)


_KINDS: Mapping[int, str] = {
    id(target): kind
    for kind, op in (
        ("root", "prim.sqrt"),
        ("rsqrt", "prim.rsqrt"),
        ("reciprocal", "prim.reciprocal"),
        ("quotient", "prim.div"),
        ("product", "prim.mul"),
        ("sum", "prim.sum"),
        ("power", "prim.pow"),
    )
    for target in aten.TARGETS[op]
}


# --- who reads it --------------------------------------------------------------------------------


def _always(view: View, wanted: Wanted) -> bool:
    return True


def _as_quotients(view: View, wanted: Wanted) -> bool:
    """Some product with a reciprocal, or reciprocal, is read as programs read their quotients."""
    others = Others(view, wanted, frozenset())
    return any(
        _may_read(view, node, wanted.quotients)
        for op in ("prim.mul", "prim.reciprocal", "prim.div", "prim.pow")
        for node in _nodes_of(view, op)
        if others.has_reciprocal(node)
    )


def _as_products(view: View, wanted: Wanted) -> bool:
    """Some quotient is read as programs read their products with a reciprocal."""
    quotients = _nodes_of(view, "prim.div")
    return any(_may_read(view, node, wanted.products) for node in quotients)


def _as_reciprocals(view: View, wanted: Wanted) -> bool:
    """A reciprocal is written in another way."""
    return (
        any(map(is_one, _numerators(view)))
        or any(given == 1 for given in _numbers(view, "prim.mul"))
        or "reciprocal" in _powers(view)
    )


def _may_read(view: View, value: fx.Node, readers: Readers) -> bool:
    """One of these primitives may read the value, also in another spelling or behind no-ops."""
    if readers is None or view.mutations.any:
        return True
    wanted = _target_ids(readers)
    seen = {value: None}
    waiting = [value]
    for node in waiting:
        for user in node.users:
            if id(user.target) in wanted:
                return True
            if id(user.target) in _PASSED_IDS and user not in seen:
                seen[user] = None
                waiting.append(user)
    return False


def _nodes_of(view: View, op: str) -> Iterator[fx.Node]:
    for target in aten.TARGETS[op]:
        yield from view.nodes_of(target)


@cache
def _target_ids(readers: frozenset[str]) -> frozenset[int]:
    targets = (t for op in readers for t in (*aten.TARGETS[op], *OTHER_TARGETS.get(op, ())))
    return frozenset(map(id, targets))


_PASSED_IDS = aten.NO_OP_IDS.union(id(t) for op in PASSED for t in aten.TARGETS[op])

_Check = Callable[[View, Wanted], bool]
_ROWS: tuple[tuple[str, list[str], list[str], _Check], ...] = (
    ("prim.mean", ["sum"], [], _always),
    ("prim.rsqrt", ["root"], [], _always),
    ("prim.sqrt", ["rsqrt"], [], _always),
    ("prim.div", ["reciprocal"], [], _as_quotients),
    ("prim.div", ["rsqrt"], ["prim.sqrt"], _always),
    ("prim.reciprocal", ["reciprocal"], [], _as_reciprocals),
    ("prim.reciprocal", ["rsqrt"], ["prim.sqrt"], _always),
    ("prim.mul", ["quotient"], ["prim.reciprocal"], _as_products),
    ("prim.reciprocal", ["quotient"], ["prim.mul"], _as_products),
    ("prim.mul", ["quotient", "root"], ["prim.rsqrt"], _always),
)
_WORTH = tuple((op, frozenset(has), frozenset(also), check) for op, has, also, check in _ROWS)
"""Primitives with what a graph has that may be one, and what else a program must look for."""
