"""The assignment of calls in a graph to a body that leaves the fewest differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from torch import fx

from fusiondsl.engine.match import orders
from fusiondsl.engine.mutation import VALUES, Version
from fusiondsl.engine.pattern import (
    CAPTURE,
    INNER,
    INPUT,
    LIST,
    SKIP,
    UNSET,
    Argument,
    literal_key,
)
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.view import View
from fusiondsl.engine.why.lookups import WIDE, Beyond
from fusiondsl.engine.why.sketch import Sketch

ALTERNATIVES = 6
"""Assignments handed on where it takes the sizes to tell which is better."""
_ABOUT = 0.6
"""How much worse than the best one of these may be."""
BUDGET = 200
"""Calls tried from one start."""

MISSING, BETWEEN, WRITTEN, CONSTANT, OTHER, KIND, SPELLING = range(7)
_ELSEWHERE = 0.4
"""What it costs that a value is there, and not from the call that was given up."""
_COSTS = {BETWEEN: 0.5, WRITTEN: 0.45, CONSTANT: 0.3, OTHER: 0.55, KIND: 0.55, SPELLING: 0.0}


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """One difference between a body and what stands in the graph."""

    kind: int
    index: int
    """The call of the body it is about."""
    value: Any
    """What is looked at: a value, or what an argument holds."""
    position: int = -1
    """The argument, where it is about one."""
    wanted: Any = None
    name: str = ""
    """The body's name for the value, where it has one."""
    forward: bool = False
    """The call was looked for among the readers of `value`."""
    between: tuple[fx.Node, ...] = ()
    """What stands in between, in graph order."""
    reasons: tuple[Any, ...] = ()
    """For a spelling that nearly is one of the op: what it lacks."""


@dataclass(slots=True, eq=False)
class Assignment:
    """Calls of the body that were found, and all that is different."""

    slots: list[Any]
    calls: dict[int, Recognised]
    given_up: frozenset[int]
    gaps: tuple[Gap, ...]
    cost: float

    def fork(self) -> Assignment:
        return Assignment(list(self.slots), dict(self.calls), self.given_up, self.gaps, self.cost)


class Graph(Protocol):
    """Where calls come from: the engine's recogniser, and what nearly is a call of an op."""

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]: ...

    def consumers(self, value: Any, position: int, op: str) -> Sequence[Recognised]: ...

    def almost(
        self, value: Any, result: int, op: str
    ) -> list[tuple[Recognised, tuple[Any, ...], float]]:
        """Calls that would be of `op` but for what is listed, with the cost of that."""

    def after_write(
        self, value: Any, position: int, op: str
    ) -> Iterator[tuple[Recognised, Version]]:
        """Calls that read, as argument `position`, what a write has left of a value."""

    def behind(self, value: Any) -> Beyond: ...

    def ahead(self, value: Any) -> Beyond: ...

    def occurs(self, op: str) -> bool:
        """Whether the graph has the operations for some spelling of an op."""

    def noted(self, call: Recognised) -> tuple[Any, ...]:
        """What the normal view had to leave out to read the call."""


