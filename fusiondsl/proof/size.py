"""Sizes and whole numbers of a proof: polynomials over the rationals, equal iff written equal.

A type's `H / 32` says that the quotient is whole, so dividing is exact here and needs no fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

Monomial = tuple[tuple[str, int], ...]
"""Symbols with their powers, sorted; the empty product is 1."""


@dataclass(frozen=True)
class Size:
    """`terms` is sorted and has no zero coefficient."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def const(value: int) -> Size:
        return Size((((), Fraction(value)),) if value else ())

    @staticmethod
    def symbol(name: str) -> Size:
        return Size(((((name, 1),), Fraction(1)),))

    @cached_property
    def value(self) -> int | None:
        """The number where it is known."""
        if not self.terms:
            return 0
        monomial, factor = self.terms[0]
        whole = len(self.terms) == 1 and not monomial and factor.denominator == 1
        return int(factor) if whole else None

    @cached_property
    def name(self) -> str | None:
        """The symbol where it is one and nothing else."""
        if len(self.terms) != 1 or self.terms[0][1] != 1:
            return None
        monomial = self.terms[0][0]
        return monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None

    def symbols(self) -> frozenset[str]:
        return frozenset(name for monomial, _ in self.terms for name, _ in monomial)

    def __add__(self, other: Size) -> Size:
        return _sum((*self.terms, *other.terms))

    def __neg__(self) -> Size:
        return Size(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __mul__(self, other: Size) -> Size:
        return _sum((_times(m, n), a * b) for m, a in self.terms for n, b in other.terms)

    def over(self, other: Size) -> Size | None:
        """The quotient by a product of symbols and a number; None for a sum or zero."""
        if self == other and self.terms:
            return ONE
        if len(other.terms) != 1:
            return None
        monomial, factor = other.terms[0]
        inverse = tuple((name, -power) for name, power in monomial)
        return self * Size(((inverse, 1 / factor),))

    def substitute(self, values: Mapping[str, Size]) -> Size | None:
        """With symbols replaced; None where a divisor becomes a sum."""
        total = ZERO
        for monomial, factor in self.terms:
            term: Size | None = Size((((), factor),))
            for name, power in monomial:
                part = values.get(name, Size.symbol(name))
                for _ in range(abs(power)):
                    if term is not None:
                        term = term * part if power > 0 else term.over(part)
            if term is None:
                return None
            total = total + term
        return total

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        return " + ".join(_text(m, f) for m, f in reversed(self.terms)).replace("+ -", "- ")


def _times(one: Monomial, other: Monomial) -> Monomial:
    powers = dict(one)
    for name, power in other:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def _sum(terms: Iterable[tuple[Monomial, Fraction]]) -> Size:
    total: dict[Monomial, Fraction] = {}
    for monomial, factor in terms:
        total[monomial] = total.get(monomial, Fraction(0)) + factor
    return Size(tuple(sorted((m, f) for m, f in total.items() if f)))


def _text(monomial: Monomial, factor: Fraction) -> str:
    above = [name for name, power in monomial for _ in range(max(power, 0))]
    below = [name for name, power in monomial for _ in range(max(-power, 0))]
    if abs(factor.numerator) != 1 or not above:
        above.insert(0, str(abs(factor.numerator)))
    if factor.denominator != 1:
        below.insert(0, str(factor.denominator))
    sign = "-" if factor < 0 else ""
    return sign + " / ".join((" * ".join(above), *below))


ZERO = Size.const(0)
ONE = Size.const(1)


def solve(pattern: Size, actual: Size, unknown: str) -> Size | None:
    """What `unknown` is where `pattern`, linear in it, equals `actual`."""
    rest = [(m, f) for m, f in pattern.terms if unknown not in dict(m)]
    with_it = [(m, f) for m, f in pattern.terms if unknown in dict(m)]
    if any(dict(m)[unknown] != 1 for m, _ in with_it):
        return None
    factor = _sum((_times(m, ((unknown, -1),)), f) for m, f in with_it)
    return (actual - _sum(rest)).over(factor)


def product(sizes: Iterable[Size]) -> Size:
    total = ONE
    for size in sizes:
        total = total * size
    return total


def opaque(function: str, args: Iterable[Size]) -> Size:
    """`//`, `%` and functions: numbers where the arguments are, else a symbol of its own."""
    listed = list(args)
    values = [arg.value for arg in listed]
    known = [value for value in values if value is not None]
    compute = _FUNCTIONS.get(function)
    if compute is not None and len(known) == len(values) == 2 and known[1]:
        return Size.const(compute(*known))
    return Size.symbol(f"{function}({', '.join(map(str, listed))})")


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, b: -(-a // b) * b,
    "min": min,
    "max": max,
}
