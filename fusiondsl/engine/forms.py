"""The forms of a program, prepared for lookup in graphs.

A form that is one declared op is an argument map; a form of several operations is a match program
from each of its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusiondsl import ir
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.pattern import Path, Trie, sinks, walk


@dataclass(frozen=True, slots=True, eq=False)
class DirectForm:
    """A form that is one declared op: an argument map, nothing to search."""

    form: ir.Form
    op: str
    """The semantic op."""
    literals: tuple[tuple[int, Any], ...]
    """Arguments of the spelling that must have a value."""
    fixed: tuple[Any, ...]
    """Values of semantic parameters that no argument of the spelling holds."""
    sources: tuple[int, ...]
    """For each semantic parameter: its place among the arguments and, behind them, `fixed`."""
    results: tuple[int | None, ...]
    """For each result of the semantic op: the result of the spelling."""
    same_results: bool
    """The results are those of the spelling, all of them in order."""
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
    bound: tuple[int, ...]
    """Slots of names that the body does not compute."""
    computed: tuple[int, ...]
    """Slots of scalars that must equal an expression."""


class Forms:
    """The forms of the ops that are looked for, prepared for lookup; independent of any graph."""

    def __init__(self, program: ir.Program, bindings: Bindings, sought: frozenset[str]) -> None:
        self.ops = program.ops
        self.direct: dict[tuple[str, str], list[DirectForm]] = {}
        """By the spelling's op and the semantic op."""
        self.spellings: dict[str, list[str]] = {}
        """Semantic op -> ops that spell it directly."""
        self.tries = Tries(self)
        self.composed: dict[tuple[str, int], list[ir.Form]] = {}
        """Forms of several operations by semantic op and the result the search starts from."""
        self.bodies: dict[str, list[frozenset[str]]] = {}
        """Ops that each form of several operations needs."""
        self.bindings = bindings
        self._ends: dict[tuple[str, int], frozenset[str]] = {}
        self._readings: dict[str | None, frozenset[str]] = {}
        self._ambiguous: dict[str, bool] = {}
        for name, decl in program.ops.items():
            if name in sought:
                for form in decl.forms:
                    self._add(decl, form)

    def is_ambiguous(self, op: str) -> bool:
        """Two inputs of one type may change places: a spelling has more than one reading."""
        known = self._ambiguous.get(op)
        if known is None:
            params = self.ops[op].call_params
            types = [p.type for p in params if isinstance(p.type, ir.TensorType)]
            known = self._ambiguous[op] = len(set(types)) < len(types)
        return known

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
                self.direct.setdefault((first.op, decl.name), []).append(direct)
                spellings = self.spellings.setdefault(decl.name, [])
                if first.op not in spellings:
                    spellings.append(first.op)
                return
        self.bodies.setdefault(decl.name, []).append(frozenset([call.op for call in form.body]))
        for result, name in enumerate(form.results):
            if name is not None:
                self.composed.setdefault((decl.name, result), []).append(form)

    def _direct(self, decl: ir.OpDecl, form: ir.Form) -> DirectForm | None:
        call = form.body[0]
        positions = {p.name: i for i, p in enumerate(decl.call_params)}
        spelled = self.ops[call.op].call_params
        literals: list[tuple[int, Any]] = []
        values = {positions[n]: self.bindings.constant(c) for n, c in form.fixed}
        sources: dict[int, int] = {}
        for place, (param, operand) in enumerate(zip(spelled, call.args, strict=True)):
            if isinstance(operand, ir.Ref) and operand.name in positions:
                sources[positions[operand.name]] = place
            elif isinstance(operand, (ir.Const, ir.ListOf)):
                wants_float = isinstance(param.type, ir.ScalarType) and param.type.kind == "float"
                value = self.bindings.constant(operand, wants_float=wants_float)
                literals.append((place, value))
            elif not isinstance(operand, ir.Anything):
                return None
        by_dtype = _by_dtype(decl, {*sources, *values})
        values.update((param, None) for param, _ in by_dtype)
        free = [param for param in values if param not in sources]
        sources.update((param, len(spelled) + i) for i, param in enumerate(free))
        if len(sources) < len(positions):
            return None
        results = tuple([None if n is None else call.results.index(n) for n in form.results])
        return DirectForm(
            form,
            decl.name,
            tuple(literals),
            tuple([values[param] for param in free]),
            tuple([sources[i] for i in range(len(positions))]),
            results,
            results == tuple(range(len(call.results))),
            by_dtype,
        )

    def literals(self, path: Path) -> list[tuple[int, Any]]:
        """The slots of a path that must hold a literal; computed scalars are checked later."""
        constant = self.bindings.constant
        return [
            (slot, constant(operand)) for slot, operand in path.constants if _is_literal(operand)
        ]


class Tries:
    """Match programs of forms of several operations, each made when a graph first needs it.

    What is made was checked before, so that making it cannot fail.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._made: dict[tuple[str, int], Trie[BodyForm] | None] = {}

    def get(self, key: tuple[str, int]) -> Trie[BodyForm] | None:
        """By semantic op and the result the search starts from."""
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, op: str, result: int) -> Trie[BodyForm] | None:
        trie: Trie[BodyForm] = Trie()
        for form in self._forms.composed.get((op, result), ()):
            entry = _body_form(self._forms, self._forms.ops[op], form, form.results[result])
            if entry is not None:
                trie.insert(entry.path, self._forms.literals(entry.path), entry)
        return trie if trie.roots else None


def _body_form(forms: Forms, decl: ir.OpDecl, form: ir.Form, name: str | None) -> BodyForm | None:
    """The form from its result `name`; None where that does not reach all of it."""
    made = {n: (i, r) for i, c in enumerate(form.body) for r, n in enumerate(c.results) if n}
    if name is None or name not in made:
        return None
    params = decl.call_params
    tensors = frozenset([p.name for p in params if isinstance(p.type, ir.TensorType)])
    optional = frozenset([i for i in sinks(form.body) if form.body[i].op.startswith("prim.")])
    path = walk(form.body, forms.ops, tensors, made[name][0], optional=optional)
    if path is None:
        return None
    places = {index: place for place, index in enumerate(path.order)}
    ends = [None if end is None else made[end] for end in form.results]
    fixed = {n: forms.bindings.constant(c) for n, c in form.fixed}
    bound = {i for i, p in enumerate(params) if p.name in path.slots or p.name in fixed}
    return BodyForm(
        form,
        decl.name,
        path,
        params,
        fixed,
        tuple([None if end is None else (places[end[0]], end[1]) for end in ends]),
        _by_dtype(decl, bound),
        tuple(_sized(form, path)),
        tuple([slot for name, slot in path.slots.items() if name not in made]),
        tuple([slot for slot, operand in path.constants if isinstance(operand, ir.Computed)]),
    )


def _is_literal(operand: ir.Operand) -> bool:
    if isinstance(operand, ir.Const):
        return True
    return isinstance(operand, ir.ListOf) and all(map(_is_literal, operand.items))


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
