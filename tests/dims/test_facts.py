"""Bounds, comparison and divisibility against every assignment the facts allow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusiondsl.dims import NO_FACTS, Dim, Facts, Range, Truth
from fusiondsl.dims.expr import Expr
from tests.dims.strategies import EXAMPLES, as_dim, assignments, facts, meaning, numbers

T, H, N = Dim.symbol("T"), Dim.symbol("H"), Dim.symbol("N")
OPS = ("==", "!=", "<", "<=", ">", ">=")
TEST = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _dim(expr: Expr) -> Dim | None:
    try:
        return as_dim(expr)
    except ZeroDivisionError:
        return None


def _values(known: Facts, *exprs: Expr) -> list[tuple[int, ...]]:
    found = []
    for values in assignments(known):
        try:
            found.append(tuple(int(meaning(expr, values)) for expr in exprs))
        except ZeroDivisionError:
            continue
    return found


def _truth(outcomes: set[bool]) -> Truth:
    return Truth.UNKNOWN if len(outcomes) == 2 else Truth.of(outcomes.pop())


@EXAMPLES
@given(facts(), numbers)
def test_bounds_hold_every_value(known: Facts, expr: Expr) -> None:
    dim = _dim(expr)
    if dim is None:
        return
    bounds = known.bounds(dim)
    assert all(bounds.contains(value) for (value,) in _values(known, expr))


@EXAMPLES
@given(facts(), numbers, numbers, st.sampled_from(OPS))
def test_comparison_is_never_wrong(known: Facts, a: Expr, b: Expr, op: str) -> None:
    left, right = _dim(a), _dim(b)
    if left is None or right is None:
        return
    answer = known.compare(op, left, right)
    outcomes = {TEST[op](x, y) for x, y in _values(known, a, b)}
    assert answer is Truth.UNKNOWN or outcomes <= {answer is Truth.TRUE}


@EXAMPLES
@given(facts(), numbers, st.integers(-9, 16).filter(bool))
def test_divisibility_is_never_wrong(known: Facts, expr: Expr, divisor: int) -> None:
    dim = _dim(expr)
    if dim is None:
        return
    answer = known.divisible(dim, divisor)
    outcomes = {value % divisor == 0 for (value,) in _values(known, expr)}
    assert answer is Truth.UNKNOWN or outcomes <= {answer is Truth.TRUE}


@EXAMPLES
@given(facts(), st.integers(-8, 8), st.integers(-20, 20), st.integers(-20, 20))
def test_one_affine_symbol_is_decided_exactly(known: Facts, a: int, b: int, c: int) -> None:
    dim, limit = a * T + b, Dim.const(c)
    values = sorted({a * v["T"] + b for v in assignments(known)})
    assert known.bounds(dim) == Range(values[0], values[-1])
    for op in OPS:
        assert known.compare(op, dim, limit) is _truth({TEST[op](v, c) for v in values})


@EXAMPLES
@given(facts(), st.integers(-8, 8), st.integers(-20, 20), st.integers(1, 16), st.integers(0, 15))
def test_one_affine_symbol_modulo_a_constant_is_decided_exactly(
    known: Facts, a: int, b: int, n: int, r: int
) -> None:
    dim = a * T + b
    values = {a * v["T"] + b for v in assignments(known)}
    assert known.divisible(dim, n) is _truth({v % n == 0 for v in values})
    assert known.compare("==", dim % n, Dim.const(r)) is _truth({v % n == r for v in values})


@pytest.mark.parametrize(
    ("dim", "bounds"),
    [
        (T * 4096 * 2, Range(8192, 134217728)),
        (T - 8 * (T // 8), Range(0, 7)),
        (T.round_up(8) - T, Range(0, 7)),
        (T - T // 8, Range(1, 14336)),
        (T * H - T, Range(0, None)),
        (T - T * H, Range(None, 0)),
        (H * H - 3, Range(-2, None)),
        (N * N, Range(0, None)),
        (N, Range()),
        (T % H, Range(0, 16384)),
        (H // T, Range(0, None)),
        (Dim.min(T, H), Range(1, 16384)),
        (Dim.max(T, H), Range(1, None)),
        (Dim.max(T, N), Range(1, None)),
        (Dim.min(H, N), Range(None, None)),
    ],
)
def test_bounds(dim: Dim, bounds: Range) -> None:
    known = NO_FACTS.with_range("T", 1, 16384).with_range("H", 1, None)
    assert known.bounds(dim) == bounds


def test_divisors() -> None:
    known = NO_FACTS.with_range("T", 1, 100).with_divisor("T", 8).with_divisor("H", 128)
    assert known.bounds(T) == Range(8, 96)
    assert known.divisible(T, 8) is Truth.TRUE
    assert known.divisible(T * H, 1024) is Truth.TRUE
    assert known.divisible(T + 4, 8) is Truth.FALSE
    assert known.divisible(H, 256) is Truth.UNKNOWN
    assert known.compare("==", H % 64, Dim.const(0)) is Truth.TRUE
    assert known.compare("==", T % 16, Dim.const(3)) is Truth.FALSE
    assert known.divisible(T // 2, 4) is Truth.TRUE
    assert known.divisible(T * H, H) is Truth.UNKNOWN  # H may be 0
    assert known.with_range("H", 1, None).divisible(T * H, H) is Truth.TRUE
    assert known.divisible(T, 0) is Truth.UNKNOWN
    assert known.divisible(Dim.const(9), 3) is Truth.TRUE


def test_default_range() -> None:
    assert Facts(default=Range(1, None)).compare(">=", T * H, Dim.const(1)) is Truth.TRUE
    assert NO_FACTS.compare(">=", T, Dim.const(1)) is Truth.UNKNOWN


def test_a_symbol_with_one_value_left_is_that_value() -> None:
    known = NO_FACTS.with_range("T", 7, 7)
    assert known.bounds(T * T // 8) == Range(6, 6)
    assert known.divisible(T * H * 2, 14) is Truth.TRUE
    assert known.compare("==", T % 4, Dim.const(3)) is Truth.TRUE


def test_range_text() -> None:
    texts = [str(r) for r in (Range(), Range(1, None), Range(None, 7), Range(3, 3), Range(1, 9))]
    assert texts == ["unbounded", "at least 1", "at most 7", "3", "1..9"]


def test_range_meet_and_emptiness() -> None:
    assert Range(1, None).meet(Range(None, 9)) == Range(1, 9)
    assert Range(1, 5).meet(Range(3, 9)) == Range(3, 5)
    with pytest.raises(ValueError, match=r"empty range 2\.\.1"):
        Range(2, 1)


def test_a_long_polynomial_stays_cheap() -> None:
    dim = Dim.const(0)
    for index in range(200):
        dim = dim + Dim.symbol(f"x{index}") * T
    known = Facts(default=Range(1, 2))
    assert known.bounds(dim) == Range(200, 800)
    assert math.isfinite(known.bounds(dim // 8).hi or 0)


def test_symbols_that_are_another_one() -> None:
    known = Facts({"T": Range(8, 100)}, equal={"S": "T"}).with_divisor("S", 8)
    S = Dim.symbol("S")  # noqa: N806
    assert known.compare("==", S, T) is Truth.TRUE
    assert known.compare("==", 2 * S + H, H + 2 * T) is Truth.TRUE
    assert known.compare("==", S, H) is Truth.UNKNOWN
    assert known.compare("<=", S, Dim.const(100)) is Truth.TRUE
    assert known.divisible(S * H, 8) is Truth.TRUE
    assert known.with_range("S", 8, 8).compare("==", T, Dim.const(8)) is Truth.TRUE
