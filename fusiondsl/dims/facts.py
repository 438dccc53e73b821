"""`Facts`: what is known of the symbols, and what follows from it for expressions over them.

Interval and divisibility arithmetic of our own. Sound, never complete: TRUE and FALSE hold for
every assignment the facts allow, everything else is UNKNOWN. No guard is ever added anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from fusiondsl.dims.dim import ZERO, Atom, Dim, DimTooComplex, Monomial
from fusiondsl.dims.truth import Truth


@dataclass(frozen=True, slots=True)
class Range:
    """The integers `lo..hi`, both included; None is no bound on that side."""

    lo: int | None = None
    hi: int | None = None

    def __post_init__(self) -> None:
        if self.lo is not None and self.hi is not None and self.lo > self.hi:
            raise ValueError(f"empty range {self.lo}..{self.hi}")

    @property
    def single(self) -> int | None:
        """The value of a range of one."""
        return self.lo if self.lo is not None and self.lo == self.hi else None

    def contains(self, value: int) -> bool:
        above = self.lo is None or self.lo <= value
        return above and (self.hi is None or value <= self.hi)

    def meet(self, other: Range) -> Range:
        """The common part of two ranges that both hold; must not be empty."""
        lows = [b for b in (self.lo, other.lo) if b is not None]
        highs = [b for b in (self.hi, other.hi) if b is not None]
        return Range(max(lows) if lows else None, min(highs) if highs else None)

    def __str__(self) -> str:
        if self.lo is None:
            return "unbounded" if self.hi is None else f"at most {self.hi}"
        if self.hi is None:
            return f"at least {self.lo}"
        return str(self.lo) if self.lo == self.hi else f"{self.lo}..{self.hi}"


ANYTHING = Range()

_DEPTH = 3
"""How many rewritings (Horner, `n * (a // n) = a - a % n`) one question may nest."""
_MOST_TERMS = 24
"""Longer polynomials get plain interval arithmetic, which is linear in their length."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Ranges of symbols, divisors they have (`T % 8 == 0`), and which are equal."""

    ranges: Mapping[str, Range] = field(default_factory=dict)
    divisors: Mapping[str, int] = field(default_factory=dict)
    default: Range = ANYTHING
    """The range of a symbol that `ranges` does not name."""
    equal: Mapping[str, str] = field(default_factory=dict)
    """Symbols that are another one, which no key of this is."""

    def with_range(self, symbol: str, lo: int | None, hi: int | None) -> Facts:
        ranges = {**self.ranges, self.equal.get(symbol, symbol): Range(lo, hi)}
        return replace(self, ranges=ranges)

    def with_divisor(self, symbol: str, divisor: int) -> Facts:
        divisors = {**self.divisors, self.equal.get(symbol, symbol): divisor}
        return replace(self, divisors=divisors)

    def range_of(self, symbol: str) -> Range:
        """The range of a symbol, its ends moved to multiples of its divisor."""
        known = self.ranges.get(symbol, self.default)
        divisor = self.divisors.get(symbol, 1)
        if divisor <= 1:
            return known
        lo = None if known.lo is None else -(-known.lo // divisor) * divisor
        hi = None if known.hi is None else known.hi // divisor * divisor
        if lo is not None and hi is not None and lo > hi:
            return known
        return Range(lo, hi)

    # --- questions -----------------------------------------------------------------------------

    def bounds(self, dim: Dim) -> Range:
        """A range that holds every value of `dim`; exact for one symbol with a factor."""
        value = dim.as_int()
        if value is not None:
            return Range(value, value)
        return _to_range(self._interval(self._pinned(dim), _DEPTH))

    def compare(self, op: str, left: Dim, right: Dim) -> Truth:
        """`op` is one of `== != < <= > >=`."""
        if op == "!=":
            return ~self._is_zero(left - right)
        if op == "==":
            return self._is_zero(left - right)
        if op in (">", ">="):
            left, right, op = right, left, "<" if op == ">" else "<="
        return self._at_most(left - right, -1 if op == "<" else 0)

    def divisible(self, dim: Dim, divisor: int | Dim) -> Truth:
        """Is `dim` a multiple of `divisor`? UNKNOWN for a divisor of 0."""
        number = divisor.as_int() if isinstance(divisor, Dim) else divisor
        if number is None:
            return self._divisible_by_dim(dim, divisor)
        if number == 0:
            return Truth.UNKNOWN
        return self._divisible(self._pinned(dim), abs(number))

    # --- comparison ----------------------------------------------------------------------------

    def _at_most(self, difference: Dim, limit: int) -> Truth:
        value = difference.as_int()
        if value is not None:
            return Truth.of(value <= limit)
        bounds = self.bounds(difference)
        if bounds.hi is not None and bounds.hi <= limit:
            return Truth.TRUE
        if bounds.lo is not None and bounds.lo > limit:
            return Truth.FALSE
        return Truth.UNKNOWN

    def _is_zero(self, difference: Dim) -> Truth:
        value = difference.as_int()
        if value is not None:
            return Truth.of(value == 0)
        pinned = self._pinned(difference)
        bounds = self.bounds(pinned)
        if not bounds.contains(0):
            return Truth.FALSE
        if bounds.single == 0:
            return Truth.TRUE
        if pinned.constant % self._common_divisor(pinned):
            return Truth.FALSE
        remainder = _as_remainder(pinned)
        return Truth.UNKNOWN if remainder is None else self._divisible(*remainder)

    # --- divisibility --------------------------------------------------------------------------

    def _divisible_by_dim(self, dim: Dim, divisor: int | Dim) -> Truth:
        pinned = self._pinned(divisor if isinstance(divisor, Dim) else Dim.const(divisor))
        number = pinned.as_int()
        if number is not None:
            return self.divisible(dim, number)
        exact = self._pinned(dim).exact_div(pinned)
        if exact is None or self.bounds(pinned).contains(0):
            return Truth.UNKNOWN
        return Truth.TRUE

    def _divisible(self, dim: Dim, divisor: int) -> Truth:
        value = dim.as_int()
        if value is not None:
            return Truth.of(value % divisor == 0)
        common = gcd(self._common_divisor(dim), divisor)
        if dim.constant % common:
            return Truth.FALSE
        if common == divisor:
            return Truth.TRUE
        bounds = self.bounds(dim)
        if _has_no_multiple(bounds, divisor):
            return Truth.FALSE
        affine = _as_affine(dim)
        return Truth.UNKNOWN if affine is None else self._affine_divisible(*affine, divisor)

    def _affine_divisible(self, factor: int, symbol: str, offset: int, divisor: int) -> Truth:
        """`factor * symbol + offset` modulo `divisor`; a solution exists among all integers."""
        step = self.divisors.get(symbol, 1)
        known = self.range_of(symbol)
        if known.lo is None or known.hi is None:
            return Truth.UNKNOWN
        factor *= step
        lo, hi = -(-known.lo // step), known.hi // step
        common = gcd(factor, divisor)
        period = divisor // common
        if period == 1:
            return Truth.of(offset % divisor == 0)
        solution = -offset // common * pow(factor // common, -1, period) % period
        return Truth.FALSE if lo + (solution - lo) % period > hi else Truth.UNKNOWN

    def _common_divisor(self, dim: Dim) -> int:
        """A number that divides every term but the constant; 1 if nothing else is known."""
        return gcd(*(c * self._monomial_divisor(m) for m, c in dim.terms if m)) or 1

    def _content(self, dim: Dim) -> int:
        """A number that divides `dim`; 0 for zero."""
        return gcd(*(c * self._monomial_divisor(m) for m, c in dim.terms))

    def _monomial_divisor(self, monomial: Monomial) -> int:
        product = 1
        for atom in monomial:
            product *= self._atom_divisor(atom)
        return product

    def _atom_divisor(self, atom: Atom) -> int:
        if atom.kind == "symbol":
            return self.divisors.get(atom.key, 1)
        contents = [self._content(arg) for arg in atom.args]
        if atom.kind != "floor_div":  # both operands' divisors carry over to mod, max and min
            return gcd(*contents) or 1
        divisor = atom.args[1].as_int()
        if divisor is None or contents[0] % divisor:
            return 1
        return contents[0] // divisor or 1

    # --- bounds --------------------------------------------------------------------------------

    def _pinned(self, dim: Dim) -> Dim:
        """`dim` with symbols replaced by the only value that is left, or by what they equal."""
        values: dict[str, Dim | int] = {}
        for symbol in dim.symbols():
            same = self.equal.get(symbol, symbol)
            single = self.range_of(same).single
            if single is not None:
                values[symbol] = single
            elif same is not symbol:
                values[symbol] = Dim.symbol(same)
        if not values:
            return dim
        try:
            return dim.substitute(values)
        except ZeroDivisionError:
            return dim

    def _interval(self, dim: Dim, depth: int) -> _Interval:
        best = _plain_interval(self, dim, depth)
        if depth == 0 or not 2 <= len(dim.terms) <= _MOST_TERMS:
            return best
        for rewritten, scale in _rewritings(dim):
            best = _narrowed(best, _divided(self._interval(rewritten, depth - 1), scale))
        for atom in _shared_atoms(dim):
            quotient, rest = _by_atom(dim, atom)
            product = _times(self._atom_interval(atom, depth), self._interval(quotient, depth - 1))
            best = _narrowed(best, _plus(product, self._interval(rest, depth - 1)))
        return best

    def _atom_interval(self, atom: Atom, depth: int) -> _Interval:
        if atom.kind == "symbol":
            known = self.range_of(atom.key)
            return known.lo, known.hi
        args = [self._interval(arg, depth) for arg in atom.args]
        if atom.kind == "max":
            return _highest([lo for lo, _ in args]), _highest_known([hi for _, hi in args])
        if atom.kind == "min":
            return _lowest_known([lo for lo, _ in args]), _lowest([hi for _, hi in args])
        if atom.kind == "floor_div":
            return _floor_interval(args[0], args[1])
        return self._mod_interval(atom, args)

    def _mod_interval(self, atom: Atom, args: list[_Interval]) -> _Interval:
        (lo, hi), (divisor_lo, divisor_hi) = args
        if divisor_lo is None or divisor_lo < 1:
            return None, None
        if lo is not None and hi is not None and lo >= 0 and hi < divisor_lo:
            return lo, hi
        divisor = atom.args[1].as_int()
        if divisor is None:
            highest = None if divisor_hi is None else divisor_hi - 1
            return 0, _lowest([highest, hi]) if lo is not None and lo >= 0 else highest
        if lo is not None and hi is not None and lo // divisor == hi // divisor:
            return lo % divisor, hi % divisor
        # a remainder keeps the residue of its argument modulo what divides both
        step = gcd(divisor, self._common_divisor(atom.args[0]))
        residue = atom.args[0].constant % step
        return residue, divisor - step + residue


NO_FACTS = Facts()

# --- shapes of polynomials ---------------------------------------------------------------------


def _as_affine(dim: Dim) -> tuple[int, str, int] | None:
    """`(factor, symbol, offset)` of `factor * symbol + offset`."""
    symbolic = [term for term in dim.terms if term[0]]
    if len(symbolic) != 1 or len(symbolic[0][0]) != 1:
        return None
    atom = symbolic[0][0][0]
    return (symbolic[0][1], atom.key, dim.constant) if atom.kind == "symbol" else None


def _as_remainder(difference: Dim) -> tuple[Dim, int] | None:
    """`(a - r, n)` where `difference == 0` says `a % n == r`."""
    symbolic = [term for term in difference.terms if term[0]]
    if len(symbolic) != 1 or len(symbolic[0][0]) != 1:
        return None
    atom, factor = symbolic[0][0][0], symbolic[0][1]
    if atom.kind != "mod" or difference.constant % factor:
        return None
    divisor = atom.args[1].as_int()
    remainder = -difference.constant // factor
    if divisor is None or not 0 <= remainder < divisor:
        return None
    return atom.args[0] - remainder, divisor


def _shared_atoms(dim: Dim) -> list[Atom]:
    """Atoms of more than one term: their values are correlated, which plain bounds ignore."""
    counts: dict[Atom, int] = {}
    for monomial, _ in dim.terms:
        for atom in set(monomial):
            counts[atom] = counts.get(atom, 0) + 1
    return sorted((a for a, n in counts.items() if n > 1), key=lambda a: a.key)[:4]


def _by_atom(dim: Dim, atom: Atom) -> tuple[Dim, Dim]:
    """`dim` as `atom * quotient + rest`."""
    quotient: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in dim.terms:
        if atom in monomial:
            at = monomial.index(atom)
            quotient.append((monomial[:at] + monomial[at + 1 :], coefficient))
        else:
            rest.append((monomial, coefficient))
    return _sum(quotient), _sum(rest)


def _sum(terms: list[tuple[Monomial, int]]) -> Dim:
    total = ZERO
    for monomial, coefficient in terms:
        total = total + Dim(((monomial, coefficient),))
    return total


def _rewritings(dim: Dim) -> list[tuple[Dim, int]]:
    """`dim` times a number, with a quotient written by its remainder or the other way round."""
    found: list[tuple[Dim, int]] = []
    for monomial, factor in dim.terms:
        if len(monomial) != 1 or monomial[0].kind not in ("floor_div", "mod"):
            continue
        numerator, divisor = monomial[0].args
        number = divisor.as_int()
        if number is None:
            continue
        rest = dim - Dim(((monomial, factor),))
        try:
            if monomial[0].kind == "floor_div":
                found.append((rest * number + (numerator - numerator % number) * factor, number))
            else:
                found.append((rest + (numerator - numerator // number * number) * factor, 1))
        except DimTooComplex:
            continue
    return found[:4]


def _has_no_multiple(bounds: Range, divisor: int) -> bool:
    if bounds.lo is None or bounds.hi is None:
        return False
    return -(-bounds.lo // divisor) * divisor > bounds.hi


# --- intervals ---------------------------------------------------------------------------------

_Interval = tuple[int | None, int | None]


def _to_range(interval: _Interval) -> Range:
    lo, hi = interval
    # contradictory facts leave nothing: any answer is then vacuously true
    return Range(lo, max(lo, hi)) if lo is not None and hi is not None else Range(lo, hi)


def _plain_interval(facts: Facts, dim: Dim, depth: int) -> _Interval:
    total: _Interval = (0, 0)
    for monomial, coefficient in dim.terms:
        term: _Interval = (coefficient, coefficient)
        for atom in dict.fromkeys(monomial):
            base = facts._atom_interval(atom, depth)
            term = _times(term, _power(base, monomial.count(atom)))
        total = _plus(total, term)
    return total


def _plus(a: _Interval, b: _Interval) -> _Interval:
    lo = None if a[0] is None or b[0] is None else a[0] + b[0]
    hi = None if a[1] is None or b[1] is None else a[1] + b[1]
    return lo, hi


def _times(a: _Interval, b: _Interval) -> _Interval:
    corners = [
        _end_product(x, x_sign, y, y_sign)
        for x, x_sign in zip(a, (-1, 1), strict=True)
        for y, y_sign in zip(b, (-1, 1), strict=True)
    ]
    finite = [value for value, _ in corners if value is not None]
    lo = None if any(v is None and s < 0 for v, s in corners) else min(finite, default=None)
    hi = None if any(v is None and s > 0 for v, s in corners) else max(finite, default=None)
    return lo, hi


def _end_product(x: int | None, x_side: int, y: int | None, y_side: int) -> tuple[int | None, int]:
    """The product of two interval ends, None with its sign where infinite (0 times that is 0)."""
    if x is not None and y is not None:
        return x * y, 0
    x_sign = x_side if x is None else (x > 0) - (x < 0)
    y_sign = y_side if y is None else (y > 0) - (y < 0)
    sign = x_sign * y_sign
    return (None, sign) if sign else (0, 0)


def _power(base: _Interval, exponent: int) -> _Interval:
    if exponent == 1:
        return base
    lo, hi = base
    low = None if lo is None else lo**exponent
    high = None if hi is None else hi**exponent
    if exponent % 2 or (lo is not None and lo >= 0):
        return low, high
    if hi is not None and hi <= 0:
        return high, low
    return 0, _highest_known([low, high])


def _divided(interval: _Interval, scale: int) -> _Interval:
    lo, hi = interval
    return None if lo is None else -(-lo // scale), None if hi is None else hi // scale


def _narrowed(a: _Interval, b: _Interval) -> _Interval:
    return _highest([a[0], b[0]]), _lowest([a[1], b[1]])


def _floor_interval(numerator: _Interval, divisor: _Interval) -> _Interval:
    (lo, hi), (divisor_lo, divisor_hi) = numerator, divisor
    if divisor_lo is None or divisor_lo < 1:
        return None, None
    # the quotient shrinks towards 0 (or -1) as the divisor grows, so an end is at either end
    smallest = None if lo is None else min(lo // divisor_lo, _floor(lo, divisor_hi))
    largest = None if hi is None else max(hi // divisor_lo, _floor(hi, divisor_hi))
    return smallest, largest


def _floor(value: int, divisor: int | None) -> int:
    if divisor is None:
        return 0 if value >= 0 else -1
    return value // divisor


def _highest(bounds: list[int | None]) -> int | None:
    """The strongest lower bound, None where there is none."""
    return max((b for b in bounds if b is not None), default=None)


def _lowest(bounds: list[int | None]) -> int | None:
    """The strongest upper bound, None where there is none."""
    return min((b for b in bounds if b is not None), default=None)


def _highest_known(bounds: list[int | None]) -> int | None:
    """The upper bound of a maximum: every argument needs one."""
    return None if None in bounds else _highest(bounds)


def _lowest_known(bounds: list[int | None]) -> int | None:
    """The lower bound of a minimum: every argument needs one."""
    return None if None in bounds else _lowest(bounds)
