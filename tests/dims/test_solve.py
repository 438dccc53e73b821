"""Binding dim names from sizes: planted solutions are found, contradictions are named."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusiondsl.dims import NO_FACTS, Dim, Mismatch, Solution, Value, solve
from fusiondsl.dims.expr import Binary, Call, DType, Expr, Literal, Name, Spread, Unary
from tests.dims.strategies import EXAMPLES

A, B, H, N = Name("A"), Name("B"), Name("H"), Name("N")
T = Dim.symbol("T")


def _times(factor: int, name: Expr) -> Expr:
    return Binary("*", Literal(factor), name)


def _sum(left: Expr, right: Expr) -> Expr:
    return Binary("+", left, right)


def _solution(*equations: tuple[Expr, Dim | int], **scope: Value) -> Solution:
    result = solve([(e, _found(v)) for e, v in equations], scope)
    assert isinstance(result, Solution), result
    return result


def _mismatch(*equations: tuple[Expr, Dim | int], **scope: Value) -> Mismatch:
    result = solve([(e, _found(v)) for e, v in equations], scope)
    assert isinstance(result, Mismatch), result
    return result


def _found(value: Dim | int) -> Dim:
    return value if isinstance(value, Dim) else Dim.const(value)


_sizes = st.integers(1, 64)
_planted = st.fixed_dictionaries(dict.fromkeys("ABCD", _sizes))
_shapes: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(st.sampled_from("ABCD").map(Name), st.integers(1, 8).map(Literal)),
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from("+-"), inner, inner),
        st.builds(Binary, st.just("*"), st.integers(1, 8).map(Literal), inner),
        st.builds(Call, st.just("ceil_div"), st.tuples(inner, st.integers(1, 8).map(Literal))),
    ),
    max_leaves=4,
)


def _value(expr: Expr, planted: dict[str, int]) -> int:
    match expr:
        case Literal(value):
            assert isinstance(value, int)
            return value
        case Name(name):
            return planted[name]
        case Binary("+", left, right):
            return _value(left, planted) + _value(right, planted)
        case Binary("-", left, right):
            return _value(left, planted) - _value(right, planted)
        case Binary("*", left, right):
            return _value(left, planted) * _value(right, planted)
        case Call(_, (left, right)):
            return -(-_value(left, planted) // _value(right, planted))
    raise AssertionError(expr)


@EXAMPLES
@given(_planted, st.lists(_shapes, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_is_bound_is_the_planted_solution(
    planted: dict[str, int], shapes: list[Expr], random: object
) -> None:
    equations = [(shape, Dim.const(_value(shape, planted))) for shape in shapes]
    result = solve(equations, {})
    assert isinstance(result, Solution)
    assert all(dim == planted[name] for name, dim in result.bound.items())
    assert not set(result.unsolved) & set(result.bound)


@EXAMPLES
@given(_planted, st.lists(_shapes, min_size=1, max_size=5), st.data())
def test_order_does_not_matter(
    planted: dict[str, int], shapes: list[Expr], data: st.DataObject
) -> None:
    equations = [(shape, Dim.const(_value(shape, planted))) for shape in shapes]
    shuffled = data.draw(st.permutations(equations))
    first, second = solve(equations, {}), solve(shuffled, {})
    assert isinstance(first, Solution)
    assert isinstance(second, Solution)
    assert dict(first.bound) == dict(second.bound)
    assert first.unsolved == second.unsolved


@EXAMPLES
@given(_planted, st.lists(_shapes, max_size=4), st.sampled_from("ABCD"), st.integers(1, 9))
def test_a_contradiction_is_never_overlooked(
    planted: dict[str, int], shapes: list[Expr], name: str, error: int
) -> None:
    right = [(shape, Dim.const(_value(shape, planted))) for shape in shapes]
    equations = [(Name(n), Dim.const(v)) for n, v in planted.items()] + right
    wrong = (_times(3, Name(name)), Dim.const(3 * planted[name] + error))
    for order in itertools.islice(itertools.permutations([*equations, wrong]), 3):
        result = solve(order, {})
        assert isinstance(result, Mismatch)
        assert result.differs


def test_any_order() -> None:
    solution = _solution((_times(2, N), 8192), (_sum(N, H), T + 4096), (H, T))
    assert solution.bound == {"H": T, "N": Dim.const(4096)}
    assert solution.unsolved == ()


def test_exact_division_solves_the_other_way_round() -> None:
    assert _solution((Binary("/", H, Literal(32)), T)).bound == {"H": 32 * T}
    assert _solution((Binary("/", H, Literal(32)), T), H=32 * T).bound == {}
    both = _sum(Binary("/", H, Literal(2)), Binary("/", H, Literal(3)))
    assert _solution((both, 10)).bound == {"H": Dim.const(12)}
    difference = Binary("-", Binary("/", H, Literal(2)), Literal(1))
    assert _solution((difference, T)).bound == {"H": 2 * T + 2}
    assert _mismatch((Binary("/", H, Literal(0)), T)).reason == (
        "expected H / 0 (division by zero), found T"
    )


def test_a_system() -> None:
    solution = _solution((_sum(A, B), T), (Binary("-", A, B), T - 4), (_times(3, N), 6))
    assert dict(solution.bound) == {"N": 2, "B": 2, "A": T - 2}


def test_what_is_not_determined() -> None:
    assert _solution((_sum(A, B), 10)).unsolved == ("A", "B")
    assert _solution((Call("ceil_div", (H, Literal(32))), 4)).unsolved == ("H",)
    assert _solution((Binary("*", A, B), 10)).unsolved == ("A", "B")
    assert _solution((Binary("*", A, A), 16)).unsolved == ("A",)
    assert _solution((A, 3), (Binary("*", A, B), 12)).bound == {"A": 3, "B": 4}


def test_spread_and_sign() -> None:
    assert _solution((Spread("tokens"), T)).bound == {"tokens": T}
    assert _solution((Unary("-", A), -3)).bound == {"A": 3}


def test_a_function_is_checked_once_its_names_are_known() -> None:
    blocks = Call("ceil_div", (H, Literal(32)))
    assert _solution((blocks, 4), (H, 100)).bound == {"H": 100}
    wrong = _mismatch((blocks, 5), (H, 100))
    assert wrong.index == 0
    assert wrong.reason == "expected ceil_div(H, 32) = 4, found 5"


def test_mismatches() -> None:
    odd = _mismatch((_times(2, N), 8191))
    assert (odd.index, odd.differs) == (0, True)
    assert odd.reason == "expected 2 * N, found 8191"
    twice = _mismatch((H, 4096), (N, 1), (H, 2048))
    assert twice.index == 2
    assert twice.reason == "expected H = 4096, found 2048"
    unknown = _mismatch((_times(2, N), 8192), N=T)
    assert not unknown.differs
    assert unknown.reason == "expected 2 * N = 2 * T, and 8192 is not provably equal"
    half = _mismatch((_times(2, N), T))
    assert not half.differs
    assert half.reason == "expected 2 * N, and T is not provably equal"
    kind = _mismatch((H, 3), H=DType("bf16"))
    assert kind.reason == "expected H (it is a dtype), found 3"
    assert _mismatch((Literal(3), 4)).reason == "expected 3, found 4"


def test_facts_prove_equality() -> None:
    facts = NO_FACTS.with_range("T", 8, 8)
    assert isinstance(solve([(H, T), (H, Dim.const(8))], {}, facts), Solution)
    even = NO_FACTS.with_divisor("T", 2)
    result = solve([(_times(2, N), T)], {}, even)
    assert isinstance(result, Solution)
    assert result.bound == {"N": T // 2}
    assert isinstance(solve([(H, T), (H, T + 1)], {}), Mismatch)


@pytest.mark.parametrize("value", [0, 1, 4096])
def test_bare_names(value: int) -> None:
    assert _solution((H, value), (H, value), H=value).bound == {}
