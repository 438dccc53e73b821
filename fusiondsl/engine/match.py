"""Runs match programs over the normal view of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from torch import fx

from fusiondsl.engine import aten
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import (
    CAPTURE,
    COMMUTATIVE,
    FILL,
    INNER,
    INPUT,
    LIST,
    SAME,
    UNSET,
    Argument,
    Branch,
    Leaf,
    Node,
    literal_key,
)
from fusiondsl.engine.recognised import Recognised, absent
from fusiondsl.engine.view import View

E = TypeVar("E")


class Near(Generic[E]):
    """A place where a match program stopped: what it wanted there and what stood there."""

    __slots__ = ("calls", "detail", "kind", "node", "value")

    def __init__(
        self, kind: str, node: Node[E], value: Any, detail: Any, calls: tuple[Recognised, ...]
    ) -> None:
        self.kind = kind
        self.node = node
        self.value = value
        self.detail = detail
        self.calls = calls


class Source(Protocol):
    """Where the calls of a graph come from: the recogniser."""

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        """Calls of `op` that produce `value` as their result `result`."""

    def consumers(self, value: Any, position: int, op: str) -> Iterator[Recognised]:
        """Calls of `op` that read `value` as argument `position`."""

    def readings(self, value: Any) -> frozenset[str]:
        """Ops that may produce a value: anything else need not be tried."""


class Matcher(Generic[E]):
    """One run of a trie from one anchor call.

    `found(entry, slots, calls)` is called for every complete structural match; it returns True to
    stop looking. `near` collects the places where programs stopped.
    """

    def __init__(
        self,
        view: View,
        source: Source,
        found: Callable[[E, list[Any], list[Recognised]], bool],
        near: list[Near[E]] | None = None,
    ) -> None:
        self._view = view
        self._source = source
        self._found = found
        self._near = near
        self._slots: list[Any] = []
        """Of the calls bound so far; a call that is tried works on a copy."""
        self._calls: list[Recognised] = []

    def run(self, children: list[tuple[tuple[Argument, ...], Node[E]]], call: Recognised) -> bool:
        for args, node in children:
            self._slots = [UNSET] * node.size
            self._calls = []
            if self._enter(args, node, call):
                return True
        return False

    def _enter(self, args: tuple[Argument, ...], node: Node[E], call: Recognised) -> bool:
        """Bind `call` in every way its arguments allow, and go on below."""
        before = self._slots
        ways: _Ways = (call.args,)
        if call.op in COMMUTATIVE:
            ways = orders(call)
            if len(ways) > 1:
                ways = self._likely(ways, args, node)
        for actual in ways:
            self._slots = before.copy()
            if self._unify_all(args, actual):
                self._calls.append(call)
                if self._continue(node):
                    return True
                self._calls.pop()
        self._slots = before
        return False

    @staticmethod
    def _likely(ways: _Ways, args: tuple[Argument, ...], node: Node[E]) -> _Ways:
        """Of two orders that whose operands come from what the programs want, if it is clear."""
        if node.expects is UNSET:
            node.expects = tuple(expected(args, node, aten.TARGETS))
        return likely(ways, node.expects)

    def _unify_all(self, args: tuple[Argument, ...], actual: tuple[Any, ...]) -> bool:
        # One loop without a call for each argument: this runs for every argument of every call.
        if len(args) != len(actual):
            return False
        slots = self._slots
        for (kind, slot, more), given in zip(args, actual, strict=True):
            if kind == INPUT:
                if given is not None and not isinstance(given, VALUES):
                    return False
            elif kind == INNER:
                if not isinstance(given, VALUES):
                    return False
                given = self._view.strip(given, regroup=more)
            elif kind != CAPTURE:
                if kind == LIST and not self._unify_list(more, given):
                    return False
                continue
            bound = slots[slot]
            if bound is UNSET:
                slots[slot] = given
            elif bound is not given and not self._same(kind, bound, given):
                return False
        return True

    def _unify_list(self, args: tuple[Argument, ...], given: Any) -> bool:
        return isinstance(given, (tuple, list)) and self._unify_all(args, tuple(given))

    def _same(self, kind: int, bound: Any, given: Any) -> bool:
        if kind == CAPTURE:
            return not isinstance(given, fx.Node) and literal_key(bound) == literal_key(given)
        if bound is None or given is None:
            return False
        strip = self._view.strip
        return strip(bound, regroup=True) is strip(given, regroup=True)

    def _continue(self, node: Node[E]) -> bool:
        for leaf in node.leaves:
            if self._complete(leaf, node):
                return True
        for branch in node.branches:  # noqa: SIM110 - the hot path has no generators
            if self._follow(branch, node):
                return True
        return False

    def _complete(self, leaf: Leaf[E], node: Node[E]) -> bool:
        values = [self._slots[slot] for slot in leaf.slots]
        entries = _entries(leaf, values)
        if not entries:
            self._miss("constant", node, self._calls[-1].node, (leaf, values))
        for entry in entries:  # noqa: SIM110
            if self._found(entry, self._slots, self._calls):
                return True
        return False

    def _follow(self, branch: Branch[E], node: Node[E]) -> bool:
        value = self._slots[branch.slot]
        if branch.position is not None:
            return self._forward(branch, node, value)
        hit = False
        for op, children in branch.checks.items():
            hit = True
            if self._inspect(op, branch, children, value):
                return True
        known = branch.by_op
        # With one op to try, trying is cheaper than asking whether to.
        possible = self._source.readings(value) if len(known) > 1 else known
        for op, children in known.items():
            if op not in possible:
                continue
            for call in self._source.producers(value, branch.result, op):
                hit = True
                for args, child in children:
                    if self._enter(args, child, call):
                        return True
        if not hit:
            self._miss("structure", node, value, (*branch.checks, *known))
        return False

    def _forward(self, branch: Branch[E], node: Node[E], value: Any) -> bool:
        hit = False
        assert branch.position is not None
        for op, children in branch.by_op.items():
            for call in self._source.consumers(value, branch.position, op):
                if self._is_bound(call):
                    continue
                # A cast that is not in the graph may as well be a result that nobody uses.
                hit = hit or bool(call.nodes) or call.op != "prim.cast"
                for args, child in children:
                    if self._enter(args, child, call):
                        return True
        if hit:
            return False
        if branch.optional:
            return self._without(branch)
        self._miss("structure", node, value, tuple(branch.by_op))
        return False

    def _is_bound(self, call: Recognised) -> bool:
        if call.op == "prim.cast" and not call.nodes:
            return False
        # Items of one split share the node.
        first = call.result(0)
        for known in self._calls:  # noqa: SIM110 - the hot path has no generators
            if call.node is known.node and first is known.result(0):
                return True
        return False

    def _without(self, branch: Branch[E]) -> bool:
        """Goes on as if the call stood there with a result nobody uses."""
        for op, children in branch.by_op.items():
            for _, child in children:
                self._calls.append(absent(op, self._calls[0].node))
                if self._continue(child):
                    return True
                self._calls.pop()
        return False

    def _inspect(
        self,
        op: str,
        branch: Branch[E],
        children: list[tuple[tuple[Argument, ...], Node[E]]],
        value: Any,
    ) -> bool:
        """Steps that bind no call."""
        for args, child in children:
            result = self._calls[args[0][1]].result(branch.result)
            if result is None or (op == SAME and result is not value):
                continue
            if op == FILL:
                self._slots[branch.slot] = result
            if self._continue(child):
                return True
            if op == FILL:
                self._slots[branch.slot] = UNSET
        return False

    def _miss(self, kind: str, node: Node[E], value: Any, detail: Any) -> None:
        if self._near is not None:
            self._near.append(Near(kind, node, value, detail, tuple(self._calls)))


def _entries(leaf: Leaf[E], values: list[Any]) -> list[E]:
    """Entries whose literals are these values; an empty slot fits any."""
    if not values:
        return leaf.table.get((), [])
    for value in values:
        if isinstance(value, VALUES):
            return []
    try:
        key = tuple([literal_key(value) for value in values])
        if UNSET not in values:
            return leaf.table.get(key, [])
    except TypeError:  # a list of nodes is no literal
        return []
    empty = {i for i, value in enumerate(values) if value is UNSET}
    return [
        entry
        for known, entries in leaf.table.items()
        if all(i in empty or known[i] == key[i] for i in range(len(key)))
        for entry in entries
    ]


_Ways: TypeAlias = tuple[tuple[Any, ...], ...]
"""Orders of the arguments of a call."""


def orders(call: Recognised) -> _Ways:
    """The arguments, and where their order does not matter the other order."""
    args = call.args
    if call.op not in COMMUTATIVE or args[0] is args[1]:
        return (args,)
    return args, (args[1], args[0])


def _may_come_from(targets: frozenset[int], value: Any) -> bool:
    return id(value.target) in targets if type(value) is fx.Node else isinstance(value, VALUES)


_Expected: TypeAlias = tuple[int, frozenset[int]]
"""An argument that all programs go on from, and what may make it: the ids of its targets."""


def expected(
    args: tuple[Argument, ...], node: Node[E], targets_of: Mapping[str, Iterable[Any]]
) -> Iterator[_Expected]:
    for position, (kind, slot, _) in enumerate(args):
        makers = _makers(node, slot) if kind == INNER else None
        if makers is not None:
            targets = {id(target) for op in makers for target in targets_of[op]}
            yield position, aten.NO_OP_IDS | targets | {id(operator.getitem)}


def likely(ways: _Ways, expects: Iterable[_Expected]) -> _Ways:
    """Of two orders the one whose operands come from what is expected; both, if it is not clear."""
    first, second = ways
    for position, targets in expects:
        fits = _may_come_from(targets, first[position])
        if fits is not _may_come_from(targets, second[position]):
            return (first,) if fits else (second,)
    return ways


def _makers(node: Node[E], slot: int) -> frozenset[str] | None:
    """The primitives that may make the value in a slot; None where it may be anything."""
    if node.leaves or not node.branches:
        return None
    found: set[str] = set()
    for branch in node.branches:
        here = branch.slot == slot and branch.position is None and not branch.checks
        for op, children in (*branch.by_op.items(), *branch.checks.items()):
            if here and op not in _VANISHING:
                found.add(op)
                continue
            found.update([op] if here else [])
            for args, child in children:
                makers = _makers(child, args[0][1] if here else slot)
                if makers is None or (here and args[0][0] != INNER):
                    return None
                found |= makers
    return frozenset(found) if found <= aten.TARGETS.keys() else None


_VANISHING = frozenset({"prim.cast", "prim.view"})
"""Primitives that need not stand in the graph: the value is then what they would be of."""
