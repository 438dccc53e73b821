"""Two sources in one graph: which calls they can share, and whether each alone still fires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fusiondsl.analysis.side import Side, tensors_in
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.ir.program import Anything, Call, Const, ListOf, Operand, Ref, Rule

MOST_STEPS = 400
"""How many sets of shared calls are looked at for two sources."""

Scalars = tuple[tuple[Operand, Operand], ...]


@dataclass(frozen=True)
class Overlay:
    """A graph that holds both sources, some calls shared."""

    left: Side
    right: Side
    shared: Mapping[int, int]
    """Calls of `left` with the call of `right` that each of them is."""
    values: Mapping[str, str]
    """Values of `left` with the value of `right` that each of them is."""
    equal: Scalars
    """Scalars of shared calls, left and right."""
    apart: tuple[Scalars, ...] = ()
    """Scalars of calls that would otherwise be one: some pair of each differs."""

    @cached_property
    def back(self) -> dict[str, str]:
        """Values of `right` with the value of `left`."""
        return {right: left for left, right in self.values.items()}

    @cached_property
    def shared_right(self) -> frozenset[int]:
        return frozenset(self.shared.values())

    def mirrored(self) -> Overlay:
        shared = {right: left for left, right in self.shared.items()}
        equal = tuple((b, a) for a, b in self.equal)
        apart = tuple(tuple((b, a) for a, b in pairs) for pairs in self.apart)
        return Overlay(self.right, self.left, shared, self.back, equal, apart)

    @property
    def partial(self) -> bool:
        """Neither source lies in the other."""
        count = len(self.shared)
        return count < len(self.left.calls) and count < len(self.right.calls)

    # --- the common graph ----------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[tuple[str, int], ...] | None:
        """All calls, as (`left` or `right`, index), inputs first; None where they form a circle.

        A shared call is one of `left`.
        """
        nodes = [("left", i) for i in range(len(self.left.calls))]
        nodes += [("right", i) for i in range(len(self.right.calls)) if i not in self.shared_right]
        ordered: list[tuple[str, int]] = []
        placed: set[tuple[str, int]] = set()
        waiting = nodes
        while waiting:
            ready = [node for node in waiting if self.sources[node] <= placed]
            if not ready:
                return None
            ordered += ready
            placed.update(ready)
            waiting = [node for node in waiting if node not in placed]
        return tuple(ordered)

    @cached_property
    def sources(self) -> dict[tuple[str, int], set[tuple[str, int]]]:
        """The calls whose results a call reads, through either source."""
        found: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for index, read in enumerate(self.left.reads):
            found["left", index] = set(self._made_by("left", read))
            if index in self.shared:
                others = self.right.reads[self.shared[index]]
                found["left", index].update(self._made_by("right", others))
        for index, read in enumerate(self.right.reads):
            if index not in self.shared_right:
                found["right", index] = set(self._made_by("right", read))
        return found

    def _made_by(self, where: str, read: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        for name in read:
            left = name if where == "left" else self.back.get(name)
            right = self.values.get(name) if where == "left" else name
            if left in self.left.producer:
                yield "left", self.left.producer[left]
            elif right in self.right.producer:
                yield "right", self.right.producer[right]

    # --- does each fire? -----------------------------------------------------------------------

    @cached_property
    def both_fire(self) -> bool:
        """Each rule alone may be applied: what it removes nobody else reads, and it is convex."""
        both = (self, self.mirrored())
        if not all(overlay._hidden_stay_hidden() for overlay in both):
            return False
        return self.steps is not None and all(overlay._convex() for overlay in both)

    def _hidden_stay_hidden(self) -> bool:
        """No value that `left` removes is read by a call that only `right` has."""
        hidden = self.left.hideable
        return not any(name in hidden and self._read_elsewhere(name) for name in self.values)

    def _read_elsewhere(self, name: str) -> bool:
        other = self.values.get(name)
        if other is None:
            return False
        return any(i not in self.shared_right for i in self.right.readers.get(other, ()))

    def _convex(self) -> bool:
        """No way leads from what `left` replaces through calls of `right` back into `left`."""
        assert self.steps is not None
        tainted: set[tuple[str, int]] = set()
        for node in self.steps:
            for source in self.sources[node]:
                own = source[0] == "left"
                replaced = own and source[1] not in self.left.staying | self._stays
                if node[0] == "left" and source in tainted:
                    return False
                if node[0] == "right" and (source in tainted or replaced):
                    tainted.add(node)
        return True

    @cached_property
    def _stays(self) -> frozenset[int]:
        """Preparing calls of `left` that something else of `right` keeps alive."""
        found: set[int] = set()
        for index in sorted(self.left.preparing, reverse=True):
            results = [name for name in self.left.calls[index].results if name]
            kept = any(i in found for n in results for i in self.left.readers.get(n, ()))
            if kept or any(self._read_elsewhere(name) for name in results):
                found.add(index)
        return frozenset(found)

    @property
    def left_wins(self) -> bool:
        """If `left` goes first, it takes a call that `right` needs."""
        return any(i not in self.left.staying and i not in self._stays for i in self.shared)

    def outputs(self) -> tuple[str, ...]:
        """What the graph returns: results that a rule replaces or keeps and no call reads.

        A value is called as in `left`, or `right:name` where only `right` has it.
        """
        left, right = self.left, self.right
        found: list[str] = []
        for name in _results(left):
            other = self.values.get(name)
            hidden = other in right.producer and other not in right.visible
            if name in left.visible and not hidden:
                read = name in left.readers or other in right.readers
                found += [] if read else [name]
        for name in _results(right):
            mine = self.back.get(name)
            hidden = mine in left.producer and mine not in left.visible
            if name in right.visible and not hidden:
                read = name in right.readers or mine in left.readers
                found += [] if read else [mine or f"right:{name}"]
        return tuple(dict.fromkeys(found))


def _results(side: Side) -> Iterator[str]:
    return (name for call in side.calls for name in call.results if name)


# --- which calls can be shared -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    shared: Mapping[int, int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    back: Mapping[str, str] = field(default_factory=dict)
    equal: Scalars = ()


OnCut = Callable[[Rule, Rule], None]
"""Told of rules whose sources can be laid over each other in more ways than are looked at."""


def overlays(
    left: Side, right: Side, on_cut: OnCut | None = None, *, literals: bool = True
) -> Iterator[Overlay]:
    """Every way to lay one source over the other with at least one call shared, most shared first.

    Without `literals` scalars are not compared, which holds for all rules of the same shape.
    """
    pairs = [
        (i, j) for op, mine in left.by_op.items() for i in mine for j in right.by_op.get(op, ())
    ]
    seen: set[frozenset[tuple[int, int]]] = set()
    search = _Search(left, right, pairs, literals)
    for state in search.states(_State(), 0):
        key = frozenset(state.shared.items())
        if not key or key in seen:
            continue
        seen.add(key)
        apart = search.apart(state)
        if apart is not None:
            yield Overlay(left, right, state.shared, state.values, state.equal, apart)
    if search.is_cut and on_cut is not None:
        on_cut(left.rule, right.rule)


class _Search:
    def __init__(
        self, left: Side, right: Side, pairs: list[tuple[int, int]], literals: bool
    ) -> None:
        self.left = left
        self.right = right
        self.pairs = pairs
        self.literals = literals
        self._steps = 0
        self.is_cut = False
        self._ordered: dict[int, list[tuple[tuple[Operand, ...], list[str]]]] = {}

    def states(self, state: _State, position: int) -> Iterator[_State]:
        """With every pair shared that can be, then with fewer."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            self.is_cut = True
            return
        if position == len(self.pairs):
            yield state
            return
        i, j = self.pairs[position]
        if state.shared.get(i) == j:
            yield from self.states(state, position + 1)
            return
        for extended in self._share(state, i, j):
            yield from self.states(extended, position + 1)
        yield from self.states(state, position + 1)

    def _share(self, state: _State, i: int, j: int) -> Iterator[_State]:
        """`state` with a pair of calls, and all they are computed from, made one."""
        if state.shared.get(i) == j:
            yield state
            return
        if i in state.shared or j in state.shared.values():
            return
        mine, other = self.left.calls[i], self.right.calls[j]
        if mine.op != other.op or len(mine.results) != len(other.results):
            return
        begun = _State({**state.shared, i: j}, state.values, state.back, state.equal)
        for results in _united(begun, zip(mine.results, other.results, strict=True)):
            for order in _orders(other):
                yield from self._args(results, mine.args, order)

    def _args(
        self, state: _State, mine: tuple[Operand, ...], others: tuple[Operand, ...]
    ) -> Iterator[_State]:
        if not mine:
            yield state
            return
        for extended in self._arg(state, mine[0], others[0]):
            yield from self._args(extended, mine[1:], others[1:])

    def _arg(self, state: _State, mine: Operand, other: Operand) -> Iterator[_State]:
        if isinstance(mine, Ref) and isinstance(other, Ref):
            yield from self._tensor(state, mine.name, other.name)
        elif isinstance(mine, ListOf) and isinstance(other, ListOf):
            if len(mine.items) == len(other.items):
                yield from self._args(state, mine.items, other.items)
        elif isinstance(mine, Ref | ListOf) or isinstance(other, Ref | ListOf):
            return
        elif not (self.literals and _differ(mine, other)):
            equal = (*state.equal, (mine, other))
            yield _State(state.shared, state.values, state.back, equal)

    def _tensor(self, state: _State, mine: str, other: str) -> Iterator[_State]:
        for united in _united(state, [(mine, other)]):
            made, found = self.left.producer.get(mine), self.right.producer.get(other)
            if made is None or found is None:
                yield united
                continue
            places = self.left.calls[made].results, self.right.calls[found].results
            if places[0].index(mine) == places[1].index(other):
                yield from self._share(united, made, found)

    # --- calls that are not shared ---------------------------------------------------------------

    def apart(self, state: _State) -> tuple[Scalars, ...] | None:
        """What must differ so that no other calls are one; None where nothing can."""
        found: list[Scalars] = []
        for i, j in self.pairs:
            if state.shared.get(i) == j:
                continue
            scalars = self._would_be_one(state, i, j)
            if scalars is None:
                continue
            if self.literals and all(_same(a, b) for a, b in scalars):
                return None
            found.append(scalars)
        return tuple(found)

    def _would_be_one(self, state: _State, i: int, j: int) -> Scalars | None:
        """The scalars of two calls on equal tensors, None where the tensors differ."""
        read = [state.values.get(name, "") for name in self.left.reads[i]]
        for order, tensors in self._orders_of(j):
            if read == tensors:
                flat = zip(_flat(self.left.calls[i].args), _flat(order), strict=False)
                return tuple((a, b) for a, b in flat if not isinstance(a, Ref))
        return None

    def _orders_of(self, j: int) -> list[tuple[tuple[Operand, ...], list[str]]]:
        """The arguments of a call of `right` in each order, with the tensors among them."""
        if j not in self._ordered:
            orders = _orders(self.right.calls[j])
            self._ordered[j] = [(order, [*tensors_in(order)]) for order in orders]
        return self._ordered[j]


