"""`Dim`: a normalised symbolic integer, the size of a tensor dimension or a scalar over sizes.

A `Dim` is a polynomial with integer coefficients over *atoms*: symbols, and the operations that
are no polynomials (`//`, `%`, `max`, `min`). Equal normal forms are equal numbers; different normal
forms may still be equal, which is for `facts` to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd
from operator import attrgetter
from typing import TypeAlias

MAX_TERMS = 1000
"""A polynomial with more terms is refused: no real shape has them, a hostile rule file might."""


class DimTooComplex(ArithmeticError):
    """An expression whose normal form has more than `MAX_TERMS` terms."""


class Atom:
    """What a polynomial is over; `args` is empty for symbols. Identified by its text."""

    __slots__ = ("_hash", "args", "key", "kind")

    def __init__(self, kind: str, key: str, args: tuple[Dim, ...]) -> None:
        self.kind = kind
        """`symbol`, `floor_div`, `mod`, `max` or `min`."""
        self.key = key
        self.args = args
        self._hash = hash(key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Atom({self.key})"

    def __reduce__(self) -> tuple[type[Atom], tuple[str, str, tuple[Dim, ...]]]:
        return Atom, (self.kind, self.key, self.args)


Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms, sorted by key; a power repeats its atom. The empty product is 1."""

_by_key = attrgetter("key")