class Nearest:
    """One body in one graph."""

    def __init__(self, sketch: Sketch, view: View, graph: Graph) -> None:
        self._sketch = sketch
        self._view = view
        self._graph = graph
        self._finals: list[Assignment] = []
        self._left = 0
        self._most = inf
        self._about = _ABOUT if sketch.has_sizes else 0.0

    def around(self, index: int, call: Recognised, most: float = inf) -> list[Assignment]:
        """Assignments in which `call` is call `index` of the body, best first; none over `most`."""
        self._most = most
        self._finals = []
        self._left = BUDGET
        size = max(self._sketch.path.size, 1)
        start = Assignment([UNSET] * size, {}, frozenset(), (), 0.0)
        for bound in self._bound(start, index, call):
            self._advance(bound)
        return self._finals

    # --- binding ---------------------------------------------------------------------------------

    def _bound(self, state: Assignment, index: int, call: Recognised) -> Iterator[Assignment]:
        """The call bound in every order of its arguments, the better one first."""
        ways = [self._bind(state, index, call, actual) for actual in orders(call)]
        return iter(sorted(ways, key=lambda way: way.cost))

    def _bind(
        self, state: Assignment, index: int, call: Recognised, actual: tuple[Any, ...]
    ) -> Assignment:
        self._left -= 1
        after = state.fork()
        after.calls[index] = call
        gaps: list[Gap] = []
        wanted = self._sketch.args[index]
        for position, (argument, given) in enumerate(zip(wanted, actual, strict=False)):
            gaps += self._unify(after, index, position, argument, given)
        for result, slot in self._sketch.made.get(index, ()):
            value = call.result(result)
            if value is None:
                continue
            if after.slots[slot] is UNSET:
                after.slots[slot] = value
            elif not self._same(after.slots[slot], value):
                name = self._sketch.names[slot]
                gaps.append(Gap(OTHER, index, after.slots[slot], wanted=value, name=name))
        noted = self._graph.noted(call)
        if noted:
            gaps.append(Gap(SPELLING, index, call.node, reasons=noted))
            after.cost += _COSTS[CONSTANT]
        after.gaps = (*after.gaps, *gaps)
        after.cost += sum(_COSTS[gap.kind] for gap in gaps)
        if _stands(state, call):
            # one call stands for one: the other is as good as missing
            after.cost += self._sketch.weights[index]
        return after

    def _unify(
        self, state: Assignment, index: int, position: int, argument: Argument, given: Any
    ) -> Iterator[Gap]:
        kind, slot, more = argument
        if kind == SKIP or given is UNSET:
            return
        if kind == LIST:
            if not isinstance(given, (tuple, list)) or len(given) != len(more):
                yield Gap(CONSTANT, index, given, position, tuple(more))
                return
            for inner, item in zip(more, given, strict=True):
                yield from self._unify(state, index, position, inner, item)
            return
        name = self._sketch.names.get(slot, "")
        if kind == INPUT and given is not None and not isinstance(given, VALUES):
            yield Gap(KIND, index, given, position, name=name)
            return
        if kind == INNER:
            if not isinstance(given, VALUES):
                yield Gap(KIND, index, given, position, name=name)
                return
            given = self._view.strip(given, regroup=more)
        bound = state.slots[slot]
        if bound is UNSET:
            state.slots[slot] = given
            made = self._sketch.producers.get(slot)
            if made is not None and made[0] in state.given_up:
                state.cost += _ELSEWHERE
            yield from self._literal(index, position, slot, given)
        elif kind == CAPTURE:
            node = isinstance(given, VALUES)
            if given is not bound and (node or not _equal(bound, given)):
                yield Gap(CONSTANT, index, given, position, bound, name)
        elif not self._same(bound, given):
            yield Gap(OTHER, index, given, position, bound, name)

    def _literal(self, index: int, position: int, slot: int, given: Any) -> Iterator[Gap]:
        if slot not in self._sketch.literals:
            return
        wanted = self._sketch.literals[slot]
        if isinstance(given, VALUES) or not _equal(given, wanted):
            yield Gap(CONSTANT, index, given, position, wanted)

    def _same(self, one: Any, other: Any) -> bool:
        if one is other:
            return True
        if not isinstance(one, VALUES) or not isinstance(other, VALUES):
            return False
        strip = self._view.strip
        return strip(one, regroup=True) is strip(other, regroup=True)

    # --- going on --------------------------------------------------------------------------------

    def _advance(self, state: Assignment) -> None:
        if self._left <= 0 or not self._may_win(state.cost):
            return
        for after in self._next(state):
            self._advance(after)

    def _next(self, state: Assignment) -> Iterator[Assignment]:
        backward = self._open_producer(state)
        if backward is not None:
            yield from self._backward(state, *backward)
            return
        forward = self._open_reader(state)
        if forward is not None:
            yield from self._forward(state, *forward)
            return
        rest = [i for i in range(len(self._sketch.body)) if self._is_open(state, i)]
        final = state.fork()
        final.cost += sum(self._sketch.weights[index] for index in rest)
        if self._may_win(final.cost):
            most = final.cost + self._about
            kept = [a for a in self._finals if a.cost <= most] if self._about else []
            self._finals = sorted([*kept, final], key=lambda a: a.cost)[:ALTERNATIVES]

    def _may_win(self, cost: float) -> bool:
        if not self._finals:
            return cost <= self._most
        return cost < self._finals[0].cost + self._about

    def _is_open(self, state: Assignment, index: int) -> bool:
        return index not in state.calls and index not in state.given_up

    def _open_producer(self, state: Assignment) -> tuple[int, int, int] | None:
        """(slot, call, result) of a value of which it is open where it comes from."""
        for slot, (index, result) in self._sketch.producers.items():
            if state.slots[slot] is not UNSET and self._is_open(state, index):
                return slot, index, result
        return None

    def _open_reader(self, state: Assignment) -> tuple[int, int, int] | None:
        """(slot, call, position) of a call not found yet that reads a value that is known."""
        for index, arguments in self._sketch.args.items():
            if not self._is_open(state, index):
                continue
            for position, (kind, slot, _) in enumerate(arguments):
                if kind in (INNER, INPUT) and isinstance(state.slots[slot], VALUES):
                    return slot, index, position
        return None

    def _backward(
        self, state: Assignment, slot: int, index: int, result: int
    ) -> Iterator[Assignment]:
        value, op = state.slots[slot], self._sketch.body[index].op
        exact = self._graph.producers(value, result, op)
        for call in exact:
            yield from self._bound(state, index, call)
        if exact and op not in ("prim.view", "prim.cast"):
            return
        for call, reasons, cost in self._graph.almost(value, result, op):
            gap = Gap(SPELLING, index, value, reasons=reasons)
            yield from self._bound(_with(state, gap, cost), index, call)
        name = self._sketch.names[slot]
        for behind, between in self._graph.behind(value) if self._graph.occurs(op) else ():
            calls = self._graph.producers(behind, result, op)
            if op == "prim.view":
                calls = [call for call in calls if call.nodes]
            for call in calls:
                gap = self._between(index, value, name, between)
                after = _with(state, gap, _COSTS[gap.kind] + 0.05 * len(between))
                after.slots[slot] = behind
                yield from self._bound(after, index, call)
        if not exact:
            yield self._without(state, Gap(MISSING, index, value, name=name))

    def _forward(
        self, state: Assignment, slot: int, index: int, position: int
    ) -> Iterator[Assignment]:
        op = self._sketch.body[index].op
        value = self._view.strip(state.slots[slot], regroup=True)
        calls = [c for c in self._graph.consumers(value, position, op) if not _bound(state, c)]
        for call in calls[:WIDE]:
            yield from self._bound(state, index, call)
        if any(call.nodes for call in calls):
            return
        name = self._sketch.names[slot]
        missing = Gap(MISSING, index, value, position, name=name, forward=True)
        if not self._graph.occurs(op):
            yield self._without(state, missing)
            return
        for call, version in self._graph.after_write(value, position, op):
            if not _bound(state, call):
                gap = Gap(WRITTEN, index, value, name=name, between=(version.writer,))
                for way in self._bound(_with(state, gap, _COSTS[WRITTEN]), index, call):
                    yield _without_echo(way, index, position)
        for ahead, between in self._graph.ahead(value):
            for call in self._graph.consumers(ahead, position, op):
                if _bound(state, call) or not call.nodes:
                    continue
                gap = self._between(index, value, name, between)
                after = _with(state, gap, _COSTS[gap.kind] + 0.05 * len(between))
                for way in self._bound(after, index, call):
                    yield _without_echo(way, index, position)
        yield self._without(state, missing)

    def _without(self, state: Assignment, gap: Gap) -> Assignment:
        after = _with(state, gap, self._sketch.weights[gap.index])
        after.given_up = state.given_up | {gap.index}
        return after

    # --- looking past what stands in between -----------------------------------------------------

    def _between(self, index: int, value: Any, name: str, between: tuple[Any, ...]) -> Gap:
        solid = tuple(n for n in between if isinstance(n, fx.Node) and not self._passes(n))
        writer = next((v for v in between if isinstance(v, Version)), None)
        if writer is not None:
            return Gap(WRITTEN, index, value, name=name, between=(writer.writer,))
        return Gap(BETWEEN, index, value, name=name, between=solid or between)

    def _passes(self, node: fx.Node) -> bool:
        return self._view.strip(node, regroup=True) is not node


