"""Finds semantic ops in a body: where a part of it is a form of one, the op takes its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from fusiondsl.analysis.body import reads
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import conjuncts, substitute
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.unify import Unifier
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.evaluate import truth
from fusiondsl.dims.expr import Binary, DType, Expr, Literal, Name
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.dims.names import names
from fusiondsl.dims.truth import Truth
from fusiondsl.ir.program import (
    Anything,
    Call,
    Computed,
    Condition,
    Const,
    Difference,
    Form,
    ListOf,
    OpDecl,
    Operand,
    Ref,
    ScalarType,
    TensorType,
    Unrounded,
)

_STAYS = frozenset({"cast", "view", "slice"})
"""Kinds of primitives that may have users outside: they cost nothing and simply stay."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about the values of the body."""

    scope: Scope
    dtypes: DTypes
    types: Mapping[str, TensorType | None]
    conditions: frozenset[Expr]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A call of a semantic op in place of a part of the body."""

    call: Call
    form: str
    differs: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A form of an op, or its `means`."""

    decl: OpDecl
    form: Form

    @property
    def rank(self) -> tuple[int, str]:
        return len(self.form.differs), self.decl.name

    @property
    def wanted(self) -> frozenset[str]:
        """The ops it cannot be without."""
        return frozenset(call.op for call in self.form.body if call.op != "prim.cast")


@dataclass(frozen=True)
class _State:
    """What the names of a form stand for so far."""

    operands: Mapping[str, Operand]
    values: Mapping[str, str]
    covered: frozenset[int]
    same: tuple[tuple[Operand, Operand], ...] = ()
    """Scalars of the form and of the body that have to be equal."""
    plain_casts: tuple[tuple[str, Operand], ...] = ()
    """Values that are of the dtype already to which the form casts them."""
    views: tuple[tuple[str, str], ...] = ()
    """Views of the form and of the body that have to be of one shape."""

    # not `dataclasses.replace`, which takes several times as long

    def with_operand(self, name: str, operand: Operand, covered: frozenset[int]) -> _State:
        operands = {**self.operands, name: operand}
        return _State(operands, self.values, covered, self.same, self.plain_casts, self.views)

    def with_value(
        self,
        name: str,
        value: str,
        *,
        covered: frozenset[int] | None = None,
        plain_casts: tuple[tuple[str, Operand], ...] | None = None,
        views: tuple[tuple[str, str], ...] | None = None,
    ) -> _State:
        return _State(
            self.operands,
            {**self.values, name: value},
            self.covered if covered is None else covered,
            self.same,
            self.plain_casts if plain_casts is None else plain_casts,
            self.views if views is None else views,
        )

    def with_same(self, wanted: Operand, actual: Operand) -> _State:
        same = (*self.same, (wanted, actual))
        return _State(self.operands, self.values, self.covered, same, self.plain_casts, self.views)


@dataclass(frozen=True, slots=True)
class _Found:
    spelling: _Spelling
    state: _State
    call: Call

    @property
    def preference(self) -> tuple[int, int, str]:
        """The largest part first, then the fewest differences."""
        return (-len(self.state.covered), *self.spelling.rank)


def lift(
    steps: Sequence[Call], results: frozenset[str], ops: Iterable[OpDecl], facts: Facts
) -> tuple[list[Call], list[Lifted]]:
    """The body with ops in it, and which those are. `results` are needed afterwards."""
    spellings = [s for op in ops for s in _spellings(op)]
    done: list[Lifted] = []
    body = _Body(list(steps), results, facts)
    for _ in steps:  # each round leaves fewer steps
        found = body.best(spellings)
        if found is None:
            break
        done.append(Lifted(found.call, found.spelling.form.name, found.spelling.form.differs))
        body = _Body(body.without(found), results, facts)
    return body.steps, [item for item in done if item.call in body.steps]


def _spellings(decl: OpDecl) -> Iterator[_Spelling]:
    if not decl.forms:
        return
    calls = tuple(step for step in decl.means or () if isinstance(step, Call))
    rounded = all(not isinstance(arg, Unrounded) for call in calls for arg in call.args)
    if calls and len(calls) == len(decl.means or ()) and rounded:
        results = tuple(result.name for result in decl.call_results)
        yield _Spelling(decl, Form("means", calls, results, (), (), (), ()))
    yield from (_Spelling(decl, form) for form in decl.forms)


