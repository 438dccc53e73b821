"""Two terms: the fewest differences that make them one, or the first place where they part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

from fusiondsl.proof.normalise import KINDS, Normaliser
from fusiondsl.proof.terms import Term, subterms
from fusiondsl.proof.values import Context

ORDERED = tuple(
    frozenset(kinds) for count in range(len(KINDS) + 1) for kinds in combinations(KINDS, count)
)
"""Sets of differences, those with fewer first."""

EVERYTHING = ORDERED[-1]

_COMMUTES = frozenset(("add", "mul", "maximum", "minimum", "sum_of", "product_of"))


@dataclass(frozen=True, slots=True)
class Parting:
    """The first pair of terms, in the order of computation, that are not the same."""

    source: Term
    target: Term


class Comparison:
    """Compares terms of one proof; normal forms are kept for all of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._normalisers: dict[frozenset[str], Normaliser] = {}

    def normaliser(self, kinds: frozenset[str]) -> Normaliser:
        found = self._normalisers.get(kinds)
        if found is None:
            found = Normaliser(self._context, kinds)
            self._normalisers[kinds] = found
        return found

    def equal(self, source: Term, target: Term, kinds: frozenset[str]) -> bool:
        """Are both one value up to `kinds`?"""
        normaliser = self.normaliser(kinds)
        one, other = normaliser.normal(source), normaliser.normal(target)
        return one is other and one.settled

    def differences(self, source: Term, target: Term) -> frozenset[str] | None:
        """The fewest differences both are equal up to; None if they part."""
        if self.equal(source, target, frozenset()):
            return frozenset()
        if not self.equal(source, target, EVERYTHING):
            return None
        return next(kinds for kinds in ORDERED if self.equal(source, target, kinds))

    def parting(self, source: Term, target: Term, kinds: frozenset[str]) -> Parting:
        """Where both part, as normal forms up to `kinds`."""
        normaliser = self.normaliser(kinds)
        one, other = normaliser.normal(source), normaliser.normal(target)
        while True:
            below = _first_difference(one, other)
            if below is None:
                return Parting(one, other)
            one, other = below


def _first_difference(one: Term, other: Term) -> tuple[Term, Term] | None:
    """The operands that differ, where two terms are the same operation on different ones."""
    same_kind = one.op == other.op and one.attrs == other.attrs and one.format == other.format
    if not same_kind or len(one.args) != len(other.args):
        return None
    if one.op in _COMMUTES:
        pairs = _matched(_without(one.args, other.args), _without(other.args, one.args))
    else:
        pairs = [(a, b) for a, b in zip(one.args, other.args, strict=True) if a is not b]
    return min(pairs, key=lambda pair: pair[0].number, default=None)


def _without(args: tuple[Term, ...], others: tuple[Term, ...]) -> list[Term]:
    """What is left of `args` when each of `others` takes one equal to it away."""
    taken = Counter(others)
    left: list[Term] = []
    for arg in args:
        if taken[arg]:
            taken[arg] -= 1
        else:
            left.append(arg)
    return left


def _matched(mine: list[Term], others: list[Term]) -> list[tuple[Term, Term]]:
    """Operands in pairs, those that have most in common first."""
    pairs: list[tuple[Term, Term]] = []
    while mine:
        best = max(((a, b) for a in mine for b in others), key=lambda pair: _alike(*pair))
        pairs.append(best)
        mine.remove(best[0])
        others.remove(best[1])
    return pairs


def _alike(one: Term, other: Term) -> float:
    """How much of two terms is the same."""
    ours, theirs = set(subterms(one)), set(subterms(other))
    return len(ours & theirs) / len(ours | theirs) + (one.op == other.op)