def _with(state: Assignment, gap: Gap, cost: float) -> Assignment:
    after = state.fork()
    after.gaps = (*state.gaps, gap)
    after.cost = state.cost + cost
    return after


def _without_echo(state: Assignment, index: int, position: int) -> Assignment:
    """The argument that was reached past what stands in between is not another value as well."""
    kept = tuple(
        g
        for g in state.gaps
        if not (g.kind == OTHER and (g.index, g.position) == (index, position))
    )
    if len(kept) == len(state.gaps):
        return state
    state.cost -= _COSTS[OTHER] * (len(state.gaps) - len(kept))
    state.gaps = kept
    return state


def _bound(state: Assignment, call: Recognised) -> bool:
    return bool(call.nodes) and any(
        call.node is other.node and call.result(0) is other.result(0)
        for other in state.calls.values()
    )


def _stands(state: Assignment, call: Recognised) -> bool:
    """Whether it stands for another call of the body; a cast or view that vanished is no call."""
    return bool(call.nodes) and any(
        bool(other.nodes) and call.node is other.node and call.result(0) is other.result(0)
        for other in state.calls.values()
    )


def _equal(one: Any, other: Any) -> bool:
    try:
        return literal_key(one) == literal_key(other)
    except TypeError:  # a list of nodes is no literal
        return False
