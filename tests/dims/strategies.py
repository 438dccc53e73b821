"""Random symbolic sizes, expressions and facts, with a plain-integer meaning to check against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from hypothesis import settings
from hypothesis import strategies as st

from fusiondsl.dims import Dim, Facts
from fusiondsl.dims.expr import Binary, Call, Expr, Literal, Name, Sequence, Unary

SYMBOLS = ("H", "N", "T")
EXAMPLES = settings(max_examples=300, derandomize=True, deadline=None)

_ARITHMETIC = ("+", "-", "*", "//", "%")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")

_leaves: st.SearchStrategy[Expr] = st.one_of(
    st.sampled_from(SYMBOLS).map(Name), st.integers(-6, 24).map(Literal)
)


def _deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    two = st.tuples(inner, inner)
    functions = st.sampled_from(("ceil_div", "round_up", "min", "max"))
    return st.one_of(
        st.builds(Binary, st.sampled_from(_ARITHMETIC), inner, inner),
        st.builds(Call, functions, two),
        inner.map(lambda operand: Unary("-", operand)),
    )


numbers = st.recursive(_leaves, _deeper, max_leaves=6)

_comparisons = st.one_of(
    st.builds(Binary, st.sampled_from(_COMPARISONS), numbers, numbers),
    st.builds(
        Binary,
        st.sampled_from(("in", "not in")),
        numbers,
        st.lists(numbers, min_size=1, max_size=3).map(lambda items: Sequence(tuple(items))),
    ),
    numbers.map(lambda number: Call("is_pow2", (number,))),
)

conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(("and", "or")), inner, inner),
        inner.map(lambda operand: Unary("not", operand)),
    ),
    max_leaves=4,
)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Small ranges (sizes may be 0 or negative), some symbols with a divisor."""
    result = Facts()
    for symbol in SYMBOLS:
        lo = draw(st.integers(-4, 12))
        result = result.with_range(symbol, lo, lo + draw(st.integers(0, 5)))
        divisor = draw(st.sampled_from((1, 1, 2, 3, 4)))
        if divisor > 1 and _multiples(result, symbol, divisor):
            result = result.with_divisor(symbol, divisor)
    return result


def _multiples(known: Facts, symbol: str, divisor: int) -> list[int]:
    bounds = known.ranges[symbol]
    assert bounds.lo is not None
    assert bounds.hi is not None
    return [n for n in range(bounds.lo, bounds.hi + 1) if n % divisor == 0]


def assignments(known: Facts) -> Iterator[dict[str, int]]:
    """Every assignment the facts allow."""
    domains = [_multiples(known, s, known.divisors.get(s, 1)) for s in SYMBOLS]
    for values in itertools.product(*domains):
        yield dict(zip(SYMBOLS, values, strict=True))


def meaning(expr: Expr, values: Mapping[str, int]) -> int | bool:
    """What an expression is in plain Python; raises ZeroDivisionError where it has no value."""
    match expr:
        case Literal(value):
            assert isinstance(value, int)
            return value
        case Name(name):
            return values[name]
        case Unary(op, operand):
            inner = meaning(operand, values)
            return -inner if op == "-" else not inner
        case Call(func, args):
            return _call(func, [meaning(arg, values) for arg in args])
        case Binary("and" | "or" as op, left, right):
            return _connective(op == "or", (left, right), values)
        case Binary(op, left, Sequence(items)):
            inside = meaning(left, values) in [meaning(item, values) for item in items]
            return inside if op == "in" else not inside
        case Binary(op, left, right):
            return _binary(op, meaning(left, values), meaning(right, values))
    raise AssertionError(expr)


def _connective(decisive: bool, sides: tuple[Expr, Expr], values: Mapping[str, int]) -> bool:
    """`or` where `decisive` is True, else `and`: one side may decide, whatever the other is."""
    error: ZeroDivisionError | None = None
    for side in sides:
        try:
            if bool(meaning(side, values)) is decisive:
                return decisive
        except ZeroDivisionError as raised:
            error = raised
    if error is not None:
        raise error
    return not decisive


def _call(func: str, args: list[int]) -> int | bool:
    match func:
        case "ceil_div":
            return -(-args[0] // args[1])
        case "round_up":
            return -(-args[0] // args[1]) * args[1]
        case "min":
            return min(args)
        case "max":
            return max(args)
    return args[0] > 0 and args[0] & (args[0] - 1) == 0


def _binary(op: str, a: int, b: int) -> int | bool:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
    return a >= b


def as_dim(expr: Expr) -> Dim:
    """The expression built with `Dim`'s own operators."""
    match expr:
        case Literal(value):
            assert isinstance(value, int)
            return Dim.const(value)
        case Name(name):
            return Dim.symbol(name)
        case Unary("-", operand):
            return -as_dim(operand)
        case Call("ceil_div", (left, right)):
            return as_dim(left).ceil_div(as_dim(right))
        case Call("round_up", (left, right)):
            return as_dim(left).round_up(as_dim(right))
        case Call("min", args):
            return Dim.min(*map(as_dim, args))
        case Call("max", args):
            return Dim.max(*map(as_dim, args))
        case Binary("+", left, right):
            return as_dim(left) + as_dim(right)
        case Binary("-", left, right):
            return as_dim(left) - as_dim(right)
        case Binary("*", left, right):
            return as_dim(left) * as_dim(right)
        case Binary("//", left, right):
            return as_dim(left) // as_dim(right)
        case Binary("%", left, right):
            return as_dim(left) % as_dim(right)
    raise AssertionError(expr)
