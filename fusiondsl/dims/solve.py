"""Binds dim names from the sizes of real tensors: linear equations, in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fusiondsl.dims.dim import ONE, Dim
from fusiondsl.dims.dtypes import is_dtype
from fusiondsl.dims.evaluate import Scope, evaluate
from fusiondsl.dims.expr import Binary, Expr, Name, Spread, Unary
from fusiondsl.dims.facts import NO_FACTS, Facts
from fusiondsl.dims.names import names
from fusiondsl.dims.render import render
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Invalid, Unknown, as_dim, kind_of

Equation: TypeAlias = tuple[Expr, Dim]
"""What the text says a size is, and the size found."""


@dataclass(frozen=True, slots=True)
class Solution:
    bound: Mapping[str, Dim]
    """The names that were not in the scope, in the order they were found."""
    unsolved: tuple[str, ...] = ()
    """Names the equations do not determine, sorted; equations with them are not checked."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    index: int
    """Of the equation."""
    expected: str
    """What the text says, with its value where that is known."""
    found: Dim
    differs: bool
    """True: certainly not equal. False: not provably equal."""

    @property
    def reason(self) -> str:
        if self.differs:
            return f"expected {self.expected}, found {self.found}"
        return f"expected {self.expected}, and {self.found} is not provably equal"


def solve(
    equations: Sequence[Equation], scope: Scope, facts: Facts = NO_FACTS
) -> Solution | Mismatch:
    """Binds what is unknown until nothing more follows, then everything known must be equal."""
    try:
        return _Solver(equations, scope, facts).run()
    except _Failed as failed:
        return failed.mismatch


_UNBOUND = "?"
"""Prefix of the symbols that stand for names to be bound; no real name has it."""

_Fraction: TypeAlias = tuple[Dim, Dim]
"""Numerator and denominator: `H / 32 = 128` has a solution for `H` that is whole by itself."""


class _Deferred(Exception):
    """An equation that is not linear in a name that is not bound yet."""


class _Failed(Exception):
    def __init__(self, mismatch: Mismatch) -> None:
        self.mismatch = mismatch