def _united(state: _State, pairs: Iterable[tuple[str | None, str | None]]) -> Iterator[_State]:
    """`state` with values made one; nothing where a value would be two of the other source."""
    values, back = dict(state.values), dict(state.back)
    for mine, other in pairs:
        assert mine is not None
        assert other is not None
        if values.setdefault(mine, other) != other or back.setdefault(other, mine) != mine:
            return
    yield _State(state.shared, values, back, state.equal)


def _orders(call: Call) -> tuple[tuple[Operand, ...], ...]:
    primitive = PRIMITIVES.get(call.op.removeprefix("prim."))
    swaps = call.op.startswith("prim.") and primitive is not None and primitive.commutative
    return (call.args, call.args[::-1]) if swaps and len(call.args) == 2 else (call.args,)


def _flat(args: tuple[Operand, ...]) -> Iterator[Operand]:
    for arg in args:
        if isinstance(arg, ListOf):
            yield from _flat(arg.items)
        else:
            yield arg


def _differ(mine: Operand, other: Operand) -> bool:
    return isinstance(mine, Const) and isinstance(other, Const) and repr(mine) != repr(other)


def _same(mine: Operand, other: Operand) -> bool:
    if isinstance(mine, Anything) or isinstance(other, Anything):
        return False
    return isinstance(mine, Const) and isinstance(other, Const) and repr(mine) == repr(other)
