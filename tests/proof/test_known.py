"""Facts of conditions: what follows from them is true wherever they hold."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusiondsl.proof.known import Known
from fusiondsl.proof.size import ONE, Size, opaque

H, N, K = (Size.symbol(name) for name in "HNK")
EXTRA = Size.symbol("extra")


def number(value: int) -> Size:
    return Size.const(value)


def round_up(size: Size, multiple: Size) -> Size:
    return opaque("round_up", (size, multiple))


def test_what_a_function_gives_is_replaced() -> None:
    known = Known()
    known.assume_equal(round_up(H, number(128)), H + EXTRA)
    assert known.of(round_up(H, number(128)) - H) == EXTRA
    assert known.of(round_up(N, number(128))) == round_up(N, number(128))


def test_a_symbol_is_replaced() -> None:
    known = Known()
    known.assume_equal(N, H * number(4))
    known.assume_equal(H, K + ONE)
    assert known.of(N) == K * number(4) + number(4)


def test_equalities_that_say_nothing() -> None:
    known = Known()
    known.assume_equal(N, N)
    known.assume_equal(H * number(2), N * number(3))
    assert known.of(N) == N
    assert known.of(H) == H


@pytest.mark.parametrize(
    ("divisor", "size", "divides"),
    [
        (number(128), H, True),
        (number(64), H, True),
        (number(256), H, False),
        (number(128), H * K, True),
        (number(128), H + K, False),
        (number(128), H.over(number(2)), False),
        (number(128), N, False),
        (number(128), N * number(256), True),
        (K, N * K, True),
        (K, N, False),
        (ONE, N, True),
        (number(128), Size.symbol("table(H)") * number(128), False),
    ],
    ids=str,
)
def test_divisors(divisor: Size, size: Size | None, divides: bool) -> None:
    known = Known()
    known.assume_divides(number(128), H)
    assert size is not None
    assert known.divides(divisor, size) is divides


def test_signs() -> None:
    known = Known()
    assert known.is_natural(number(0))
    assert not known.is_natural(number(-1))
    assert not known.is_natural(EXTRA)
    known.assume_natural(EXTRA - ONE)
    assert known.is_natural(EXTRA)
    assert known.is_natural(EXTRA - ONE)
    assert not known.is_natural(EXTRA - number(2))
    assert not known.is_natural(-EXTRA)


NAMES = "abcd"
FUNCTIONS = ("round_up", "ceil_div", "//", "%", "max")
COMPUTE = {
    "round_up": lambda a, b: -(-a // b) * b,
    "ceil_div": lambda a, b: -(-a // b),
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
}


class World:
    """One value for each symbol, and sizes over these."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.values: dict[str, int] = {name: chosen.randint(-4, 12) for name in NAMES}

    def value(self, size: Size) -> Fraction:
        total = Fraction(0)
        for monomial, factor in size.terms:
            for name, power in monomial:
                factor *= Fraction(self.values[name]) ** power
            total += factor
        return total

    def size(self, depth: int = 2) -> Size:
        pick = self.chosen.random()
        if depth == 0 or pick < 0.3:
            name = self.chosen.choice(NAMES)
            return number(self.chosen.randint(-2, 6)) if pick < 0.1 else Size.symbol(name)
        left, right = self.size(depth - 1), self.size(depth - 1)
        if pick < 0.5:
            return left + right
        if pick < 0.6:
            return left - right
        if pick < 0.8:
            return left * right
        return self.called(left, right)

    def called(self, left: Size, right: Size) -> Size:
        a, b = self.value(left), self.value(right)
        if a.denominator != 1 or b.denominator != 1 or b <= 0:
            return left
        function = self.chosen.choice(FUNCTIONS)
        size = opaque(function, (left, right))
        if size.name is not None:
            self.values[size.name] = COMPUTE[function](int(a), int(b))
        return size


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_what_follows_is_true(chosen: random.Random) -> None:
    world, known = World(chosen), Known()
    sizes = [world.size() for _ in range(6)]
    for one in sizes:
        for other in sizes:
            gap = world.value(one) - world.value(other)
            pick = chosen.random()
            if gap == 0 and pick < 0.7:
                known.assume_equal(one, other)
            elif gap >= 0 and pick < 0.2:
                known.assume_natural(one - other)
            elif world.value(other) > 0 and not world.value(one) % world.value(other):
                known.assume_divides(other, one)
    for one in sizes:
        assert world.value(known.of(one)) == world.value(one)
        if known.is_natural(one):
            assert world.value(one) >= 0
        for other in sizes:
            if world.value(other) > 0 and known.divides(other, one):
                assert not world.value(one) % world.value(other)


def test_the_property_says_something() -> None:
    """Random facts do replace, divide and bound."""
    found = {"replaced": 0, "divides": 0, "natural": 0}
    for seed in range(100):
        world, known = World(random.Random(seed)), Known()
        sizes = [world.size() for _ in range(6)]
        for one in sizes:
            for other in sizes:
                if one != other and world.value(one) == world.value(other):
                    known.assume_equal(one, other)
                if world.value(other) > 0 and not world.value(one) % world.value(other):
                    known.assume_divides(other, one)
                if world.value(one) >= world.value(other):
                    known.assume_natural(one - other)
        found["replaced"] += sum(known.of(size) != size for size in sizes)
        found["natural"] += sum(size.value is None and known.is_natural(size) for size in sizes)
        found["divides"] += sum(known.divides(number(3), size) for size in sizes)
    assert min(found.values()) >= 10, found
