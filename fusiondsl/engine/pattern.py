"""Bodies as match programs: a trie of steps that all rules of one anchor share.

A body is walked from one call, its *anchor*: backwards to the producers of its arguments, forwards
to further users. Slots are numbered in the order they are met and constants are captured into
slots, so that rules with the same skeleton become one path, however many there are; a table on the
captured constants tells them apart at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from fusiondsl import ir
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.ir import Const, Ref

UNSET: Any = object()
"""An empty slot."""

# --- arguments of a step ------------------------------------------------------------------------

CAPTURE, INPUT, INNER, LIST, SKIP = range(5)
Argument: TypeAlias = tuple[int, int, Any]
"""(CAPTURE, slot, None), (INPUT, slot, None), (INNER, slot, regroup), (LIST, 0, arguments),
(SKIP, 0, None)."""


SAME, FILL = "=", "fill"
"""Steps without a call: the slot's value is that result of a call already bound; put it there."""


@dataclass(frozen=True, slots=True)
class Step:
    """Bind call `index` of the body and unify its arguments.

    Backward steps (`position` is None) take the call that produces the value in `slot` as its
    result `result`. Forward steps take a user of the value in `slot` that reads it as argument
    `position`.
    """

    slot: int
    result: int
    position: int | None
    op: str
    args: tuple[Argument, ...]
    optional: bool = False
    """The call only makes a result nobody may use: it need not stand in the graph."""


@dataclass(frozen=True, slots=True)
class Path:
    """A body seen from one anchor."""

    op: str
    """The anchor's op."""
    args: tuple[Argument, ...]
    steps: tuple[Step, ...]
    order: tuple[int, ...]
    """Body positions of the calls, anchor first."""
    slots: Mapping[str, int]
    """Slot of every name bound by an argument."""
    constants: tuple[tuple[int, ir.Operand], ...]
    """Slots that must hold a literal or a computed scalar."""
    size: int


class _Walk:
    """Builds a `Path`."""

    def __init__(
        self,
        body: Sequence[ir.Call],
        ops: Mapping[str, ir.OpDecl],
        tensors: frozenset[str],
        optional: frozenset[int],
    ) -> None:
        self.body = body
        self.optional = optional
        self.ops = ops
        self.tensors = tensors
        self.producer = {
            name: (i, r) for i, c in enumerate(body) for r, name in enumerate(c.results) if name
        }
        self.slots: dict[str, int] = {}
        self.waiting: deque[str] = deque()
        """Computed names with a slot, whose calls may not have been met."""
        self.constants: list[tuple[int, ir.Operand]] = []
        self.places: dict[int, int] = {}
        """Of the calls that were met, in this order."""
        self.size = 0

    def path(self, anchor: int) -> Path | None:
        """None where part of the body cannot be reached from the anchor."""
        args = self._visit(anchor)
        steps: list[Step] = []
        while True:
            step = self._backward() or self._forward()
            if step is None:
                break
            steps.append(step)
        if len(self.places) < len(self.body):
            return None
        return Path(
            self.body[anchor].op,
            args,
            tuple(steps),
            tuple(self.places),
            self.slots,
            tuple(self.constants),
            self.size,
        )

    def _backward(self) -> Step | None:
        if not self.waiting:
            return None
        name = self.waiting.popleft()
        slot = self.slots[name]
        index, result = self.producer[name]
        if index in self.places:
            at = (CAPTURE, self.places[index], None)
            return Step(slot, result, None, SAME, (at,))
        return Step(slot, result, None, self.body[index].op, self._visit(index))

    def _forward(self) -> Step | None:
        """A further user of something bound; a result no argument named yet gets a slot first."""
        if len(self.places) == len(self.body):
            return None
        for index, call in enumerate(self.body):
            if index in self.places:
                continue
            for position, operand in enumerate(call.args):
                name = operand.name if isinstance(operand, ir.Ref) else None
                if name in self.slots and self._is_value(name):
                    slot, optional = self.slots[name], index in self.optional
                    return Step(slot, -1, position, call.op, self._visit(index), optional)
                if name in self.producer and self.producer[name][0] in self.places:
                    index, result = self.producer[name]
                    slot = self._slot_of(name)
                    at = (CAPTURE, self.places[index], None)
                    return Step(slot, result, None, FILL, (at,))
        return None

    def _is_value(self, name: str) -> bool:
        return name in self.producer or name in self.tensors

    def _slot_of(self, name: str) -> int:
        slot = self.slots.get(name)
        if slot is None:
            slot = self.slots[name] = self.size
            self.size += 1
            if name in self.producer:
                self.waiting.append(name)
        return slot

    def _visit(self, index: int) -> tuple[Argument, ...]:
        self.places[index] = len(self.places)
        call = self.body[index]
        return tuple([self._argument(call, i, operand) for i, operand in enumerate(call.args)])

    def _argument(self, call: ir.Call, position: int, operand: ir.Operand) -> Argument:
        if position == 1 and call.op == "prim.view":
            return SKIP, 0, None
        if isinstance(operand, Ref):
            name = operand.name
            slot = self._slot_of(name)
            if name in self.producer:
                return INNER, slot, self._regroups(call, position, name)
            return (INPUT if name in self.tensors else CAPTURE), slot, None
        if isinstance(operand, ir.Anything):
            return SKIP, 0, None
        if isinstance(operand, ir.ListOf) and any(isinstance(i, Ref) for i in operand.items):
            return LIST, 0, tuple([self._argument(call, position, i) for i in operand.items])
        slot = self.size
        self.size += 1
        self.constants.append((slot, operand))
        return CAPTURE, slot, None

    def _regroups(self, call: ir.Call, position: int, name: str) -> bool:
        """Leading dimensions may be regrouped on this edge: both ends are typed `t..`."""
        consumer = self.ops.get(call.op)
        index, result = self.producer[name]
        producer = self.ops.get(self.body[index].op)
        if consumer is None or producer is None:
            return False
        ends = (consumer.call_params[position].type, producer.call_results[result].type)
        return all(isinstance(t, ir.TensorType) and t.rank_free for t in ends)


