"""Conditions of one rule that exclude each other, so that it fits nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fusiondsl.analysis.bounds import Contradiction, facts_of
from fusiondsl.analysis.exprs import conjuncts
from fusiondsl.analysis.overlap import constraints_of, exclude
from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.evaluate import evaluate
from fusiondsl.dims.expr import DType, Expr, Spread
from fusiondsl.dims.names import names
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Value
from fusiondsl.ir.program import Condition, Rule, TensorType

_DTYPES: dict[str, Value] = {name: DType(name) for name in DTYPES}


def contradiction(rule: Rule) -> tuple[Condition, Condition | None] | None:
    """A condition that cannot hold, and the one before it that excludes it, if it is one alone."""
    sizes = _sizes(rule)
    for count, condition in enumerate(rule.where):
        earlier = rule.where[:count]
        if not _possible([*earlier, condition], sizes):
            alone = (other for other in earlier if not _possible([other, condition], sizes))
            return condition, next(alone, None)
    return None


def _sizes(rule: Rule) -> frozenset[str]:
    kinds = [p.type for p in rule.params if isinstance(p.type, TensorType)]
    dims = [dim for kind in kinds for dim in kind.dims]
    spreads = {dim.name for dim in dims if isinstance(dim, Spread)}
    return frozenset(spreads.union(*(names(dim) for dim in dims)))


def _possible(conditions: Sequence[Condition], sizes: frozenset[str]) -> bool:
    exprs = [expr for condition in conditions for expr in conjuncts(condition.expr)]
    if _same_terms(exprs):
        return False
    try:
        facts = facts_of(exprs, lambda name: name if name in sizes else None, sizes)
    except Contradiction:
        return False
    scope = {**_DTYPES, **{name: Dim.symbol(name) for name in sizes}}
    return all(evaluate(expr, scope, facts) not in (False, Truth.FALSE) for expr in exprs)


def _same_terms(exprs: Sequence[Expr]) -> bool:
    """Two conditions on one term that exclude each other."""
    found = constraints_of(exprs)
    return any(
        exclude(one, other)
        for constraints in found.values()
        for place, one in enumerate(constraints)
        for other in constraints[place + 1 :]
    )
