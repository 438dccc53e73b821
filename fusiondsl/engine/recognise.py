"""Semantic ops in the graph: each spelling of an op becomes one virtual call, once per graph.

Rules match over virtual calls, so that the number of spellings never multiplies with the number of
rules. A declared op stands for itself; a semantic op stands for any of its forms.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.dims import Dim
from fusiondsl.engine import aten
from fusiondsl.engine.forms import BodyForm, DirectForm, Forms
from fusiondsl.engine.match import Matcher
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import COMMUTATIVE, PRIMITIVE_OPS, UNSET, Trie
from fusiondsl.engine.recognised import Recognised, wrap
from fusiondsl.engine.view import Call, View

MAX_READINGS = 4
"""Forms that differ in their arguments only, tried one after the other at one value."""


class Check(Protocol):
    """Sizes and conditions of forms, judged elsewhere."""

    def body(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Mapping[str, Any] | None:
        """The scope a form of several operations gives; None if it does not fit."""

    def direct(self, form: ir.Form, call: Recognised) -> bool:
        """Whether a form of one operation fits."""

    def none_fits(self, call: Recognised) -> None:
        """Takes note of a call that looks like a form of one operation and fits none."""


class Recogniser:
    """Virtual calls of one graph, remembered."""

    matcher: type[Matcher[Any]] = Matcher
    """What runs match programs over these calls."""

    def __init__(self, view: View, forms: Forms, check: Check) -> None:
        self._view = view
        self._forms = forms
        self._check = check
        self._searched: dict[tuple[Any, str, int], list[Recognised]] = {}
        self._made: dict[Any, tuple[str, Sequence[Recognised]]] = {}
        self._occurs: dict[str, bool] = {}
        self._complete: dict[str, bool] = {}
        self._readers_of: dict[str, dict[tuple[Any, int], list[Recognised]]] = {}

    # --- lookups ---------------------------------------------------------------------------------

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        """Calls of `op` that produce `value` as their result `result`."""
        if not isinstance(value, VALUES):
            return ()
        if op in PRIMITIVE_OPS:
            return self._primitives(value, op)
        definition = self._view.define(value)
        if definition is not None and not definition[0].op.startswith("prim."):
            call = self.as_op(definition[0], op)
            if call is not None and value in call.results.get(result, ()):
                return (call,)
        ends = self._forms.ends(op, result)
        if ends and self._maker(value, definition) in ends:
            return self._search(value, op, result)
        return ()

    def readings(self, value: Any) -> frozenset[str]:
        """Ops that may produce a value: anything else need not be tried."""
        if not isinstance(value, VALUES):
            return frozenset()
        return self._forms.readings(self._maker(value, self._view.define(value)))

    @staticmethod
    def _maker(value: Any, definition: tuple[Call, int] | None) -> str | None:
        """The op a value comes from, as far as a form can end in it."""
        if definition is not None:
            return definition[0].op
        return "prim.view" if id(value.target) in aten.VIEW_IDS else None

    def consumers(self, value: Any, position: int, op: str) -> Iterator[Recognised]:
        """Calls of `op` that read `value` as argument `position`."""
        if op == "prim.view":
            yield from self._reshapes_of(value)
            return
        strip = self._view.strip
        for call in self._reading_calls(value):
            found = self.as_op(call, op)
            if found is None:
                continue
            given: list[Any] = [found.args[position]]
            if op in COMMUTATIVE:
                given.append(found.args[1 - position])
            if any(strip(g, regroup=True) is value for g in given if isinstance(g, VALUES)):
                yield found
        if op == "prim.cast":
            yield from self._vanished_cast(value)
        yield from self._virtual_readers(op).get((value, position), ())

    def _virtual_readers(self, op: str) -> Mapping[tuple[Any, int], Sequence[Recognised]]:
        """Calls of `op` in forms of several operations, by each value they read and where."""
        known = self._readers_of.get(op)
        if known is not None:
            return known
        readers: dict[tuple[Any, int], list[Recognised]] = {}
        self._readers_of[op] = readers
        trie = self._bodies(op, 0)
        for call in () if trie is None else self._all_searched(op, trie, set()):
            for position, arg in enumerate(call.args):
                if isinstance(arg, VALUES):
                    value = self._view.strip(arg, regroup=True)
                    readers.setdefault((value, position), []).append(call)
        return readers

    def _reading_calls(self, value: Any) -> Iterator[Call]:
        """Calls that read a value; every item of a split is a call of its own."""
        for user in self._readers(value):
            call = self._view.call(user)
            if call is not None:
                yield call
            elif id(user.target) in aten.ITEM_READER_IDS:
                items = [self._view.define(item) for item in user.users]
                yield from (found[0] for found in items if found is not None)

    def _readers(self, value: Any) -> Iterator[fx.Node]:
        """Users of a value, also behind operations that change nothing."""
        pending = list(value.users)
        while pending:
            user = pending.pop(0)
            yield user
            if id(user.target) in aten.NO_OP_IDS and self._view.strip(user, regroup=True) is value:
                pending.extend(user.users)

    def all_of(self, op: str) -> Iterator[Recognised]:
        """Every call of `op` in the graph, in no particular order."""
        if op.startswith("prim."):
            for target in self._targets_of(op):
                for node in self._view.nodes_of(target):
                    for value in _values_at(node):
                        yield from self._primitives(value, op)
            return
        seen: set[fx.Node] = set()
        for target in self._targets(op):
            for node in self._view.nodes_of(target):
                call = self._view.call(node)
                found = None if call is None else self.as_op(call, op)
                if found is not None:
                    seen.add(node)
                    yield found
        trie = self._bodies(op, 0)
        if trie is not None:
            yield from self._all_searched(op, trie, seen)

    def _targets_of(self, primitive: str) -> Sequence[Any]:
        """Overloads that a primitive is read from."""
        return aten.TARGETS.get(primitive, ())

    def _targets(self, op: str) -> list[Any]:
        """Targets of this graph that are `op` or one of its direct spellings."""
        by_name = self._view.targets_by_name
        names = (op, *self._forms.spellings.get(op, ()))
        return [target for name in names for target in by_name.get(name, ())]

    def occurs(self, op: str) -> bool:
        """Whether the graph has the operations for some spelling of `op`."""
        known = self._occurs.get(op)
        if known is None:
            known = self._occurs[op] = self._find(op)
        return known

    def _bodies(self, op: str, result: int) -> Trie[BodyForm] | None:
        """Forms of several operations, where the graph has the operations for one of them."""
        return self._forms.tries.get((op, result)) if self._composed(op) else None

    def _composed(self, op: str) -> bool:
        known = self._complete.get(op)
        if known is None:
            self._complete[op] = False  # a form never contains itself
            known = self._complete[op] = any(
                all(map(self.occurs, body)) for body in self._forms.bodies.get(op, ())
            )
        return known

    def _find(self, op: str) -> bool:
        if op in ("prim.view", "prim.cast"):  # both may have vanished from the graph
            return True
        if op.startswith("prim."):
            return any(t in self._view.by_target for t in self._targets_of(op))
        return bool(self._targets(op)) or self._composed(op)

    def _all_searched(
        self, op: str, trie: Trie[BodyForm], seen: set[fx.Node]
    ) -> Iterator[Recognised]:
        for target in self._entries(trie):
            for node in self._view.nodes_of(target):
                for value in _values_at(node):
                    fresh = [c for c in self._search(value, op, 0) if c.node not in seen]
                    seen.update(call.node for call in fresh)
                    yield from fresh

    def _entries(self, trie: Trie[BodyForm]) -> list[Any]:
        """Targets a body may end with; behind a cast or view that vanished, the next ones."""
        targets: dict[Any, None] = {}
        pending: list[tuple[str, Any]] = list(trie.roots.items())
        while pending:
            op, children = pending.pop()
            if op.startswith("prim."):
                targets.update(dict.fromkeys(self._targets_of(op)))
            else:
                targets.update(dict.fromkeys(self._targets(op)))
                inner = self._forms.tries.get((op, 0))
                if inner is not None and inner is not trie:
                    targets.update(dict.fromkeys(self._entries(inner)))
            if op in ("prim.cast", "prim.view"):
                for _, node in children:
                    pending.extend(i for b in node.branches[:1] for i in b.by_op.items())
        return [target for target in targets if target in self._view.by_target]

    # --- direct ----------------------------------------------------------------------------------

    def as_op(self, call: Call, op: str) -> Recognised | None:
        found: Recognised | None = call.readings.get(op, _UNBOUND)
        if found is _UNBOUND:
            found = call.readings[op] = self._as_op(call, op)
        return found

    def _as_op(self, call: Call, op: str) -> Recognised | None:
        if call.op == op:
            return wrap(call)
        unfit: Recognised | None = None
        for direct in self._forms.direct.get((call.op, op), ()):
            found = apply_direct(call, direct)
            if found is not None and self._check.direct(direct.form, found):
                return found
            unfit = found or unfit
        if unfit is not None:
            self._check.none_fits(unfit)
        return None

    # --- primitives ------------------------------------------------------------------------------

    def _primitives(self, value: Any, op: str) -> Sequence[Recognised]:
        if op == "prim.view":
            return self._reshapes(value)
        made = self._made.get(value)
        if made is None:
            made = self._made[value] = self._making(value)
        if made[0] == op:
            return made[1]
        return self._vanished_cast(value) if op == "prim.cast" else ()

    def _making(self, value: Any) -> tuple[str, Sequence[Recognised]]:
        """The primitive a value comes from and the call of it."""
        definition = self._view.define(value)
        if definition is None or definition[0].op not in PRIMITIVE_OPS:
            return "", ()
        call = self.as_op(definition[0], definition[0].op)
        return definition[0].op, () if call is None else (call,)

    def _vanished_cast(self, value: Any) -> Sequence[Recognised]:
        """A cast to the dtype a value already has is not in the graph."""
        tensor = value.meta.get("val")
        if not isinstance(tensor, torch.Tensor) or not isinstance(value, fx.Node):
            return ()
        return (Recognised("prim.cast", (value, tensor.dtype), value, {0: [value]}, nodes=()),)

    def _reshapes(self, value: Any) -> Sequence[Recognised]:
        """Any number of reshapes, the longest chain first; sizes are compared later."""
        chain = self._view.behind_views(value)
        return [
            Recognised(
                "prim.view",
                (end, None),
                value,
                {0: [value]},
                nodes=() if end is value else tuple(_between(value, end)),
            )
            for end in reversed(chain)
        ]

    def _reshapes_of(self, value: Any) -> Iterator[Recognised]:
        """Reshapes of a value and of those, the value itself last."""
        pending: list[tuple[fx.Node, tuple[fx.Node, ...]]] = [
            (user, (user,)) for user in value.users if id(user.target) in aten.VIEW_IDS
        ]
        while pending:
            node, nodes = pending.pop(0)
            yield Recognised("prim.view", (value, None), node, {0: [node]}, nodes=nodes)
            pending.extend((u, (*nodes, u)) for u in node.users if id(u.target) in aten.VIEW_IDS)
        yield Recognised("prim.view", (value, None), value, {0: [value]}, nodes=())

    # --- bodies ----------------------------------------------------------------------------------

    def _search(self, value: Any, op: str, result: int) -> list[Recognised]:
        """The ways to read `value` as a result of `op`: which of two addends is the residual."""
        trie = self._bodies(op, result)
        if trie is None:
            return []
        key = (value, op, result)
        if key not in self._searched:
            self._searched[key] = []  # a form never contains itself
            most = MAX_READINGS if self._forms.is_ambiguous(op) else 1
            self._searched[key] = self._search_body(value, trie, most)
        return self._searched[key]

    def _search_body(self, value: Any, trie: Trie[BodyForm], most: int) -> list[Recognised]:
        found: list[Recognised] = []

        def accept(entry: BodyForm, slots: list[Any], calls: list[Recognised]) -> bool:
            call = self._virtual(entry, slots, calls)
            if call is not None and not any(_same_args(call, other) for other in found):
                found.append(call)
            return len(found) >= most

        matcher = self.matcher(self._view, self, accept)
        for root, children in trie.roots.items():
            for call in self.producers(value, 0, root):
                if matcher.run(children, call):
                    return found
        return found

    def _virtual(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Recognised | None:
        scope = self._check.body(entry, slots, calls)
        if scope is None:
            return None
        args = [_argument(entry, param.name, slots, scope) for param in entry.params]
        results: dict[int, list[Any]] = {}
        for i, place in enumerate(entry.results):
            if place is None:
                continue
            values = calls[place[0]].results.get(place[1])
            if values:
                results[i] = list(values)
        for param_index, result_index in entry.by_dtype:
            if result_index not in results:
                return None
            args[param_index] = results[result_index][0].meta["val"].dtype
        nodes = tuple(dict.fromkeys(_all_nodes(calls)))
        buffers = tuple([b for call in calls for b in call.buffers])
        return Recognised(
            entry.op,
            tuple(args),
            calls[0].node,
            results,
            nodes=nodes,
            buffers=buffers,
            form=entry.form,
        )


def _argument(entry: BodyForm, name: str, slots: Sequence[Any], scope: Mapping[str, Any]) -> Any:
    """A parameter of a form: captured, fixed, or solved from the sizes (`group_size`)."""
    slot = entry.path.slots.get(name)
    if slot is not None and slots[slot] is not UNSET:
        return slots[slot]
    if name in entry.fixed:
        return entry.fixed[name]
    solved = scope.get(name)
    return solved.as_int() if isinstance(solved, Dim) else None


def apply_direct(call: Call, direct: DirectForm) -> Recognised | None:
    given = call.args
    for place, wanted in direct.literals:
        there = given[place]
        if type(wanted) is not type(there) or wanted != there:
            return None
    known = given + direct.fixed if direct.fixed else given
    args = tuple([known[place] for place in direct.sources])
    results = call.results if direct.same_results else _renamed(call.results, direct.results)
    if direct.by_dtype:
        read = list(args)
        for param, result in direct.by_dtype:
            if result not in results:
                return None
            read[param] = results[result][0].meta["val"].dtype
        args = tuple(read)
    return Recognised(
        direct.op,
        args,
        call.node,
        results,
        (call.node,),
        call.buffers,
        direct.form,
        direct.results,
    )


def _renamed(
    results: Mapping[int, list[Any]], spelled: tuple[int | None, ...]
) -> Mapping[int, list[Any]]:
    """Results of a spelling as those of the op."""
    pairs = [(index, results.get(s)) for index, s in enumerate(spelled) if s is not None]
    return {index: nodes for index, nodes in pairs if nodes}


_UNBOUND: Any = object()


def _same_args(call: Recognised, other: Recognised) -> bool:
    # By identity: comparing symbolic sizes would ask for a guard.
    return all(a is b for a, b in zip(call.args, other.args, strict=True))


def _all_nodes(calls: list[Recognised]) -> list[fx.Node]:
    """A cast or view that is not in the graph has none: its value is another call's, or read."""
    found: list[Any] = []
    for call in calls:
        if not call.nodes:
            continue
        found += call.nodes
        for values in call.results.values():
            found += values
    return [value for value in found if isinstance(value, fx.Node)]


def _between(value: Any, end: Any) -> Iterator[fx.Node]:
    while value is not end and isinstance(value, fx.Node):
        yield value
        value = aten.first_argument(value)


def _values_at(node: fx.Node) -> Sequence[fx.Node]:
    items = [user for user in node.users if user.target is operator.getitem]
    return items or [node]
