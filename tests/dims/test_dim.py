"""`Dim` is integer arithmetic: its normal forms never change a value."""

from __future__ import annotations

import pickle
import subprocess
import sys
from copy import deepcopy

import pytest
from hypothesis import given

from fusiondsl.dims import NO_FACTS, Dim, DimTooComplex
from fusiondsl.dims.expr import Expr
from tests.dims.strategies import EXAMPLES, as_dim, assignments, meaning, numbers

T, H, N = Dim.symbol("T"), Dim.symbol("H"), Dim.symbol("N")
SMALL = NO_FACTS.with_range("T", -3, 5).with_range("H", -2, 3).with_range("N", 1, 3)


def _value(dim: Dim, values: dict[str, int]) -> int | None:
    return dim.substitute(values).as_int()


@EXAMPLES
@given(numbers)
def test_operators_agree_with_integers(expr: Expr) -> None:
    try:
        dim = as_dim(expr)
    except ZeroDivisionError:
        return
    for values in assignments(SMALL):
        try:
            expected = meaning(expr, values)
        except ZeroDivisionError:
            continue
        assert _value(dim, values) == expected


@EXAMPLES
@given(numbers, numbers)
def test_an_exact_quotient_times_the_divisor_is_the_dividend(a: Expr, b: Expr) -> None:
    try:
        factor, divisor = as_dim(a), as_dim(b)
    except ZeroDivisionError:
        return
    if divisor == 0:
        return
    product = factor * divisor
    assert product.exact_div(divisor) == factor
    rest = (product + 1).exact_div(divisor)
    assert rest is None or rest * divisor == product + 1


@EXAMPLES
@given(numbers)
def test_text_and_pickle_are_faithful(expr: Expr) -> None:
    try:
        dim = as_dim(expr)
    except ZeroDivisionError:
        return
    copy = pickle.loads(pickle.dumps(dim))
    assert copy == dim
    assert hash(copy) == hash(dim)
    assert str(copy) == str(dim)
    assert deepcopy(dim) == dim


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim.const(0), "0"),
        (Dim.const(-3), "-3"),
        (T, "T"),
        (-T, "-T"),
        (T * 4096 + 8 - H, "-H + 4096 * T + 8"),
        (T * H * 2 - T * T, "2 * H * T - T * T"),
        ((T - 1) // 8, "((T + 7) // 8) - 1"),
        (T.ceil_div(8) * 8, "8 * ((T + 7) // 8)"),
        (T.ceil_div(N), "-((-T) // N)"),
        ((T + 1) % H, "(T + 1) % H"),
        (Dim.max(T, 1, T + 2), "max(1, T + 2)"),
        (Dim.min(H, Dim.min(T, 4)), "min(4, H, T)"),
    ],
)
def test_text(dim: Dim, text: str) -> None:
    assert str(dim) == text


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((T + T) // 2, T),
        ((4 * T + 7) // 8, (T + 1) // 2),
        ((T // 4) // 8, T // 32),
        ((T // 4 + 3) // 8, (T + 12) // 32),
        ((T * H + H) // H, T + 1),
        ((T * H + H) % H, Dim.const(0)),
        ((12 * T) % 8, 4 * (T % 2)),
        ((T + 9) % 8, (T + 1) % 8),
        (T.round_up(1), T),
        (T // -1, -T),
        ((T + H) * (T - H), T * T - H * H),
        (Dim.product([2, T, H]), H * T * 2),
    ],
)
def test_equal_normal_forms(left: Dim, right: Dim) -> None:
    assert left == right
    assert hash(left) == hash(right)


def test_constants_are_their_integer() -> None:
    assert Dim.const(7) == 7
    assert hash(Dim.const(7)) == hash(7)
    assert Dim.const(100_000).as_int() == 100_000
    assert Dim.const(True).as_int() == 1
    assert str(Dim.const(True)) == "1"
    assert T != 7
    assert T.as_int() is None
    assert 3 - T == -(T - 3)
    assert 2 // Dim.const(2) == 1
    assert 7 % Dim.const(4) == 3


def test_what_it_is() -> None:
    assert T.as_symbol() == "T"
    assert (2 * T).as_symbol() is None
    assert (T // 8 + T.ceil_div(H)).symbols() == {"T", "H"}
    assert (T + 7).constant == 7
    assert T.constant == 0


def test_exact_division() -> None:
    assert (8 * T + 16).exact_div(8) == T + 2
    assert (8 * T + 4).exact_div(8) is None
    assert ((T + H) * 128).exact_div(T + H) == 128
    assert (T * H).exact_div(H) == T
    assert T.exact_div(H) is None
    assert T.exact_div(0) is None
    assert Dim.const(0).exact_div(T) == 0


def test_division_by_zero_is_an_error() -> None:
    for act in (lambda: T // 0, lambda: T % 0, lambda: (T // H).substitute({"H": 0})):
        with pytest.raises(ZeroDivisionError):
            act()


def test_it_is_neither_ordered_nor_a_condition() -> None:
    with pytest.raises(TypeError):
        bool(T)
    with pytest.raises(TypeError):
        sorted([T, H])  # type: ignore[type-var]


def test_a_hostile_product_is_refused() -> None:
    with pytest.raises(DimTooComplex):
        Dim.product(Dim.symbol(f"a{i}") + Dim.symbol(f"b{i}") for i in range(20))


def test_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from fusiondsl.dims import Dim\n"
        "a, b, c = map(Dim.symbol, 'abc')\n"
        "print((a + b + c) * (c // 8 + b % 3) + Dim.max(a, b, c), sorted((a * b // c).symbols()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
