"""Semantic ops in the graph: each spelling of an op becomes one virtual call, once per graph.

Rules match over virtual calls, so that the number of spellings never multiplies with the number of
rules. A declared op stands for itself; a semantic op stands for any of its forms.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.dims import Dim
from fusiondsl.engine import aten
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.mutation import Version
from fusiondsl.engine.pattern import UNSET, Path, Trie, sinks, walk
from fusiondsl.engine.view import Call, View

MAX_READINGS = 4
"""Forms that differ in their arguments only, tried one after the other at one value."""


class Recognised:
    """A call as rules see it: of an op, a primitive, or a semantic op in one of its forms."""

    __slots__ = ("args", "buffers", "form", "node", "nodes", "op", "results", "spelled")

    def __init__(
        self,
        op: str,
        args: tuple[Any, ...],
        node: fx.Node,
        results: Mapping[int, list[Any]],
        *,
        nodes: tuple[fx.Node, ...],
        buffers: tuple[fx.Node, ...] = (),
        form: ir.Form | None = None,
        spelled: tuple[int | None, ...] = (),
    ) -> None:
        self.op = op
        self.args = args
        self.node = node
        self.results = results
        self.nodes = nodes
        """All graph nodes the call is made of, but for `getitem`s of results."""
        self.buffers = buffers
        self.form = form
        self.spelled = spelled
        """Where the call is one operation: that operation's result for each result here."""

    def result(self, index: int) -> Any | None:
        nodes = self.results.get(index)
        return nodes[0] if nodes else None


def absent(op: str, near: fx.Node) -> Recognised:
    """A call that is not in the graph because nobody uses its result."""
    return Recognised(op, (), near, {}, nodes=())


@dataclass(frozen=True, slots=True, eq=False)
class DirectForm:
    """A form that is one declared op: an argument map, nothing to search."""

    form: ir.Form
    op: str
    """The semantic op."""
    literals: tuple[tuple[int, Any], ...]
    """Arguments of the spelling that must have a value."""
    sources: tuple[tuple[int, Any], ...]
    """For each semantic parameter: the argument that holds it, or -1 and the value it has."""
    results: tuple[int | None, ...]
    """For each result of the semantic op: the result of the spelling."""
    by_dtype: tuple[tuple[int, int], ...]
    """(parameter, result): dtype parameters read off the result's dtype."""


@dataclass(frozen=True, slots=True)
class SizedValue:
    """A view or result of a form: a place where sizes are part of what is computed."""

    place: int
    result: int
    name: str
    type: ir.TensorType
    is_result: bool


@dataclass(frozen=True, slots=True, eq=False)
class BodyForm:
    """A form of several operations, seen from one of its results."""

    form: ir.Form
    op: str
    path: Path
    params: tuple[ir.Param, ...]
    fixed: Mapping[str, Any]
    results: tuple[tuple[int, int] | None, ...]
    """For each result of the op: (place in the path's order, result of that call)."""
    by_dtype: tuple[tuple[int, int], ...]
    sized: tuple[SizedValue, ...]