class _Body:
    """The steps of one round."""

    def __init__(self, steps: list[Call], results: frozenset[str], facts: Facts) -> None:
        self.steps = steps
        self.results = results
        self.facts = facts
        self.made_by = {
            name: (index, position)
            for index, step in enumerate(steps)
            for position, name in enumerate(step.results)
            if name is not None
        }

    @cached_property
    def _readers(self) -> Mapping[str, set[int]]:
        readers: dict[str, set[int]] = {}
        for index, step in enumerate(self.steps):
            for name in reads(step):
                readers.setdefault(name, set()).add(index)
        return readers

    def best(self, spellings: Iterable[_Spelling]) -> _Found | None:
        """What is preferred, the first of equals; what cannot be preferred is not looked for."""
        present = {step.op for step in self.steps}
        best: _Found | None = None
        for spelling in spellings:
            if not spelling.wanted <= present:
                continue
            if best is not None and self._at_best(spelling) >= best.preference:
                continue
            for found in self._places(spelling):
                if best is None or found.preference < best.preference:
                    best = found
        return best

    def _at_best(self, spelling: _Spelling) -> tuple[int, int, str]:
        """The preference if everything were covered that can be: the form, and casts before it."""
        casts = sum(step.op == "prim.cast" for step in self.steps)
        most = len(spelling.form.body) + min(casts, len(spelling.decl.call_params))
        return (-min(most, len(self.steps)), *spelling.rank)

    def _places(self, spelling: _Spelling) -> Iterator[_Found]:
        matcher = _Matcher(spelling, self)
        roots = [r for r in spelling.form.results if r is not None and r in matcher.made_by]
        for root in roots[:1]:
            for value in self.made_by:
                found = self._calls(matcher, root, roots[1:], value)
                yield from islice(found, 1)

    def _calls(
        self, matcher: _Matcher, root: str, others: Sequence[str], value: str
    ) -> Iterator[_Found]:
        for state in matcher.value(root, Ref(value), _State({}, {}, frozenset())):
            if matcher.call(state) is None:
                continue  # further results read the same operands, and only ask for more
            for whole in matcher.others(others, state):
                call = matcher.call(whole)
                if call is not None and self._is_closed(whole, call):
                    yield _Found(matcher.spelling, whole, call)

    def _is_closed(self, state: _State, call: Call) -> bool:
        """Does nothing outside read what the op does not give?"""
        covered = [self.steps[index] for index in state.covered]
        if not covered or (len(covered) == 1 and covered[0].op == call.op):
            return False
        given = {name for name in call.results if name is not None}
        for index in state.covered:
            if _stays(self.steps[index]):
                continue
            inner = {name for name in self.steps[index].results if name is not None} - given
            if inner & self.results or any(
                self._readers.get(name, set()) - state.covered for name in inner
            ):
                return False
        return True

    def without(self, found: _Found) -> list[Call]:
        """The steps after the op took the place of those it covers."""
        given = {name for name in found.call.results if name is not None}
        left: list[Call] = []
        last = max(found.state.covered)
        for index, step in enumerate(self.steps):
            outside = {
                name
                for name in step.results
                if name is not None and self._readers.get(name, set()) - found.state.covered
            }
            stays = _stays(step) and bool(outside - given)
            if index not in found.state.covered or stays:
                left.append(step)
            if index == last:
                left.append(found.call)
        return left


def _stays(step: Call) -> bool:
    primitive = PRIMITIVES.get(step.op.removeprefix("prim."))
    return primitive is not None and primitive.typing in _STAYS