def walk(
    body: Sequence[ir.Call],
    ops: Mapping[str, ir.OpDecl],
    tensors: frozenset[str],
    anchor: int,
    *,
    optional: frozenset[int] = frozenset(),
) -> Path | None:
    """The body from one call; None where it does not reach all others."""
    return _Walk(body, ops, tensors, optional - {anchor}).path(anchor)


def sinks(body: Sequence[ir.Call]) -> list[int]:
    """Calls none of whose results another call of the body reads, last first."""
    used = set(reads(body))
    return [i for i in reversed(range(len(body))) if used.isdisjoint(body[i].results)]


def reads(body: Iterable[ir.Call]) -> list[str]:
    """The names that the arguments of these calls mention."""
    found: list[str] = []
    for call in body:
        for operand in call.args:
            if isinstance(operand, Ref):
                found.append(operand.name)
            elif not isinstance(operand, Const):
                found += references(operand)
    return found


def references(operand: ir.Operand) -> tuple[str, ...]:
    if isinstance(operand, (Ref, ir.Unrounded)):
        return (operand.name,)
    if isinstance(operand, ir.ListOf):
        return tuple([name for item in operand.items for name in references(item)])
    return ()


PRIMITIVE_OPS = frozenset(f"prim.{name}" for name in PRIMITIVES)
COMMUTATIVE = frozenset(f"prim.{name}" for name, p in PRIMITIVES.items() if p.commutative)
"""Primitives whose two operands may stand in either order."""


# --- the trie -----------------------------------------------------------------------------------

E = TypeVar("E")


@dataclass(slots=True, eq=False)
class Leaf(Generic[E]):
    """Entries whose literals sit in the same slots, by the values of those literals."""

    slots: tuple[int, ...]
    table: dict[tuple[Any, ...], list[E]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Branch(Generic[E]):
    """All continuations that look at the same place of the graph."""

    slot: int
    result: int
    position: int | None
    optional: bool
    by_op: dict[str, _Children[E]] = field(default_factory=dict)
    checks: dict[str, _Children[E]] = field(default_factory=dict)
    """Steps without a call: by `SAME` and `FILL`."""


@dataclass(slots=True, eq=False)
class Node(Generic[E]):
    branches: list[Branch[E]] = field(default_factory=list)
    leaves: list[Leaf[E]] = field(default_factory=list)
    size: int = 0
    """Slots needed below here."""
    members: list[E] = field(default_factory=list)
    """Every entry below, for reports."""
    expects: Any = UNSET
    """Where the program goes on, worked out when a call first has two orders of arguments."""
    expects_widely: Any = UNSET
    """The same with what other spellings end in."""


_Children: TypeAlias = list[tuple[tuple[Argument, ...], Node[E]]]
"""Programs that go on with a call of one op, by its arguments."""


@dataclass(slots=True, eq=False)
class Trie(Generic[E]):
    """Match programs by anchor op."""

    roots: dict[str, _Children[E]] = field(default_factory=dict)

    def insert(self, path: Path, literals: Sequence[tuple[int, Any]], entry: E) -> None:
        node = _child(self.roots.setdefault(path.op, []), path.args, path.size, entry)
        for step in path.steps:
            node = _child(_branch(node, step), step.args, path.size, entry)
        slots = tuple([slot for slot, _ in literals])
        leaf = next((leaf for leaf in node.leaves if leaf.slots == slots), None)
        if leaf is None:
            leaf = Leaf(slots)
            node.leaves.append(leaf)
        key = tuple([literal_key(value) for _, value in literals])
        leaf.table.setdefault(key, []).append(entry)


def _child(
    children: _Children[E],
    args: tuple[Argument, ...],
    size: int,
    entry: E,
) -> Node[E]:
    node = next((child for key, child in children if key == args), None)
    if node is None:
        node = Node()
        children.append((args, node))
    if node.size < size:
        node.size = size
    node.members.append(entry)
    return node


def _branch(node: Node[E], step: Step) -> _Children[E]:
    place = (step.slot, step.result, step.position, step.optional)
    for branch in node.branches:
        if (branch.slot, branch.result, branch.position, branch.optional) == place:
            break
    else:
        branch = Branch(*place)
        node.branches.append(branch)
    return (branch.checks if step.op in (SAME, FILL) else branch.by_op).setdefault(step.op, [])


def literal_key(value: Any) -> tuple[Any, ...]:
    """A type-strict key: `1`, `1.0` and `True` are three literals."""
    if isinstance(value, (tuple, list)):
        return (tuple, tuple(literal_key(item) for item in value))
    return (type(value), value)