class Forms:
    """The forms of a program, prepared for lookup; independent of any graph."""

    def __init__(self, program: ir.Program, bindings: Bindings) -> None:
        self.ops = program.ops
        self.direct: dict[str, list[DirectForm]] = {}
        """By the spelling's op."""
        self.spellings: dict[str, list[str]] = {}
        """Semantic op -> ops that spell it directly."""
        self.tries: dict[tuple[str, int], Trie[BodyForm]] = {}
        """By semantic op and the result the search starts from."""
        self.bodies: dict[str, list[frozenset[str]]] = {}
        """Ops that each form of several operations needs."""
        self._bindings = bindings
        self._ends: dict[tuple[str, int], frozenset[str]] = {}
        self._readings: dict[str | None, frozenset[str]] = {}
        for decl in program.ops.values():
            for form in decl.forms:
                self._add(decl, form)

    def is_semantic(self, op: str) -> bool:
        return op in self.spellings or any(key[0] == op for key in self.tries)

    def readings(self, maker: str | None) -> frozenset[str]:
        """Ops that a value made by `maker` can be a result of."""
        known = self._readings.get(maker)
        if known is None:
            known = self._readings[maker] = frozenset(self._find_readings(maker))
        return known

    def _find_readings(self, maker: str | None) -> Iterator[str]:
        # A cast or a reshape may have vanished in front of anything.
        yield from ("prim.cast", "prim.view")
        if maker is None:
            return
        yield maker
        for op in self.ops:
            results = range(len(self.ops[op].call_results))
            if maker in self.spellings.get(op, ()) or any(
                maker in self.ends(op, r) for r in results
            ):
                yield op

    def ends(self, op: str, result: int) -> frozenset[str]:
        """Ops a form of several operations may end in, vanished casts and views seen through."""
        key = (op, result)
        if key not in self._ends:
            self._ends[key] = frozenset()  # a form never contains itself
            self._ends[key] = frozenset(self._find_ends(key))
        return self._ends[key]

    def _find_ends(self, key: tuple[str, int]) -> Iterator[str]:
        trie = self.tries.get(key)
        pending: list[tuple[str, Any]] = [] if trie is None else list(trie.roots.items())
        while pending:
            op, children = pending.pop()
            yield op
            yield from self.spellings.get(op, ())
            yield from self.ends(op, 0)
            if op in ("prim.cast", "prim.view"):
                for _, node in children:
                    pending.extend(i for b in node.branches[:1] for i in b.by_op.items())

    def _add(self, decl: ir.OpDecl, form: ir.Form) -> None:
        first = form.body[0]
        if len(form.body) == 1 and not first.op.startswith("prim."):
            direct = self._direct(decl, form)
            if direct is not None:
                self.direct.setdefault(first.op, []).append(direct)
                spellings = self.spellings.setdefault(decl.name, [])
                if first.op not in spellings:
                    spellings.append(first.op)
                return
        self.bodies.setdefault(decl.name, []).append(frozenset(call.op for call in form.body))
        for result, name in enumerate(form.results):
            if name is not None:
                self._add_body(decl, form, result, name)

    def _direct(self, decl: ir.OpDecl, form: ir.Form) -> DirectForm | None:
        call = form.body[0]
        positions = {p.name: i for i, p in enumerate(decl.call_params)}
        spelled = self.ops[call.op].call_params
        literals: list[tuple[int, Any]] = []
        fixed = {positions[n]: (-1, self._bindings.constant(c)) for n, c in form.fixed}
        sources: dict[int, tuple[int, Any]] = dict(fixed)
        for place, (param, operand) in enumerate(zip(spelled, call.args, strict=True)):
            if isinstance(operand, ir.Ref) and operand.name in positions:
                sources[positions[operand.name]] = place, None
            elif isinstance(operand, (ir.Const, ir.ListOf)):
                wants_float = isinstance(param.type, ir.ScalarType) and param.type.kind == "float"
                value = self._bindings.constant(operand, wants_float=wants_float)
                literals.append((place, value))
            elif not isinstance(operand, ir.Anything):
                return None
        by_dtype = _by_dtype(decl, set(sources))
        sources.update((param, (-1, None)) for param, _ in by_dtype)
        if len(sources) < len(positions):
            return None
        results = tuple(None if n is None else call.results.index(n) for n in form.results)
        in_order = tuple(sources[i] for i in range(len(positions)))
        return DirectForm(form, decl.name, tuple(literals), in_order, results, by_dtype)

    def _add_body(self, decl: ir.OpDecl, form: ir.Form, result: int, name: str) -> None:
        tensors = frozenset(p.name for p in decl.call_params if isinstance(p.type, ir.TensorType))
        anchor = next((i for i, c in enumerate(form.body) if name in c.results), None)
        optional = frozenset(i for i in sinks(form.body) if form.body[i].op.startswith("prim."))
        path = (
            None
            if anchor is None
            else walk(form.body, self.ops, tensors, anchor, optional=optional)
        )
        if path is None:
            return
        places = {n: (i, r) for i, c in enumerate(form.body) for r, n in enumerate(c.results) if n}
        results = tuple(
            None if n is None else (path.order.index(places[n][0]), places[n][1])
            for n in form.results
        )
        fixed = {n: self._bindings.constant(c) for n, c in form.fixed}
        bound = {
            i for i, p in enumerate(decl.call_params) if p.name in path.slots or p.name in fixed
        }
        entry = BodyForm(
            form,
            decl.name,
            path,
            decl.call_params,
            fixed,
            results,
            _by_dtype(decl, bound),
            tuple(_sized(form, path)),
        )
        trie = self.tries.setdefault((decl.name, result), Trie())
        trie.insert(path, self.literals(path), entry)

    def literals(self, path: Path) -> list[tuple[int, Any]]:
        """The slots of a path that must hold a literal; computed scalars are checked later."""
        return [
            (slot, self._bindings.constant(operand))
            for slot, operand in path.constants
            if isinstance(operand, (ir.Const, ir.ListOf)) and _is_literal(operand)
        ]


