"""Two rules with one source: which of both is the more special, and can they meet at all?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fusiondsl.analysis.kernel import kernel_of, stated_conditions
from fusiondsl.analysis.source import Source, type_conditions
from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.dims.expr import Binary, Expr, Literal, Name, Sequence, Unary
from fusiondsl.dims.render import render
from fusiondsl.ir.program import Program

T = TypeVar("T")

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True)
class Demands:
    """What has to hold for a rule to fire, over canonical names."""

    texts: frozenset[str]
    exprs: tuple[Expr, ...]

    @cached_property
    def by_term(self) -> dict[str, list[Constraint]]:
        return constraints_of(self.exprs)


def constraints_of(exprs: Iterable[Expr]) -> dict[str, list[Constraint]]:
    """What is demanded of each term."""
    found: dict[str, list[Constraint]] = {}
    for expr in exprs:
        for term, constraint in _constraints(expr):
            found.setdefault(term, []).append(constraint)
    return found


def demands_of(source: Source, program: Program) -> Demands:
    """Own conditions, those of the parameter types, and what the new ops demand."""
    exprs = [source.rename(e) for e in stated_conditions(source.rule, program)]
    exprs += map(source.rename, kernel_of(source.rule, program).conditions)
    texts = {render(e) for e in exprs} | type_conditions(source)
    return Demands(frozenset(texts), tuple(exprs))


def disjoint(a: Demands, b: Demands) -> bool:
    """Is it certain that no site fits both? Compares conditions on one and the same term."""
    mine, others = a.by_term, b.by_term
    return any(
        exclude(one, other)
        for term in mine.keys() & others.keys()
        if mine[term] != others[term]
        for one in mine[term]
        for other in others[term]
    )


@dataclass(frozen=True, slots=True)
class Constraint:
    """`term in values`, or `lo <= term <= hi`."""

    values: frozenset[str] | None = None
    lo: float | None = None
    hi: float | None = None


def _constraints(expr: Expr) -> Iterator[tuple[str, Constraint]]:
    match expr:
        case Name():
            yield expr.id, Constraint(frozenset({"true"}))
        case Unary(op="not", operand=operand):
            yield render(operand), Constraint(frozenset({"false"}))
        case Binary(op="in", left=left, right=Sequence() as members):
            values = [_plain(m) for m in members.items]
            if None not in values:
                yield render(left), Constraint(frozenset(v for v in values if v is not None))
        case Binary(op=op, left=left, right=right) if op in _FLIPPED:
            yield from _comparison(op, left, right)
            yield from _comparison(_FLIPPED[op], right, left)
            yield render(expr), Constraint(frozenset({"true"}))


def _comparison(op: str, left: Expr, right: Expr) -> Iterator[tuple[str, Constraint]]:
    if op == "==":
        value = _plain(right)
        if value is not None:
            yield render(left), Constraint(frozenset({value}))
    if not isinstance(right, Literal) or isinstance(right.value, str | bool | None):
        return
    bound = right.value
    match op:
        case "<=":
            yield render(left), Constraint(hi=bound)
        case "<":
            yield render(left), Constraint(hi=bound - 1 if isinstance(bound, int) else bound)
        case ">=":
            yield render(left), Constraint(lo=bound)
        case ">":
            yield render(left), Constraint(lo=bound + 1 if isinstance(bound, int) else bound)


def _plain(expr: Expr) -> str | None:
    """A literal or a dtype as text; another name could be anything."""
    if isinstance(expr, Literal):
        return render(expr)
    return expr.id if isinstance(expr, Name) and expr.id in DTYPES else None


def exclude(a: Constraint, b: Constraint) -> bool:
    """Does no value of a term satisfy both?"""
    if a.values is not None and b.values is not None:
        return not a.values & b.values
    if a.values is not None or b.values is not None:
        values, ranged = (a.values, b) if a.values is not None else (b.values, a)
        numbers = [_number(v) for v in values or ()]
        return all(n is not None and not _inside(n, ranged) for n in numbers)
    low = a.lo is not None and b.hi is not None and a.lo > b.hi
    return low or (b.lo is not None and a.hi is not None and b.lo > a.hi)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _inside(number: float, ranged: Constraint) -> bool:
    above = ranged.lo is None or number >= ranged.lo
    return above and (ranged.hi is None or number <= ranged.hi)


# --- which goes first ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule as `prefer` sees it."""

    source: Source
    demands: Demands
    replacement: str
    """The canonical text of `replace`; equal ones need no order."""


def prefer(a: Candidate, b: Candidate) -> int | None:
    """-1: `a` goes first; 1: `b` does; 0: the order does not matter; None: it is not known."""
    literals = _subset_order(a.source.literal_positions, b.source.literal_positions)
    if literals in (-1, 1):
        return literals
    left, right = len(a.source.survivors), len(b.source.survivors)
    if left != right:
        return -1 if left < right else 1
    stronger = _subset_order(a.demands.texts, b.demands.texts)
    if stronger in (-1, 1):
        return stronger
    if a.replacement == b.replacement and a.source.survivors == b.source.survivors:
        return 0
    return 0 if disjoint(a.demands, b.demands) else None


def _subset_order(
    a: frozenset[int] | frozenset[str], b: frozenset[int] | frozenset[str]
) -> int | None:
    """-1 if `a` says strictly more than `b`, 1 the other way round, 0 if equal."""
    if a == b:
        return 0
    if a > b:
        return -1
    return 1 if a < b else None


def may_shadow(first: Candidate, second: Candidate) -> bool:
    """Might `first` take every site of `second`? A quick look; False is certain."""
    return (
        first.source.literal_positions <= second.source.literal_positions
        and first.source.survivors >= second.source.survivors
    )