class _Solver:
    def __init__(self, equations: Sequence[Equation], scope: Scope, facts: Facts) -> None:
        self.equations = equations
        self.scope = scope
        self.facts = facts
        self.bound: dict[str, Dim] = {}
        self.eliminated: dict[str, Dim] = {}
        """Names given by others that are not bound yet, a system of equations at work."""

    def run(self) -> Solution:
        waiting = [i for i in range(len(self.equations)) if not self._bare(i)]
        linear: dict[int, Dim] = {}
        while waiting or linear:
            before = len(waiting) + len(linear)
            waiting = [index for index in waiting if not self._formed(index, linear)]
            linear = {i: r for i, r in linear.items() if not self._settled(i, r)}
            stuck = len(waiting) + len(linear) == before
            if stuck and not self._eliminate(linear):
                break
        self._substitute_back()
        return Solution(self.bound, self._unsolved())

    def _bare(self, index: int) -> bool:
        """The common case, a size that is just a name: bound or checked on the spot."""
        expr, found = self.equations[index]
        name = _bare_name(expr)
        if name is None:
            return False
        if name not in self.scope and name not in self.bound:
            self.bound[name] = found
            return True
        known = as_dim(self.scope.get(name, self.bound.get(name)))
        if known is None:
            return False
        if known != found:
            self._check(index, self.facts.compare("==", known, found))
        return True

    # --- one equation --------------------------------------------------------------------------

    def _formed(self, index: int, linear: dict[int, Dim]) -> bool:
        """Adds the equation to `linear` as an expression that must be 0, unless it has to wait."""
        expr, found = self.equations[index]
        try:
            numerator, denominator = self._fraction(expr, index)
        except _Deferred:
            return False
        linear[index] = numerator - found * denominator
        return True

    def _settled(self, index: int, residual: Dim) -> bool:
        """Binds the one unbound name of an equation, or checks one that has none."""
        residual = self._with_bound(residual)
        unbound = _unbound_in(residual)
        if not unbound:
            self._check(index, self.facts.compare("==", residual, Dim.const(0)))
            return True
        if len(unbound) > 1:
            return False
        (name,) = unbound
        parts = _linear_in(residual, name)
        if parts is None:
            return False
        self.bound[name] = self._quotient(index, -parts[1], parts[0])
        return True

    def _quotient(self, index: int, dividend: Dim, divisor: Dim) -> Dim:
        exact = dividend.exact_div(divisor)
        if exact is not None:
            return exact
        self._check(index, self.facts.divisible(dividend, divisor))
        return dividend // divisor

    def _check(self, index: int, holds: Truth) -> None:
        if holds is not Truth.TRUE:
            raise self._failure(index, differs=holds is Truth.FALSE)

    def _failure(self, index: int, *, differs: bool, message: str | None = None) -> _Failed:
        expr, found = self.equations[index]
        expected = render(expr) if message is None else f"{render(expr)} ({message})"
        value = evaluate(expr, {**self.scope, **self.bound}, self.facts)
        if message is None and isinstance(value, Dim) and str(value) != expected:
            expected = f"{expected} = {value}"
        return _Failed(Mismatch(index, expected, found, differs))

    # --- expressions as fractions --------------------------------------------------------------

    def _fraction(self, expr: Expr, index: int) -> _Fraction:
        name = _bare_name(expr)
        if name is not None and name not in self.scope:
            return self.bound.get(name, Dim.symbol(_UNBOUND + name)), ONE
        if isinstance(expr, Binary) and expr.op in ("+", "-", "*", "/"):
            left = self._fraction(expr.left, index)
            right = self._fraction(expr.right, index)
            return self._combined(expr.op, left, right, index)
        if isinstance(expr, Unary) and expr.op == "-":
            numerator, denominator = self._fraction(expr.operand, index)
            return -numerator, denominator
        return self._value(expr, index), ONE

    def _combined(self, op: str, left: _Fraction, right: _Fraction, index: int) -> _Fraction:
        (a, b), (c, d) = left, right
        if op == "*":
            return a * c, b * d
        if op == "/":
            if c == 0:
                raise self._failure(index, differs=True, message="division by zero")
            return a * d, b * c
        if b == d:
            return (a + c if op == "+" else a - c), b
        return (a * d + c * b if op == "+" else a * d - c * b), b * d

    def _value(self, expr: Expr, index: int) -> Dim:
        """An expression of which every name must be bound already."""
        scope = {**self.scope, **self.bound}
        if any(name not in scope for name in names(expr) if not is_dtype(name)):
            raise _Deferred
        value = evaluate(expr, scope, self.facts)
        if isinstance(value, Unknown):
            raise _Deferred
        dim = as_dim(value)
        if dim is None:
            message = value.message if isinstance(value, Invalid) else f"it is {kind_of(value)}"
            raise self._failure(index, differs=True, message=message)
        return dim

    # --- systems -------------------------------------------------------------------------------

    def _eliminate(self, linear: dict[int, Dim]) -> bool:
        """Expresses one name by the others, where an equation has it with a factor of 1 or -1."""
        for index, residual in linear.items():
            residual = self._with_bound(residual)
            for name in sorted(_unbound_in(residual)):
                parts = _linear_in(residual, name)
                if parts is None or parts[0].as_int() not in (1, -1):
                    continue
                self.eliminated[name] = -(parts[1] * parts[0])
                del linear[index]
                return True
        return False

    def _with_bound(self, residual: Dim) -> Dim:
        """With names replaced by what they are bound to, or by what they were eliminated for."""
        while True:
            values: dict[str, Dim | int] = {}
            for name in _unbound_in(residual):
                value = self.bound.get(name, self.eliminated.get(name))
                if value is not None:
                    values[_UNBOUND + name] = value
            if not values:
                return residual
            residual = residual.substitute(values)

    def _substitute_back(self) -> None:
        for name in reversed(self.eliminated):
            value = self._with_bound(self.eliminated[name])
            if not _unbound_in(value):
                self.bound[name] = value

    def _unsolved(self) -> tuple[str, ...]:
        wanted: set[str] = set()
        for expr, _ in self.equations:
            wanted |= {name for name in names(expr) if not is_dtype(name)}
        return tuple(sorted(wanted - self.scope.keys() - self.bound.keys()))


def _bare_name(expr: Expr) -> str | None:
    if isinstance(expr, Name):
        return expr.id
    return expr.name if isinstance(expr, Spread) else None


def _unbound_in(dim: Dim) -> frozenset[str]:
    if dim.as_int() is not None:
        return frozenset()
    symbols = dim.symbols()
    return frozenset(s.removeprefix(_UNBOUND) for s in symbols if s.startswith(_UNBOUND))


def _linear_in(residual: Dim, name: str) -> tuple[Dim, Dim] | None:
    """`(factor, rest)` where `residual` is `factor * name + rest` and both are free of it."""
    symbol = _UNBOUND + name
    without = residual.substitute({symbol: 0})
    factor = residual.substitute({symbol: 1}) - without
    if symbol in factor.symbols() or factor * Dim.symbol(symbol) + without != residual:
        return None
    return factor, without