class _Matcher:
    """Reads one form as a question about a body."""

    def __init__(self, spelling: _Spelling, body: _Body) -> None:
        self.spelling = spelling
        self.body = body
        self.params = {p.name: p.type for p in spelling.decl.call_params}
        self.made_by = {
            name: (index, position)
            for index, step in enumerate(spelling.form.body)
            for position, name in enumerate(step.results)
            if name is not None
        }

    # --- structure -----------------------------------------------------------------------------

    def value(self, name: str, actual: Operand, state: _State) -> Iterator[_State]:
        """The ways in which a name of the form can stand for an operand of the body."""
        if name in self.params:
            yield from self._param(name, actual, state)
        elif not isinstance(actual, Ref):
            return
        elif name in state.values:
            if state.values[name] == actual.name:
                yield state
        else:
            yield from self._made(name, actual, state)

    def _param(self, name: str, actual: Operand, state: _State) -> Iterator[_State]:
        if name not in state.operands:
            yield from self._behind_plain_cast(name, actual, state)
            yield state.with_operand(name, actual, state.covered)
        elif state.operands[name] == actual:
            yield state

    def _behind_plain_cast(self, name: str, actual: Operand, state: _State) -> Iterator[_State]:
        """The operand of a cast of the body that does nothing."""
        made = self.body.made_by.get(actual.name) if isinstance(actual, Ref) else None
        step = None if made is None else self.body.steps[made[0]]
        if made is None or step is None or step.op != "prim.cast":
            return
        (source, dtype) = step.args
        if not isinstance(source, Ref) or not isinstance(dtype, Const):
            return
        if isinstance(dtype.value, DType) and self._may_be_plain(source.name, dtype):
            yield state.with_operand(name, source, state.covered | {made[0]})

    def _made(self, name: str, actual: Ref, state: _State) -> Iterator[_State]:
        index, position = self.made_by[name]
        wanted = self.spelling.form.body[index]
        made = self.body.made_by.get(actual.name)
        step = None if made is None or made[1] != position else self.body.steps[made[0]]
        if made is not None and step is not None and step.op == wanted.op:
            covered = state.covered | {made[0]}
            if step.op == "prim.view":
                views = (*state.views, (name, actual.name))
                viewed = state.with_value(name, actual.name, covered=covered, views=views)
                yield from self._operand(wanted.args[0], step.args[0], viewed)
            else:
                known = state.with_value(name, actual.name, covered=covered)
                yield from self._call(wanted, step, known)
        if wanted.op == "prim.cast" and self._may_be_plain(actual.name, wanted.args[1]):
            assert isinstance(wanted.args[0], Ref)
            casts = (*state.plain_casts, (actual.name, wanted.args[1]))
            known = state.with_value(name, actual.name, plain_casts=casts)
            yield from self.value(wanted.args[0].name, actual, known)

    def _may_be_plain(self, name: str, dtype: Operand) -> bool:
        """A cast that does nothing; what depends on the op's dtypes is asked at the end."""
        if not isinstance(dtype, Const) or not isinstance(dtype.value, DType):
            return True
        kind = self._type(name)
        return kind is not None and (
            self.body.facts.dtypes.same(kind.dtype, dtype.value.name) is True
        )

    def _call(self, wanted: Call, step: Call, state: _State) -> Iterator[_State]:
        if len(wanted.args) != len(step.args):
            return
        yield from self._all(wanted.args, step.args, state)
        primitive = PRIMITIVES.get(wanted.op.removeprefix("prim."))
        if primitive is not None and primitive.commutative:
            yield from self._all(wanted.args[::-1], step.args, state)

    def _all(
        self, wanted: Sequence[Operand], actual: Sequence[Operand], state: _State
    ) -> Iterator[_State]:
        if len(wanted) != len(actual):
            return
        if not wanted:
            yield state
            return
        for known in self._operand(wanted[0], actual[0], state):
            yield from self._all(wanted[1:], actual[1:], known)

    def _operand(self, wanted: Operand, actual: Operand, state: _State) -> Iterator[_State]:
        match wanted:
            case Anything():
                yield state
            case Ref():
                yield from self.value(wanted.name, actual, state)
            case ListOf():
                if isinstance(actual, ListOf):
                    yield from self._all(wanted.items, actual.items, state)
            case _ if wanted == actual and isinstance(wanted, Const):
                yield state
            case Const() if not isinstance(wanted.value, DType):
                return
            case _:
                yield state.with_same(wanted, actual)

    def others(self, roots: Sequence[str], state: _State) -> Iterator[_State]:
        """Results that hang on what is found already; one that is not there is left out."""
        if not roots:
            yield state
            return
        if roots[0] not in state.values:
            ways = (
                found
                for value in self.body.made_by
                for found in self.value(roots[0], Ref(value), state)
                if found.operands == state.operands
            )
            for found in sorted(ways, key=lambda way: -len(way.covered)):
                yield from self.others(roots[1:], found)
        yield from self.others(roots[1:], state)

    # --- is it really that op? -------------------------------------------------------------------

    def call(self, state: _State) -> Call | None:
        """The call of the op, where types, scalars and conditions agree."""
        operands = dict(self.spelling.form.fixed) | dict(state.operands)
        for param in self.spelling.decl.call_params:
            if param.name not in operands and param.default is None:
                return None
        args = tuple(
            operands.get(p.name, p.default or Const(None)) for p in self.spelling.decl.call_params
        )
        unifier = self._unified(args)
        if unifier is None or not self._agrees(state, unifier, args):
            return None
        results = tuple(
            None if name is None else state.values.get(name) for name in self.spelling.form.results
        )
        last = self.body.steps[max(state.covered, default=0)]
        return Call(self.spelling.decl.name, args, results, last.span)

    def _unified(self, args: tuple[Operand, ...]) -> Unifier | None:
        facts, decl = self.body.facts, self.spelling.decl
        unifier = Unifier(
            decl,
            facts.dtypes,
            facts.scope.sizes,
            assume=False,
            set_members=facts.scope.dtype_set,
        )
        pairs = list(zip(decl.call_params, args, strict=True))
        for param, arg in pairs:
            if isinstance(param.type, ScalarType):
                unifier.scalar(param.name, param.type, arg)
        for param, arg in pairs:
            if isinstance(param.type, TensorType) and not self._fits(param.type, arg, unifier):
                return None
        return unifier if unifier.finish() is None else None

    def _fits(self, kind: TensorType, arg: Operand, unifier: Unifier) -> bool:
        if arg == Const(None):
            return kind.optional
        actual = self._type(arg.name) if isinstance(arg, Ref) else None
        return actual is not None and unifier.tensor(kind, actual, "") is None

    def _type(self, name: str) -> TensorType | None:
        facts = self.body.facts
        return facts.types.get(name) or facts.scope.tensors.get(name)

    def _agrees(self, state: _State, unifier: Unifier, args: tuple[Operand, ...]) -> bool:
        scalars = {
            param.name: expr
            for param, arg in zip(self.spelling.decl.call_params, args, strict=True)
            if isinstance(param.type, ScalarType) and (expr := _expr(arg)) is not None
        }
        said = _Said(self.body.facts, unifier, scalars)
        conditions = (*self.spelling.form.where, *self.spelling.decl.where)
        return (
            all(said.equal(wanted, actual) for wanted, actual in state.same)
            and all(self._is_plain(name, dtype, said) for name, dtype in state.plain_casts)
            and all(self._is_shaped(name, actual, unifier) for name, actual in state.views)
            and all(said.holds(condition) for condition in conditions)
        )

    def _is_shaped(self, name: str, actual: str, unifier: Unifier) -> bool:
        written = next((k for n, k in self.spelling.form.types if n == name), None)
        wanted = None if written is None else unifier.instantiate(written)
        found = self._type(actual)
        if wanted is None or found is None or len(wanted.dims) != len(found.dims):
            return False
        equal = self.body.facts.scope.sizes.equal
        return all(equal(a, b) is True for a, b in zip(wanted.dims, found.dims, strict=True))

    def _is_plain(self, name: str, dtype: Operand, said: _Said) -> bool:
        kind = self._type(name)
        return kind is not None and said.equal(dtype, Computed(Name(kind.dtype)))