def _is_literal(operand: ir.Operand) -> bool:
    if isinstance(operand, ir.ListOf):
        return all(_is_literal(item) for item in operand.items)
    return isinstance(operand, ir.Const)


def _sized(form: ir.Form, path: Path) -> Iterator[SizedValue]:
    types = dict(form.types)
    for place, index in enumerate(path.order):
        call = form.body[index]
        for result, name in enumerate(call.results):
            declared = types.get(name) if name is not None else None
            is_result = name in form.results
            if name is None or not isinstance(declared, ir.TensorType):
                continue
            if is_result or call.op == "prim.view":
                yield SizedValue(place, result, name, declared, is_result)


def _by_dtype(decl: ir.OpDecl, bound: set[int]) -> tuple[tuple[int, int], ...]:
    """Dtype parameters a form does not bind, with a result that has that dtype."""
    pairs: list[tuple[int, int]] = []
    for i, param in enumerate(decl.call_params):
        if i in bound or not isinstance(param.type, ir.ScalarType) or param.type.kind != "dtype":
            continue
        for r, result in enumerate(decl.call_results):
            if isinstance(result.type, ir.TensorType) and result.type.dtype == param.name:
                pairs.append((i, r))
                break
    return tuple(pairs)


class Check(Protocol):
    """Sizes and conditions of forms, judged elsewhere."""

    def body(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Mapping[str, Any] | None:
        """The scope a form of several operations gives; None if it does not fit."""

    def direct(self, form: ir.Form, call: Recognised) -> bool:
        """Whether a form of one operation fits."""


class Recogniser:
    """Virtual calls of one graph, remembered."""

    def __init__(self, view: View, forms: Forms, check: Check) -> None:
        self._view = view
        self._forms = forms
        self._check = check
        self._searched: dict[tuple[Any, str, int], list[Recognised]] = {}
        self._occurs: dict[str, bool] = {}

    # --- lookups ---------------------------------------------------------------------------------

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        """Calls of `op` that produce `value` as their result `result`."""
        if not isinstance(value, _VALUES):
            return ()
        if op[:5] == "prim.":
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
        if not isinstance(value, _VALUES):
            return frozenset()
        return self._forms.readings(self._maker(value, self._view.define(value)))

    @staticmethod
    def _maker(value: Any, definition: tuple[Call, int] | None) -> str | None:
        """The op a value comes from, as far as a form can end in it."""
        if definition is not None:
            return definition[0].op
        return "prim.view" if value.target in aten.VIEWS else None

    def consumers(self, value: Any, position: int, op: str) -> Iterator[Recognised]:
        """Calls of `op` that read `value` as argument `position`."""
        if op == "prim.view":
            yield from self._reshapes_of(value)
            return
        strip = self._view.strip
        for user in self._readers(value):
            call = self._view.call(user)
            if call is None:
                continue
            if op.startswith("prim."):
                found = self.as_op(call, op) if call.op == op else None
            else:
                found = self.as_op(call, op)
            for candidate in () if found is None else (found,):
                given = [candidate.args[position]]
                if candidate.op.startswith("prim.") and len(candidate.args) > 1:
                    given.append(candidate.args[1 - position] if position < 2 else None)
                if any(strip(g, regroup=True) is value for g in given if _is_value(g)):
                    yield candidate

    def _readers(self, value: Any) -> Iterator[fx.Node]:
        """Users of a value, also behind operations that change nothing."""
        pending = list(value.users)
        while pending:
            user = pending.pop(0)
            yield user
            if user.target in aten.NO_OPS and self._view.strip(user, regroup=True) is value:
                pending.extend(user.users)

    def all_of(self, op: str) -> Iterator[Recognised]:
        """Every call of `op` in the graph, in no particular order."""
        if op.startswith("prim."):
            for target in aten.TARGETS.get(op, ()):
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
        trie = self._forms.tries.get((op, 0))
        if trie is not None:
            yield from self._all_searched(op, trie, seen)

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

    def _find(self, op: str) -> bool:
        if op in ("prim.view", "prim.cast"):  # both may have vanished from the graph
            return True
        if op.startswith("prim."):
            return any(t in self._view.by_target for t in aten.TARGETS.get(op, ()))
        if self._targets(op):
            return True
        return any(
            all(self.occurs(step) for step in body) for body in self._forms.bodies.get(op, ())
        )

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
                targets.update(dict.fromkeys(aten.TARGETS.get(op, ())))
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
        for direct in self._forms.direct.get(call.op, ()):
            if direct.op == op:
                found = _apply_direct(call, direct)
                if found is not None and self._check.direct(direct.form, found):
                    return found
        return None

    # --- primitives ------------------------------------------------------------------------------

    def _primitives(self, value: Any, op: str) -> Sequence[Recognised]:
        if op == "prim.view":
            return self._reshapes(value)
        definition = self._view.define(value)
        if definition is not None and definition[0].op == op:
            call = self.as_op(definition[0], op)
            return () if call is None else (call,)
        if op != "prim.cast":
            return ()
        # A cast to the dtype a value already has is not in the graph.
        tensor = value.meta.get("val")
        if not isinstance(tensor, torch.Tensor) or not isinstance(value, fx.Node):
            return ()
        return (Recognised(op, (value, tensor.dtype), value, {0: [value]}, nodes=()),)

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
            (user, (user,)) for user in value.users if user.target in aten.VIEWS
        ]
        while pending:
            node, nodes = pending.pop(0)
            yield Recognised("prim.view", (value, None), node, {0: [node]}, nodes=nodes)
            pending.extend((u, (*nodes, u)) for u in node.users if u.target in aten.VIEWS)
        yield Recognised("prim.view", (value, None), value, {0: [value]}, nodes=())

    # --- bodies ----------------------------------------------------------------------------------

    def _search(self, value: Any, op: str, result: int) -> list[Recognised]:
        """The ways to read `value` as a result of `op`: which of two addends is the residual."""
        trie = self._forms.tries.get((op, result))
        if trie is None:
            return []
        key = (value, op, result)
        if key not in self._searched:
            self._searched[key] = []  # a form never contains itself
            self._searched[key] = self._search_body(value, trie)
        return self._searched[key]

    def _search_body(self, value: Any, trie: Trie[BodyForm]) -> list[Recognised]:
        from fusiondsl.engine.match import Matcher

        found: list[Recognised] = []

        def accept(entry: BodyForm, slots: list[Any], calls: list[Recognised]) -> bool:
            call = self._virtual(entry, slots, calls)
            if call is not None and not any(_same_args(call, other) for other in found):
                found.append(call)
            return len(found) >= MAX_READINGS

        matcher: Matcher[BodyForm] = Matcher(self._view, self, accept)
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
        nodes = tuple(dict.fromkeys(n for call in calls for n in _all_nodes(call)))
        buffers = tuple(b for call in calls for b in call.buffers)
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


