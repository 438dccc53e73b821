"""Does one rule fit wherever another does? Certain or not: what is not shown is not so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fusiondsl.analysis.bounds import Contradiction, facts_of
from fusiondsl.analysis.exprs import rewrite
from fusiondsl.analysis.kernel import kernel_of, product_of, stated_conditions
from fusiondsl.analysis.overlay import OnCut, Overlay, overlays
from fusiondsl.analysis.side import Side, as_expr, side_of
from fusiondsl.analysis.spelled import spellings
from fusiondsl.analysis.world import World, world_of
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.dtypes import FP8_CANDIDATES
from fusiondsl.dims.expr import DType, Expr, Name, Spread
from fusiondsl.dims.names import names
from fusiondsl.dims.render import render
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import PRESENT, Value
from fusiondsl.ir.program import (
    Anything,
    Computed,
    Operand,
    Program,
    Rule,
    TensorType,
)
from fusiondsl.ir.strata import admitted_forms
from fusiondsl.target import ENV_FACTS

MOST_DTYPES = 500
"""How many combinations of dtypes are looked at."""


def takes_all(first: Rule, second: Rule, program: Program, on_cut: OnCut) -> Overlay | None:
    """How `first`, tried before `second`, takes every site of it; None where that is not sure."""
    written, wanted = side_of(first), side_of(second)
    sides = [written]
    for spelling in spellings(written, program.ops):
        if spelling.ops & wanted.ops.keys():
            spelled = spelling.side_of()
            sides += [] if spelled is None else [spelled]
    found = (_takes_all(side, wanted, program, on_cut) for side in sides)
    return next((overlay for overlay in found if overlay is not None), None)


def _takes_all(first: Side, second: Side, program: Program, on_cut: OnCut) -> Overlay | None:
    if first.ops - second.ops:
        return None
    for overlay in overlays(first, second, on_cut):
        whole = len(overlay.shared) == len(first.calls)
        if whole and _unhindered(overlay) and implied(overlay, program):
            return overlay
    return None


def whole_overlay(one: Rule, other: Rule) -> Overlay | None:
    """Two equal sources, one upon the other."""
    left, right = side_of(one), side_of(other)
    for overlay in overlays(left, right):
        if len(overlay.shared) == len(left.calls) == len(right.calls):
            return overlay
    return None


def _unhindered(overlay: Overlay) -> bool:
    """What `left` removes, `right` removes too, and nobody else can read it."""
    if not (overlay.both_fire and overlay.left_wins):
        return False
    hidden = [n for n in overlay.left.producer if n not in overlay.left.visible]
    return all(overlay.values[name] not in overlay.right.visible for name in hidden)


def implied(overlay: Overlay, program: Program) -> bool:
    """Wherever `right` fits, so does `left`, all of whose calls are shared."""
    try:
        return _Implication(overlay, program).holds()
    except _Open:
        return False


class _Open(Exception):
    """Something of the left rule is not shown to follow."""


class _Implication:
    def __init__(self, overlay: Overlay, program: Program) -> None:
        self.left, self.right = overlay.left, overlay.right
        self.overlay = overlay
        self.program = program
        self.bound: dict[str, Expr] = {}
        """Names of the left rule, over those of the right one."""
        self.spreads: dict[str, tuple[Expr, ...]] = {}

    def holds(self) -> bool:
        if not self._forms() or self.left.fixed:
            return False
        types = dict(_types(self.right))
        for name, kind in _types(self.left):
            partner = self.overlay.values.get(name)
            if partner is not None:
                if partner not in types:
                    return False
                self._type(kind, types[partner])
        for mine, other in self.overlay.equal:
            self._scalar(mine, other)
        given = list(stated_conditions(self.right.rule, self.program))
        texts = {render(condition) for condition in given}
        wanted = [self._over(e) for e in stated_conditions(self.left.rule, self.program)]
        kernel = kernel_of(self.left.rule, self.program)
        if not kernel.complete:
            raise _Open
        wanted += map(self._over, (*self.left.where, *kernel.conditions))
        open_ = [e for e in wanted if render(e) not in texts]
        return not open_ or _follow(open_, given, self.right.rule, self.program)

    def _forms(self) -> bool:
        """Every spelling that the right rule admits is one that the left rule admits."""
        for i, j in self.overlay.shared.items():
            mine = admitted_forms(self.left.rule, self.left.calls[i], self.program.ops)
            others = admitted_forms(self.right.rule, self.right.calls[j], self.program.ops)
            if not {form.name for form in others} <= {form.name for form in mine}:
                return False
        return True

    # --- types and scalars -----------------------------------------------------------------------

    def _type(self, kind: TensorType, other: TensorType) -> None:
        self._dtype(kind.dtype, other.dtype)
        mine, others = list(kind.dims), list(other.dims)
        if mine and isinstance(mine[0], Spread):
            cut = len(others) - len(mine) + 1
            if cut < 0:
                raise _Open
            known = self.spreads.setdefault(mine[0].name, tuple(others[:cut]))
            if known != tuple(others[:cut]):
                raise _Open
            mine, others = mine[1:], others[cut:]
        if len(mine) != len(others):
            raise _Open
        for one, two in zip(mine, others, strict=True):
            self._size(one, two)
        if kind.strides is None and other.strides is None:
            return
        strides = [render(self._over(s)) for s in kind.strides or ()]
        if strides != [render(s) for s in other.strides or ()]:
            raise _Open

    def _dtype(self, mine: str, other: str) -> None:
        if mine == other and (mine in DTYPES or mine in (FP8, ANY)):
            return
        if mine == ANY:
            return
        if mine in self.program.dtype_sets:
            if other != mine and other not in self.program.dtype_sets[mine]:
                raise _Open
            return
        if mine in DTYPES or mine == FP8 or other == ANY or other in self.program.dtype_sets:
            raise _Open
        self._size(Name(mine), Name(other))

    def _size(self, mine: Expr, other: Expr) -> None:
        if isinstance(mine, Name) and mine.id not in self.bound and self._is_local(mine.id):
            self.bound[mine.id] = other
        elif render(self._over(mine)) != render(other):
            raise _Open

    def _is_local(self, name: str) -> bool:
        return name not in ENV_FACTS and name not in DTYPES and name not in self.program.lets

    def _scalar(self, mine: Operand, other: Operand) -> None:
        if isinstance(mine, Anything):
            return
        if isinstance(mine, Computed):
            found = as_expr(other)
            if found is None:
                raise _Open
            self._size(mine.expr, found)
        elif repr(mine) != repr(other):
            raise _Open

    def _over(self, expr: Expr) -> Expr:
        """Over the names of the right rule."""

        def change(part: Expr) -> Expr | None:
            if not isinstance(part, Name):
                return None
            if part.id in self.spreads:
                return product_of(self.spreads[part.id])
            return self.bound.get(part.id)

        return rewrite(expr, change)


def _types(side: Side) -> Iterator[tuple[str, TensorType]]:
    for param in side.rule.params:
        if isinstance(param.type, TensorType):
            yield param.name, param.type
    yield from ((n, k) for n, k in side.rule.types if isinstance(k, TensorType))
    yield from side.types.items()


# --- conditions ----------------------------------------------------------------------------------


def _follow(wanted: list[Expr], given: list[Expr], rule: Rule, program: Program) -> bool:
    """Do conditions over the names of `rule` follow from others?"""
    sizes, dtypes = _names_of(rule, program)
    symbols: dict[str, Value] = {name: Dim.symbol(name) for name in sizes}
    symbols.update({p.name: PRESENT for p in rule.params if isinstance(p.type, TensorType)})
    symbols.update({p.name: Dim.symbol(p.name) for p in rule.params if _is_int(p.type)})
    symbols.update({n: Dim.symbol(n) for n, kind in ENV_FACTS.items() if kind == "int"})
    try:
        facts = facts_of(given, lambda n: n if isinstance(symbols.get(n), Dim) else None, sizes)
    except Contradiction:
        return True
    for world in (world_of(program, fp8) for fp8 in sorted(FP8_CANDIDATES)):
        for choice in _choices(dtypes, given, world):
            scope = {**symbols, **choice}
            if any(world.holds(e, scope, facts) is not Truth.TRUE for e in wanted):
                return False
    return True


def _names_of(rule: Rule, program: Program) -> tuple[set[str], set[str]]:
    """Names of sizes and dtype variables of a rule."""
    kinds = [p.type for p in rule.params] + [kind for _, kind in rule.types]
    tensors = [kind for kind in kinds if isinstance(kind, TensorType)]
    fixed = {*DTYPES, FP8, ANY, *program.dtype_sets, *program.lets}
    scalars = {p.name for p in rule.params}
    dims = [dim for kind in tensors for dim in kind.dims]
    sizes = {n for dim in dims for n in names(dim)}
    sizes |= {dim.name for dim in dims if isinstance(dim, Spread)}
    dtypes = {kind.dtype for kind in tensors}
    return sizes - fixed - scalars, dtypes - fixed - scalars


def _is_int(kind: Any) -> bool:
    return getattr(kind, "kind", None) == "int" and not kind.is_list


def _choices(dtypes: set[str], given: list[Expr], world: World) -> Iterator[Mapping[str, Value]]:
    """Every assignment of dtypes that the conditions on single dtypes allow."""
    options: list[list[DType]] = []
    for name in sorted(dtypes):
        alone = [e for e in given if names(e) & dtypes == {name}]
        options.append([d for d in map(DType, DTYPES) if _allows(alone, {name: d}, world)])
    count = 1
    for found in options:
        count *= len(found)
    if count > MOST_DTYPES:
        raise _Open
    for chosen in product(*options):
        yield dict(zip(sorted(dtypes), chosen, strict=True))


def _allows(conditions: list[Expr], scope: Mapping[str, Value], world: World) -> bool:
    return all(world.holds(c, scope) is not Truth.FALSE for c in conditions)