def literal(value: Const, span: Span | None = None) -> Expr:
    """A constant as it is written."""
    if isinstance(value.value, DType):
        return Name(value.value.name, span=span)
    return Literal(value.value, span=span)


def _expr(operand: Operand) -> Expr | None:
    match operand:
        case Const():
            return literal(operand)
        case Ref():
            return Name(operand.name)
        case Computed():
            return operand.expr
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Said:
    """What the expressions of a form say in the names of the body."""

    facts: Facts
    unifier: Unifier
    scalars: Mapping[str, Expr]

    def _here(self, expr: Expr) -> Expr:
        found = {name: self.unifier.bound(name) for name in names(expr)}
        known = {name: value for name, value in found.items() if value is not None}
        return substitute(expr, {**known, **self.scalars})

    def equal(self, wanted: Operand, actual: Operand) -> bool:
        left, right = _expr(wanted), _expr(actual)
        if left is None or right is None:
            return False
        left = self._here(left)
        if isinstance(left, Name) and isinstance(right, Name) and self._is_dtype(left.id):
            return self.facts.dtypes.same(left.id, right.id) is True
        return self.facts.scope.sizes.equal(left, right) is True

    def _is_dtype(self, name: str) -> bool:
        scope = self.facts.scope
        return scope.is_dtype(name) or scope.is_dtype_param(name)

    def holds(self, condition: Condition) -> bool:
        return all(self._holds(self._here(part)) for part in conjuncts(condition.expr))

    def _holds(self, part: Expr) -> bool:
        if part in self.facts.conditions:
            return True
        match part:
            case Binary(op="in", left=Name() as name, right=ExprSequence() as members):
                inside = {item.id for item in members.items if isinstance(item, Name)}
                allowed = self.facts.dtypes.allowed(name.id)
                return allowed is not None and allowed <= inside
            case Binary(op="==", left=Binary(op="%") as rest, right=Literal(value=0)):
                quotient = self.facts.scope.sizes.quotient(rest.left, rest.right)
                return quotient is not None or truth(part, {}).truth is Truth.TRUE
            case Binary(op="==", left=left, right=right):
                return self.equal_exprs(left, right) or truth(part, {}).truth is Truth.TRUE
            case _:
                return truth(part, {}).truth is Truth.TRUE

    def equal_exprs(self, left: Expr, right: Expr) -> bool:
        return self.equal(Computed(left), Computed(right))