class Dim:
    """An immutable, hashable symbolic integer; equal to a plain `int` when it is that constant."""

    __slots__ = ("_hash", "_text", "_value", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    """Highest degree first, the constant last; no coefficient is 0."""

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._value: int | None = None
        if not terms:
            self._value = 0
        elif not terms[0][0]:
            self._value = terms[0][1]
        self._hash: int | None = None
        self._text: str | None = None

    # --- construction --------------------------------------------------------------------------

    @staticmethod
    def const(value: int) -> Dim:
        return _small_const(value) if -1 <= value <= 4096 else _new_const(value)

    @staticmethod
    def symbol(name: str) -> Dim:
        return _symbol(name)

    @staticmethod
    def max(*items: Dim | int) -> Dim:
        return _extremum("max", items)

    @staticmethod
    def min(*items: Dim | int) -> Dim:
        return _extremum("min", items)

    @staticmethod
    def product(items: Iterable[Dim | int]) -> Dim:
        result: Dim = ONE
        for item in items:
            result = result * item
        return result

    # --- questions -----------------------------------------------------------------------------

    def as_int(self) -> int | None:
        """The value of a constant, None of anything else."""
        return self._value

    def as_symbol(self) -> str | None:
        """The name when this is one bare symbol."""
        if len(self.terms) != 1:
            return None
        monomial, coefficient = self.terms[0]
        if coefficient != 1 or len(monomial) != 1 or monomial[0].kind != "symbol":
            return None
        return monomial[0].key

    def symbols(self) -> frozenset[str]:
        """Every symbol in it, those inside atoms included."""
        found: set[str] = set()
        for atom in self.atoms():
            if atom.kind == "symbol":
                found.add(atom.key)
            for arg in atom.args:
                found |= arg.symbols()
        return frozenset(found)

    def atoms(self) -> frozenset[Atom]:
        """The atoms of the polynomial itself, not those inside them."""
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    @property
    def constant(self) -> int:
        """The constant term."""
        if not self.terms or self.terms[-1][0]:
            return 0
        return self.terms[-1][1]

    # --- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Dim | int) -> Dim:
        right = _dim(other)
        if self._value is not None and right._value is not None:
            return Dim.const(self._value + right._value)
        if right._value == 0:
            return self
        if self._value == 0:
            return right
        terms = dict(self.terms)
        for monomial, coefficient in right.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _from_terms(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self._scaled(-1)

    def __sub__(self, other: Dim | int) -> Dim:
        right = _dim(other)
        if self is right:
            return ZERO
        return self + right._scaled(-1)

    def __rsub__(self, other: int) -> Dim:
        return _dim(other) - self

    def __mul__(self, other: Dim | int) -> Dim:
        right = _dim(other)
        if right._value is not None:
            return self._scaled(right._value)
        if self._value is not None:
            return right._scaled(self._value)
        if len(self.terms) * len(right.terms) > MAX_TERMS:
            raise DimTooComplex(f"a dimension with over {MAX_TERMS} terms")
        terms: dict[Monomial, int] = {}
        for left_monomial, left_coefficient in self.terms:
            for right_monomial, right_coefficient in right.terms:
                monomial = tuple(sorted(left_monomial + right_monomial, key=_by_key))
                added = left_coefficient * right_coefficient
                terms[monomial] = terms.get(monomial, 0) + added
        return _from_terms(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim | int) -> Dim:
        right = _dim(other)
        if right._value is not None:
            return _floor_div_const(self, right._value)
        exact = self.exact_div(right)
        return exact if exact is not None else _atom_dim("floor_div", (self, right))

    def __rfloordiv__(self, other: int) -> Dim:
        return _dim(other) // self

    def __mod__(self, other: Dim | int) -> Dim:
        right = _dim(other)
        if right._value is not None:
            return _mod_const(self, right._value)
        exact = self.exact_div(right)
        return ZERO if exact is not None else _atom_dim("mod", (self, right))

    def __rmod__(self, other: int) -> Dim:
        return _dim(other) % self

    def ceil_div(self, other: Dim | int) -> Dim:
        """The quotient rounded up."""
        right = _dim(other)
        if right._value is not None and right._value > 0:
            return (self + (right._value - 1)) // right
        return -((-self) // right)

    def round_up(self, other: Dim | int) -> Dim:
        """The next multiple of `other`."""
        return self.ceil_div(other) * other

    def exact_div(self, other: Dim | int) -> Dim | None:
        """The quotient if it is whole whatever the symbols are, else None."""
        right = _dim(other)
        if right._value is not None:
            return self._divided(right._value)
        return _polynomial_quotient(self, right)

    def substitute(self, values: Mapping[str, Dim | int]) -> Dim:
        """With symbols replaced; raises ZeroDivisionError where that makes a divisor 0."""
        if self._value is not None:
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            term = Dim.const(coefficient)
            for atom in monomial:
                term = term * _substituted(atom, values)
            total = total + term
        return total

    def _scaled(self, factor: int) -> Dim:
        if factor == 1:
            return self
        if self._value is not None:
            return Dim.const(self._value * factor)
        if factor == 0:
            return ZERO
        return Dim(tuple((monomial, c * factor) for monomial, c in self.terms))

    def _divided(self, divisor: int) -> Dim | None:
        if divisor == 0 or any(c % divisor for _, c in self.terms):
            return None
        if self._value is not None:
            return Dim.const(self._value // divisor)
        return Dim(tuple((monomial, c // divisor) for monomial, c in self.terms))

    # --- identity ------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            if self._value is not None:
                return self._value == other._value
            return self.terms == other.terms
        if isinstance(other, int):
            return self._value == other
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms) if self._value is None else hash(self._value)
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError("a Dim has no truth value: compare it with Facts, or use as_int()")

    def __reduce__(self) -> tuple[type[Dim], tuple[tuple[tuple[Monomial, int], ...]]]:
        return Dim, (self.terms,)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self.terms)
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self})"


# --- helpers -----------------------------------------------------------------------------------


def _new_const(value: int) -> Dim:
    return Dim((((), value),)) if value else Dim(())


@lru_cache(maxsize=8192)
def _small_const(value: int) -> Dim:
    # int() so that a bool does not become the cached constant
    return _new_const(int(value))


@lru_cache(maxsize=8192)
def _symbol(name: str) -> Dim:
    return Dim((((Atom("symbol", name, ()),), 1),))


ZERO = Dim.const(0)
ONE = Dim.const(1)


def _dim(value: Dim | int) -> Dim:
    return value if isinstance(value, Dim) else Dim.const(value)


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    # Graded lexicographic: a monomial order, which `_polynomial_quotient` relies on.
    monomial = term[0]
    return -len(monomial), tuple(atom.key for atom in monomial)


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = [term for term in terms.items() if term[1]]
    if not kept:
        return ZERO
    if len(kept) > MAX_TERMS:
        raise DimTooComplex(f"a dimension with over {MAX_TERMS} terms")
    if len(kept) > 1:
        kept.sort(key=_order)
    return Dim(tuple(kept))


_OPERATORS = {"floor_div": "//", "mod": "%"}


def _atom_dim(kind: str, args: tuple[Dim, ...]) -> Dim:
    operator = _OPERATORS.get(kind)
    if operator is None:
        key = f"{kind}({', '.join(map(str, args))})"
    else:
        key = f" {operator} ".join(_operand_text(arg) for arg in args)
    return Dim((((Atom(kind, key, args),), 1),))


def _operand_text(dim: Dim) -> str:
    value = dim.as_int()
    bare = dim.as_symbol() is not None if value is None else value >= 0
    return str(dim) if bare else f"({dim})"


def _text(terms: tuple[tuple[Monomial, int], ...]) -> str:
    if not terms:
        return "0"
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
        return terms[0][0][0].key
    text = ""
    for monomial, coefficient in terms:
        sign = "-" if coefficient < 0 else "+"
        body = _term_text(monomial, abs(coefficient))
        if text:
            text += f" {sign} {body}"
        else:
            text = body if coefficient > 0 else f"-{body}"
    return text


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [f"({a.key})" if a.kind in _OPERATORS else a.key for a in monomial]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return " * ".join(factors)


def _floor_div_const(dim: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisionError("division by zero")
    if divisor < 0:
        return _floor_div_const(-dim, -divisor)
    value = dim.as_int()
    if value is not None:
        return Dim.const(value // divisor)
    if divisor == 1:
        return dim
    whole, rest = _split(dim, divisor)
    if rest.as_int() is not None:
        return whole  # the constant is in 0..divisor-1
    common = gcd(divisor, *(c for m, c in rest.terms if m))
    if common > 1:
        rest, divisor = _reduced(rest, common), divisor // common
        return whole + _floor_div_const(rest, divisor)
    inner = _inner_floor_div(rest)
    if inner is not None:
        numerator, inner_divisor = inner
        joined = numerator + rest.constant * inner_divisor
        return whole + _floor_div_const(joined, divisor * inner_divisor)
    return whole + _atom_dim("floor_div", (rest, Dim.const(divisor)))


def _split(dim: Dim, divisor: int) -> tuple[Dim, Dim]:
    """`dim` as `divisor * whole + rest`: what of a sum divides evenly leaves the quotient.

    Coefficients are truncated towards 0, which keeps `-T` small; the constant is made positive,
    which makes `(T - 1) // 8` and `(T + 7) // 8 - 1` one form.
    """
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in dim.terms:
        quotient = coefficient // divisor
        if monomial and coefficient < 0:
            quotient = -(-coefficient // divisor)
        whole[monomial] = quotient
        rest[monomial] = coefficient - quotient * divisor
    return _from_terms(whole), _from_terms(rest)


def _reduced(rest: Dim, common: int) -> Dim:
    """`floor(rest / common)` where `common` divides every coefficient but the constant."""
    return _from_terms({m: c // common for m, c in rest.terms})


def _inner_floor_div(rest: Dim) -> tuple[Dim, int] | None:
    """`(a, m)` where `rest` is `a // m` plus a constant."""
    symbolic = [term for term in rest.terms if term[0]]
    if len(symbolic) != 1 or symbolic[0][1] != 1 or len(symbolic[0][0]) != 1:
        return None
    atom = symbolic[0][0][0]
    if atom.kind != "floor_div":
        return None
    divisor = atom.args[1].as_int()
    return None if divisor is None else (atom.args[0], divisor)


def _mod_const(dim: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisionError("division by zero")
    if divisor < 0:
        return -_mod_const(-dim, -divisor)
    value = dim.as_int()
    if value is not None:
        return Dim.const(value % divisor)
    rest = _from_terms({m: c % divisor for m, c in dim.terms})
    if rest.as_int() is not None:
        return rest
    common = gcd(divisor, *(c for m, c in rest.terms if m))
    if common > 1:
        inner = _mod_const(_reduced(rest, common), divisor // common)
        return inner * common + rest.constant % common
    return _atom_dim("mod", (rest, Dim.const(divisor)))


def _polynomial_quotient(dividend: Dim, divisor: Dim) -> Dim | None:
    lead_monomial, lead_coefficient = divisor.terms[0]
    quotient = ZERO
    rest = dividend
    while rest.terms:
        monomial, coefficient = rest.terms[0]
        factor = _monomial_quotient(monomial, lead_monomial)
        if factor is None or coefficient % lead_coefficient:
            return None
        term = Dim(((factor, coefficient // lead_coefficient),))
        quotient = quotient + term
        rest = rest - term * divisor
    return quotient


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    if len(divisor) > len(monomial):
        return None
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _substituted(atom: Atom, values: Mapping[str, Dim | int]) -> Dim:
    if atom.kind == "symbol":
        value = values.get(atom.key)
        return _symbol(atom.key) if value is None else _dim(value)
    args = tuple(arg.substitute(values) for arg in atom.args)
    if atom.kind == "floor_div":
        return args[0] // args[1]
    if atom.kind == "mod":
        return args[0] % args[1]
    return _extremum(atom.kind, args)


def _extremum(kind: str, items: Iterable[Dim | int]) -> Dim:
    kept: list[Dim] = []
    for item in _flattened(kind, items):
        _keep_extreme(kind, kept, item)
    if not kept:
        raise TypeError(f"{kind}() of nothing")
    if len(kept) == 1:
        return kept[0]
    return _atom_dim(kind, tuple(sorted(kept, key=str)))


def _flattened(kind: str, items: Iterable[Dim | int]) -> Iterable[Dim]:
    for item in items:
        dim = _dim(item)
        monomial = dim.terms[0][0] if len(dim.terms) == 1 and dim.terms[0][1] == 1 else ()
        if len(monomial) == 1 and monomial[0].kind == kind:
            yield from monomial[0].args
        else:
            yield dim


def _keep_extreme(kind: str, kept: list[Dim], item: Dim) -> None:
    """Adds `item` unless one kept is known to be more extreme; drops those it is known to beat."""
    for other in tuple(kept):
        difference = (item - other).as_int()
        if difference is None:
            continue
        wins = difference > 0 if kind == "max" else difference < 0
        if not wins:
            return
        kept.remove(other)
    kept.append(item)
