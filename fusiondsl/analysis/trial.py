"""Sizes, dtypes, scalars and a target for which two rules fit one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import lcm
from typing import Any, TypeAlias

from fusiondsl.analysis.bounds import Contradiction, facts_of
from fusiondsl.analysis.common_graph import CommonGraph, as_number
from fusiondsl.analysis.concrete import Tensor, leading_name
from fusiondsl.analysis.exprs import walk
from fusiondsl.analysis.lints import ARCHS
from fusiondsl.analysis.local_names import (
    LEADING,
    MOST_CANDIDATES,
    OPEN_DTYPES,
    TRAILING,
    LocalNames,
)
from fusiondsl.analysis.overlay import Overlay
from fusiondsl.analysis.world import NotConcrete, World, world_of
from fusiondsl.decl.dtypes import FP8, fp8_of
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.dtypes import FP8_CANDIDATES
from fusiondsl.dims.evaluate import evaluate
from fusiondsl.dims.expr import Binary, DType, Expr, Literal, Name
from fusiondsl.dims.expr import Call as CallExpr
from fusiondsl.dims.facts import NO_FACTS
from fusiondsl.dims.names import names
from fusiondsl.dims.solve import Solution, solve
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import PRESENT, Invalid, Unknown, Value
from fusiondsl.ir.program import (
    Program,
    TensorType,
)
from fusiondsl.target import ENV_FACTS, Target

MOST_TRIES = 3000
"""How many assignments are looked at before the search gives up."""

ANOTHER_ARCH = ("gfx1100", "gfx1101")
"""An architecture that no condition names."""

_NAMED_FACTS = frozenset({"env.tp_group"})

OTHER = "'"
"""Ends names of the right rule, so that both have their own."""


@dataclass(frozen=True)
class Trial:
    """A common graph with everything known."""

    overlay: Overlay
    tensors: Mapping[str, Tensor]
    """By value, as `Overlay.outputs` names them."""
    arguments: Mapping[tuple[str, int], tuple[Any, ...]]
    """Of each step: names of values as `Ref`, lists of them, and scalars."""
    facts: Mapping[str, Any]
    """Facts of the target that conditions ask for."""
    answers: Mapping[str, bool]
    """What extern predicates answer."""

    @property
    def target(self) -> Target:
        facts = dict(self.facts)
        arch = facts.pop("env.arch", None)
        return Target(arch, facts.pop("env.tp_size", None), facts.pop("env.tp_group", None), facts)


_Typed: TypeAlias = tuple[LocalNames, TensorType]


class Disjoint(Enum):
    """Why there is no trial: nothing at all fits both rules."""

    DISJOINT = "disjoint"


DISJOINT = Disjoint.DISJOINT


def find_trial(overlay: Overlay, program: Program) -> Trial | Disjoint | None:
    """Values for which both rules alone may fire.

    `DISJOINT` where it is certain that there are none, None where none of those tried fits.
    """
    try:
        return _Search(overlay, program).run()
    except NotConcrete:
        return None
    except Contradiction:
        return DISJOINT


class _Search:
    def __init__(self, overlay: Overlay, program: Program) -> None:
        self.overlay = overlay
        self.program = program
        self.sides = (
            LocalNames(overlay.left, program, ""),
            LocalNames(overlay.right, program, OTHER),
        )
        self._tries = 0
        self._sampled = False
        """Something was chosen of which there is more than what is tried."""
        self._worlds: dict[Any, World] = {}
        self.conditions = [c for side in self.sides for c in side.conditions()]
        self._fit_ranks()
        self.equations = list(self._equations())
        self.literals = self._literals()
        self.predicates = {
            part.func
            for expr in self.conditions
            for part in walk(expr)
            if isinstance(part, CallExpr) and part.func in program.predicates
        }
        self.options = self._options()

    # --- what has to hold ------------------------------------------------------------------------

    def _pairs(self) -> Iterator[tuple[_Typed, _Typed]]:
        """Types of one and the same value."""
        left, right = self.sides
        for mine, other in self.overlay.values.items():
            if mine in left.types and other in right.types:
                yield (left, left.types[mine]), (right, right.types[other])
        for side in self.sides:
            for name, kind in side.links:
                if name in side.types:
                    yield (side, side.types[name]), (side, kind)

    def _fit_ranks(self) -> None:
        """As few leading dimensions as make both types of every shared value equally long."""
        for _ in range(4):
            for (mine, a), (other, b) in self._pairs():
                if mine.rank(a) > other.rank(b):
                    mine, a, other, b = other, b, mine, a
                difference = other.rank(b) - mine.rank(a)
                if a.rank_free:
                    mine.widen(a, difference)
                elif b.rank_free:
                    other.narrow(b, difference)
        wrong = [(a, b) for (m, a), (o, b) in self._pairs() if m.rank(a) != o.rank(b)]
        if any(not a.rank_free and not b.rank_free for a, b in wrong):
            raise Contradiction
        if wrong:
            raise NotConcrete

    def _equations(self) -> Iterator[tuple[Expr, Expr]]:
        left, right = self.sides
        for (mine, a), (other, b) in self._pairs():
            yield from zip(mine.dims(a), other.dims(b), strict=True)
            one, two = mine.dtype(a), other.dtype(b)
            if one is not None and two is not None:
                yield one, two
        for side in self.sides:
            for scalar, value in side.side.fixed:
                known, wanted = side.scalar(scalar), side.scalar(value)
                if known is not None and wanted is not None:
                    yield known, wanted
        for mine_scalar, other_scalar in self.overlay.equal:
            a_expr, b_expr = left.scalar(mine_scalar), right.scalar(other_scalar)
            if a_expr is not None and b_expr is not None:
                yield a_expr, b_expr

    def _literals(self) -> tuple[int, ...]:
        sizes = [d for side in self.sides for kind in side.types.values() for d in kind.dims]
        found = {
            part.value
            for expr in (*self.conditions, *sizes)
            for part in walk(expr)
            if isinstance(part, Literal) and type(part.value) is int
        }
        moduli = [
            expr.right.value
            for condition in self.conditions
            for expr in walk(condition)
            if isinstance(expr, Binary)
            and expr.op == "%"
            and isinstance(expr.right, Literal)
            and type(expr.right.value) is int
        ]
        steps = {*moduli, lcm(*moduli)} - {0}
        near = {n + d for n in found for d in (0, 1, -1)}
        whole = {-(-(n + 1) // step) * step for n in {0, *found} for step in steps}
        return tuple(sorted(n for n in near | whole if 0 < n <= 1 << 31))

    # --- what can be chosen ----------------------------------------------------------------------

    def _options(self) -> dict[str, list[Value]]:
        options: dict[str, list[Value]] = {}
        for side in self.sides:
            for name in side.dtype_variables():
                options[name] = [DType(dtype) for dtype in OPEN_DTYPES]
        mentioned = {n for e in self.conditions for n in names(e)}
        sized = {n for pair in self.equations for e in pair for n in names(e)} | mentioned
        if FP8 in sized and sized & FP8_CANDIDATES:
            mentioned.add("env.arch")  # says which of them `fp8` is
        for name in sorted(mentioned & ENV_FACTS.keys()):
            options[name] = self._fact(name)
        for predicate in sorted(self.predicates):
            options[f"{predicate}()"] = [True, False]
        finite = {n for n in options if ENV_FACTS.get(n) != "int" and n not in _NAMED_FACTS}
        self.finite = frozenset(finite)
        for side in self.sides:
            options.update(side.scalars(self.literals))
        self._size_names: set[str] = set()
        for side in self.sides:
            for name, leading in side.sizes():
                usual = LEADING if leading else TRAILING
                every = dict.fromkeys((*usual, *self.literals))
                self._size_names.add(name)
                options.setdefault(name, [Dim.const(n) for n in list(every)[:MOST_CANDIDATES]])
        self._open_numbers = {
            name for name, found in options.items() if found and isinstance(found[0], Dim)
        }
        return options

    def _fact(self, name: str) -> list[Value]:
        texts = {
            part.value
            for expr in self.conditions
            for part in walk(expr)
            if isinstance(part, Literal) and isinstance(part.value, str)
        }
        if name == "env.arch":
            named = [text for text in sorted(texts) if text.startswith("gfx")]
            another = [arch for arch in ANOTHER_ARCH if arch not in named][:1]
            return [*dict.fromkeys(("gfx950", *ARCHS, *named, *another))]
        kind = ENV_FACTS[name]
        if kind == "bool":
            return [True, False]
        if kind == "int":
            return [Dim.const(n) for n in dict.fromkeys((8, 4, 2, 1, 256, 4096, *self.literals))]
        return ["tp:0", *sorted(texts)]

    # --- searching -------------------------------------------------------------------------------

    def run(self) -> Trial | Disjoint | None:
        for values in self._assign({}):
            found = self._complete(values)
            if found is not None:
                return found
        return None if self._sampled else DISJOINT

    def _assign(self, values: dict[str, Value]) -> Iterator[dict[str, Value]]:
        self._tries += 1
        if self._tries > MOST_TRIES:
            self._sampled = True
            return
        values = dict(values)
        if not self._propagate(values) or not self._possible(values):
            return
        free = next((name for name in self.options if name not in values), None)
        if free is None:
            self._sampled = True
            yield values
            return
        if free not in self.finite and not self._sampled:
            if self._contradictory(values):
                return
            self._sampled = True
        for option in self.options[free]:
            yield from self._assign({**values, free: option})

    def _propagate(self, values: dict[str, Value]) -> bool:
        """Values that follow from equations; false where one cannot hold."""
        changed = True
        while changed:
            changed = False
            for left, right in self.equations:
                verdict = self._equate(left, right, values)
                if verdict is None:
                    return False
                changed = changed or verdict
        return True

    def _equate(self, left: Expr, right: Expr, values: dict[str, Value]) -> bool | None:
        """True: a name got a value. None: both sides differ."""
        a, b = self._value(left, values), self._value(right, values)
        if a is not None and b is not None:
            return False if _equal(a, b) else None
        if a is None and b is None:
            return False
        known, open_side = (a, right) if a is not None else (b, left)
        assert known is not None
        if isinstance(open_side, Name):
            if open_side.id not in self.options:
                return False
            values[open_side.id] = known
            return True
        if not isinstance(known, Dim):
            return False
        found = solve([(open_side, known)], {**self._world(values).constants, **values})
        if not isinstance(found, Solution):
            return None
        values.update(found.bound)
        return bool(found.bound)

    def _value(self, expr: Expr, values: Mapping[str, Value]) -> Value | None:
        world = self._world(values)
        found = evaluate(expr, {**world.constants, **values}, NO_FACTS, world.functions)
        if isinstance(found, Unknown | Invalid) or found == DType(FP8):
            return None
        return None if isinstance(found, Dim) and found.as_int() is None else found

    def _possible(self, values: Mapping[str, Value]) -> bool:
        world = self._world(values)
        if values.get("env.arch") is not None and "env.mx" in values:
            known = Target(arch=str(values["env.arch"])).known()
            if known["env.mx"] != values["env.mx"]:
                return False
        scope = {**values, **self._products(values)}
        complete = all(name in values for name in self.options)
        for condition in self.conditions:
            truth = world.holds(condition, scope)
            if truth is Truth.FALSE or (complete and truth is not Truth.TRUE):
                return False
        return True

    def _contradictory(self, values: Mapping[str, Value]) -> bool:
        """Do the conditions exclude each other for all sizes, given the rest?"""
        symbols = {n: self._root(n) for n in self._open_numbers if n not in values}
        sizes = {symbols[n] for n in self._size_names if n in symbols}
        try:
            facts = facts_of(self.conditions, symbols.get, sizes)
        except Contradiction:
            return True
        scope = {**values, **{name: Dim.symbol(root) for name, root in symbols.items()}}
        scope.update(self._products(scope))
        world = self._world(values)
        return any(world.holds(c, scope, facts) is Truth.FALSE for c in self.conditions)

    def _root(self, name: str) -> str:
        """One name for all that equations make equal."""
        seen = {name}
        pending = [name]
        while pending:
            current = pending.pop()
            for left, right in self.equations:
                if isinstance(left, Name) and isinstance(right, Name):
                    for a, b in ((left.id, right.id), (right.id, left.id)):
                        if a == current and b not in seen:
                            seen.add(b)
                            pending.append(b)
        return min(seen)

    def _products(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Spreads as the product of their sizes; present tensors."""
        found: dict[str, Value] = {}
        for side in self.sides:
            for spread, parts in side.parts.items():
                sizes = [values.get(part) for part in parts]
                if all(isinstance(size, Dim) for size in sizes):
                    found[spread] = Dim.product([s for s in sizes if isinstance(s, Dim)])
                    found[leading_name(spread)] = tuple(
                        int(n)
                        for s in sizes
                        if isinstance(s, Dim) and (n := s.as_int()) is not None
                    )
            found.update(dict.fromkeys(side.tensor_names, PRESENT))
        return found

    def _world(self, values: Mapping[str, Value]) -> World:
        arch = values.get("env.arch")
        answers = tuple((name, values.get(f"{name}()")) for name in sorted(self.predicates))
        known = self._worlds.get((arch, answers))
        if known is None:
            open_ = arch is None and "env.arch" in self.options
            fp8 = None if open_ else fp8_of(arch if isinstance(arch, str) else None)
            known = self._worlds[arch, answers] = world_of(self.program, fp8, answers)
        return known

    # --- everything known ------------------------------------------------------------------------

    def _complete(self, values: Mapping[str, Value]) -> Trial | None:
        scope = {**values, **self._products(values)}
        try:
            graph = CommonGraph(self.overlay, self.program, self.sides, self._world(values), scope)
            graph.build()
        except NotConcrete:
            return None
        if not self._differ(scope):
            return None
        facts = {n: as_number(v) for n, v in values.items() if n in ENV_FACTS}
        if "env.arch" in facts:
            facts.pop("env.mx", None)
        answers = {name: values[f"{name}()"] is True for name in sorted(self.predicates)}
        return Trial(self.overlay, graph.tensors, graph.arguments, facts, answers)

    def _differ(self, scope: Mapping[str, Value]) -> bool:
        left, right = self.sides
        for pairs in self.overlay.apart:
            known = [(left.scalar(a), right.scalar(b)) for a, b in pairs]
            values = [
                (self._value(a, {**scope}), self._value(b, {**scope}))
                for a, b in known
                if a is not None and b is not None
            ]
            if all(a is not None and b is not None and _equal(a, b) for a, b in values):
                return False
        return True


def _equal(a: Value, b: Value) -> bool:
    return type(a) is type(b) and a == b