def wrap(call: Call) -> Recognised:
    """A call as itself."""
    count = 1 if call.binding is None else len(call.binding.results)
    return Recognised(
        call.op,
        call.args,
        call.node,
        call.results,
        nodes=(call.node,),
        buffers=call.buffers,
        spelled=tuple(range(count)),
    )


def _apply_direct(call: Call, direct: DirectForm) -> Recognised | None:
    given = call.args
    for place, wanted in direct.literals:
        if not _same_literal(wanted, given[place]):
            return None
    args = [given[place] if place >= 0 else value for place, value in direct.sources]
    results: dict[int, list[Any]] = {}
    for index, spelled in enumerate(direct.results):
        nodes = call.results.get(spelled) if spelled is not None else None
        if nodes:
            results[index] = nodes
    for param, result in direct.by_dtype:
        if result not in results:
            return None
        args[param] = results[result][0].meta["val"].dtype
    return Recognised(
        direct.op,
        tuple(args),
        call.node,
        results,
        nodes=(call.node,),
        buffers=call.buffers,
        form=direct.form,
        spelled=direct.results,
    )


_UNBOUND: Any = object()
_VALUES = (fx.Node, Version)


def _same_literal(wanted: Any, given: Any) -> bool:
    return type(wanted) is type(given) and wanted == given


def _same_args(call: Recognised, other: Recognised) -> bool:
    # By identity: comparing symbolic sizes would ask for a guard.
    return all(a is b for a, b in zip(call.args, other.args, strict=True))


def _is_value(item: Any) -> bool:
    return isinstance(item, (fx.Node, Version))


def _all_nodes(call: Recognised) -> Iterator[fx.Node]:
    yield from call.nodes
    for nodes in call.results.values():
        yield from (n for n in nodes if isinstance(n, fx.Node))


def _between(value: Any, end: Any) -> Iterator[fx.Node]:
    while value is not end and isinstance(value, fx.Node):
        yield value
        value = value.args[0]


def _values_at(node: fx.Node) -> Sequence[fx.Node]:
    items = [user for user in node.users if user.target is operator.getitem]
    return items or [node]
