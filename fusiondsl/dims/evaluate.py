"""Evaluates expressions and conditions over known, symbolic and unknown values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fusiondsl.dims import dtypes
from fusiondsl.dims.dim import Dim, DimTooComplex
from fusiondsl.dims.expr import Binary, Call, DType, Expr, Literal, Name, Unary, Wildcard
from fusiondsl.dims.expr import Sequence as SequenceExpr
from fusiondsl.dims.facts import NO_FACTS, Facts
from fusiondsl.dims.functions import BUILTINS, Function, checked_quotient
from fusiondsl.dims.render import render
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Invalid, Unknown, Value, Verdict, as_dim, kind_of, show

Scope = Mapping[str, Value]

_NO_FUNCTIONS: Mapping[str, Function] = {}
_MOST_BITS = 4096
_HIGHEST_POWER = 8


def evaluate(
    expr: Expr,
    scope: Scope,
    facts: Facts = NO_FACTS,
    functions: Mapping[str, Function] = _NO_FUNCTIONS,
) -> Value:
    """The value of `expr`. Conditions give a `Truth`; a missing name gives an `Unknown`."""
    try:
        return _Evaluator(scope, facts, functions).value(expr)
    except DimTooComplex as error:
        return Invalid(str(error))
    except RecursionError:
        return Invalid("the expression is nested too deeply")


def truth(
    expr: Expr,
    scope: Scope,
    facts: Facts = NO_FACTS,
    functions: Mapping[str, Function] = _NO_FUNCTIONS,
) -> Verdict:
    """Does the condition hold for everything the scope and the facts allow, and if not, why."""
    value = evaluate(expr, scope, facts, functions)
    if value is Truth.TRUE or value is True:
        return Verdict(Truth.TRUE, "")
    verdict = as_truth(value)
    if isinstance(verdict, Truth):
        return Verdict(verdict, _Explainer(scope, facts, functions).reason(expr, value))
    return Verdict(Truth.UNKNOWN, _cause(verdict))


def constant_fold(expr: Expr, scope: Scope) -> Value:
    """The value as far as constants say: `Invalid` for a static division by zero and the like."""
    return evaluate(expr, scope)


def as_truth(value: Value) -> Truth | Unknown | Invalid:
    """A value where a condition is wanted."""
    if isinstance(value, bool):
        return Truth.of(value)
    if isinstance(value, Truth | Unknown | Invalid):
        return value
    return Invalid(f"{show(value)} is {kind_of(value)}, not a condition")


def _cause(value: Unknown | Invalid) -> str:
    return value.message if isinstance(value, Invalid) else value.cause


def equal(left: Value, right: Value, facts: Facts = NO_FACTS) -> Truth | Unknown | Invalid:
    """Three-valued `==` between values of any kind; values of two kinds differ."""
    for side in (left, right):
        if isinstance(side, Unknown | Invalid):
            return side
    if isinstance(left, DType) and isinstance(right, DType):
        return _same_dtype(left, right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return _same_items(left, right, facts)
    if isinstance(left, bool | Truth) and isinstance(right, bool | Truth):
        return _same_truth(left, right)
    ordered = _compared("==", left, right, facts)
    if not isinstance(ordered, Invalid):
        return ordered
    return Truth.of(type(left) is type(right) and left == right)


def _same_dtype(left: DType, right: DType) -> Truth | Unknown:
    if left.name == right.name:
        return Truth.TRUE
    names = {left.name, right.name}
    if dtypes.FP8 in names and names & dtypes.FP8_CANDIDATES:
        return Unknown("which dtype fp8 is depends on env.arch, which is not known")
    return Truth.FALSE


def _same_items(
    left: tuple[Value, ...], right: tuple[Value, ...], facts: Facts
) -> Truth | Unknown | Invalid:
    if len(left) != len(right):
        return Truth.FALSE
    return _conjunction([equal(a, b, facts) for a, b in zip(left, right, strict=True)])


def _same_truth(left: bool | Truth, right: bool | Truth) -> Truth:
    a = Truth.of(left) if isinstance(left, bool) else left
    b = Truth.of(right) if isinstance(right, bool) else right
    return (a & b) | (~a & ~b)


def _conjunction(items: Sequence[Truth | Unknown | Invalid]) -> Truth | Unknown | Invalid:
    """`and`: FALSE decides, else what has no value, else what is not known."""
    if any(item is Truth.FALSE for item in items):
        return Truth.FALSE
    for kind in (Invalid, Unknown):
        for item in items:
            if isinstance(item, kind):
                return item
    return Truth.UNKNOWN if Truth.UNKNOWN in items else Truth.TRUE


def _negation(value: Truth | Unknown | Invalid) -> Truth | Unknown | Invalid:
    return ~value if isinstance(value, Truth) else value


_ORDER: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(op: str, left: Value, right: Value, facts: Facts) -> Truth | Invalid:
    """Numbers by order; anything else is `Invalid`."""
    a, b = as_dim(left), as_dim(right)
    if a is not None and b is not None:
        return facts.compare(op, a, b)
    low = _ends(left, facts)
    high = _ends(right, facts)
    if low is None or high is None:
        wrong = left if low is None else right
        return Invalid(f"{op} compares numbers, and {show(wrong)} is {kind_of(wrong)}")
    results = {_ORDER[op](x, y) for x in low for y in high}
    return (
        Truth.of(results.pop())
        if len(results) == 1 and _decides(op, low, high)
        else (Truth.UNKNOWN)
    )


def _ends(value: Value, facts: Facts) -> tuple[float, float] | None:
    if isinstance(value, float):
        return value, value
    dim = as_dim(value)
    if dim is None:
        return None
    bounds = facts.bounds(dim)
    lo = -float("inf") if bounds.lo is None else bounds.lo
    return lo, float("inf") if bounds.hi is None else bounds.hi


def _decides(op: str, low: tuple[float, float], high: tuple[float, float]) -> bool:
    """Do the ends of two intervals speak for what lies between them? For `==`, seldom."""
    if op not in ("==", "!="):
        return True
    return low[1] < high[0] or high[1] < low[0] or (low[0] == low[1] and high[0] == high[1])


class _Evaluator:
    def __init__(self, scope: Scope, facts: Facts, functions: Mapping[str, Function]) -> None:
        self.scope = scope
        self.facts = facts
        self.functions = functions

    def value(self, expr: Expr) -> Value:
        match expr:
            case Name():
                return self._name(expr.id)
            case Literal():
                return _literal(expr.value)
            case Binary():
                return self._binary(expr)
            case Call():
                return self._call(expr)
            case Unary():
                return self._unary(expr)
            case SequenceExpr():
                return tuple(self.value(item) for item in expr.items)
            case _:
                return Invalid(f"{render(expr)} has no value in a condition")

    def condition(self, expr: Expr) -> Truth | Unknown | Invalid:
        return as_truth(self.value(expr))

    def _name(self, name: str) -> Value:
        if name not in self.scope:
            return DType(name) if dtypes.is_dtype(name) else Unknown(f"{name} is not known")
        value = self.scope[name]
        if isinstance(value, Unknown) and not value.cause:
            return Unknown(f"{name} is not known")
        dim = as_dim(value)
        return value if dim is None else dim

    def _unary(self, expr: Unary) -> Value:
        if expr.op == "not":
            return _negation(self.condition(expr.operand))
        operand = self.value(expr.operand)
        if isinstance(operand, Unknown | Invalid):
            return operand
        dim = as_dim(operand)
        if expr.op == "-" and dim is not None:
            return -dim
        if expr.op == "-" and isinstance(operand, float):
            return -operand
        return Invalid(f"{expr.op} cannot be applied to {kind_of(operand)}")

    def _binary(self, expr: Binary) -> Value:
        if expr.op == "and":
            return self._and(expr)
        if expr.op == "or":
            return self._or(expr)
        left, right = self.value(expr.left), self.value(expr.right)
        if expr.op == "in":
            return self._member(left, right)
        if expr.op == "not in":
            return _negation(self._member(left, right))
        if expr.op == "==":
            return equal(left, right, self.facts)
        if expr.op == "!=":
            return _negation(equal(left, right, self.facts))
        for side in (left, right):
            if isinstance(side, Invalid):
                return side
        for side in (left, right):
            if isinstance(side, Unknown):
                return side
        if expr.op in _ORDER:
            return _compared(expr.op, left, right, self.facts)
        return _arithmetic(expr.op, left, right, self.facts)

    def _and(self, expr: Binary) -> Truth | Unknown | Invalid:
        left = self.condition(expr.left)
        if left is Truth.FALSE:
            return left
        return _conjunction((left, self.condition(expr.right)))

    def _or(self, expr: Binary) -> Truth | Unknown | Invalid:
        left = _negation(self.condition(expr.left))
        if left is Truth.FALSE:
            return Truth.TRUE
        return _negation(_conjunction((left, _negation(self.condition(expr.right)))))

    def _member(self, item: Value, items: Value) -> Truth | Unknown | Invalid:
        if isinstance(items, Unknown | Invalid):
            return items
        if not isinstance(items, tuple):
            return Invalid(f"in needs a list, and {show(items)} is {kind_of(items)}")
        different = [_negation(equal(item, other, self.facts)) for other in items]
        return _negation(_conjunction(different))

    def _call(self, expr: Call) -> Value:
        function = self.functions.get(expr.func) or BUILTINS.get(expr.func)
        if function is None:
            return Unknown(f"{expr.func} is not known")
        if expr.kwargs:
            return Invalid(f"{expr.func} takes no keywords")
        args = [self.value(arg) for arg in expr.args]
        for kind in (Invalid, Unknown):
            for arg in args:
                if isinstance(arg, kind) and not getattr(function, "takes_unknown", False):
                    return arg
        return function(args, self.facts)


def _literal(value: int | float | str | bool | None) -> Value:
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(Dim.const(value))
    return value


def _bounded(dim: Dim) -> Value:
    value = dim.as_int()
    if value is not None and value.bit_length() > _MOST_BITS:
        return Invalid("a number is too large")
    return dim


def _arithmetic(op: str, left: Value, right: Value, facts: Facts) -> Value:
    a, b = as_dim(left), as_dim(right)
    if a is not None and b is not None:
        return _dim_arithmetic(op, a, b, facts)
    x, y = _as_float(left), _as_float(right)
    if x is None or y is None:
        return _no_arithmetic(op, left, right)
    return _float_arithmetic(op, x, y)


def _no_arithmetic(op: str, left: Value, right: Value) -> Value:
    for side in (left, right):
        if isinstance(side, Dim):
            continue
        if not isinstance(side, float):
            return Invalid(f"{op} cannot be applied to {kind_of(left)} and {kind_of(right)}")
    return Unknown(f"{show(left)} {op} {show(right)} is not known")


def _dim_arithmetic(op: str, left: Dim, right: Dim, facts: Facts) -> Value:
    if op == "+":
        return left + right
    if op == "-":
        return left - right
    if op == "*":
        return _bounded(left * right)
    if op == "**":
        return _power(left, right)
    return checked_quotient(facts, left, right, op)


def _power(base: Dim, exponent: Dim) -> Value:
    power, value = exponent.as_int(), base.as_int()
    if power is None:
        return Unknown(f"the exponent {exponent} is not a constant")
    if power < 0:
        return Invalid(f"the exponent {power} is negative")
    if value is not None:
        if value.bit_length() * power > _MOST_BITS:
            return Invalid("a number is too large")
        return Dim.const(value**power)
    if power > _HIGHEST_POWER:
        return Invalid(f"the exponent {power} is over {_HIGHEST_POWER}")
    return Dim.product([base] * power)


def _as_float(value: Value) -> float | None:
    if isinstance(value, float):
        return value
    dim = as_dim(value)
    number = None if dim is None else dim.as_int()
    return None if number is None or number.bit_length() > 1000 else float(number)


def _float_arithmetic(op: str, left: float, right: float) -> Value:
    if op in ("/", "//", "%") and right == 0:
        return Invalid(f"division by zero in {left} {op} 0")
    try:
        result = _FLOAT_OPERATORS[op](left, right)
    except ArithmeticError:
        return Invalid(f"{left} {op} {right} has no value")
    return result if isinstance(result, float) else Invalid(f"{left} {op} {right} has no value")


_FLOAT_OPERATORS: dict[str, Callable[[float, float], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


# --- why ---------------------------------------------------------------------------------------

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

_FALSE_TEXT = {
    "<=": "{left} is {value}, over the limit {right}",
    "<": "{left} is {value}, not below {right}",
    ">=": "{left} is {value}, under the minimum {right}",
    ">": "{left} is {value}, not above {right}",
    "==": "{left} is {value}, not {right}",
    "!=": "{left} is {right}",
    "in": "{left} is {value}, not in {right}",
    "not in": "{left} is {value}, which is in {right}",
}
_UNKNOWN_TEXT = {
    "==": "{left} is {value}, not always {right}",
    "!=": "{left} is {value}, and may be {right}",
    "in": "{left} is {value}, not always in {right}",
    "not in": "{left} is {value}, and may be in {right}",
}


class _Explainer(_Evaluator):
    """Says why a condition is not TRUE, in one sentence with the values used."""

    def reason(self, expr: Expr, value: Value) -> str:
        if isinstance(value, Unknown | Invalid):
            return _cause(value)
        if isinstance(expr, Binary) and expr.op == "and":
            return self._and_reason(expr)
        if isinstance(expr, Binary) and expr.op == "or":
            sides = ((side, self.value(side)) for side in (expr.left, expr.right))
            return "; ".join(self.reason(side, v) for side, v in sides)
        if isinstance(expr, Unary) and value is not Truth.FALSE:
            return self.reason(expr.operand, self.value(expr.operand))
        if isinstance(expr, Unary):
            return f"{render(expr.operand)} holds"
        if isinstance(expr, Binary) and expr.op in _FALSE_TEXT:
            return self._comparison_reason(expr, value)
        known = "is false" if as_truth(value) is Truth.FALSE else "holds for part of the range"
        return f"{render(expr)} {known}"

    def _and_reason(self, expr: Binary) -> str:
        sides = [(side, self.value(side)) for side in (expr.left, expr.right)]
        for wanted in (Truth.FALSE, None):
            for side, value in sides:
                verdict = as_truth(value)
                if verdict is wanted or (wanted is None and verdict is not Truth.TRUE):
                    return self.reason(side, value)
        return ""

    def _comparison_reason(self, expr: Binary, value: Value) -> str:
        left, op, right = expr.left, expr.op, expr.right
        if isinstance(left, Literal) and op in _FLIPPED:
            left, op, right = right, _FLIPPED[op], left
        template = _FALSE_TEXT[op]
        if value is not Truth.FALSE:
            template = _UNKNOWN_TEXT.get(op, f"{_FALSE_TEXT[op]} for part of the range")
        return template.format(
            left=render(left), value=self._range_text(left), right=self._operand_text(right)
        )

    def _range_text(self, expr: Expr) -> str:
        value = self.value(expr)
        return str(self.facts.bounds(value)) if isinstance(value, Dim) else show(value)

    def _operand_text(self, expr: Expr) -> str:
        text, value = render(expr), self._range_text(expr)
        if isinstance(expr, Literal) or text == value:
            return value
        if isinstance(expr, SequenceExpr):
            return text
        return f"{text} {value}" if value.startswith("(") else f"{text} ({value})"


# --- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A `table` of a rule file as a function: the first row whose keys fit gives the value."""

    name: str
    params: tuple[str, ...]
    rows: tuple[tuple[tuple[Expr, ...], Expr], ...]
    scope: Scope = field(default_factory=dict)
    """What rows may name: `let`s, dtype sets."""
    takes_unknown: bool = True
    """A row of wildcards fits whatever is not known."""

    def __call__(self, args: Sequence[Value], facts: Facts) -> Value:
        if len(args) != len(self.params):
            return Invalid(f"{self.name} takes {len(self.params)} arguments, not {len(args)}")
        possible: list[Value] = []
        doubt: Truth | Unknown | Invalid = Truth.TRUE
        for keys, value in self.rows:
            fits = _conjunction([self._fits(k, a, facts) for k, a in zip(keys, args, strict=True)])
            if fits is Truth.FALSE:
                continue
            possible.append(evaluate(value, self.scope, facts))
            if fits is Truth.TRUE:
                return self._agreed(possible, doubt)
            if doubt is Truth.TRUE:
                doubt = fits
        if doubt is not Truth.TRUE:
            return self._undecided(doubt)
        return Invalid(f"no row of {self.name} fits ({', '.join(map(show, args))})")

    def _agreed(self, possible: list[Value], doubt: Truth | Unknown | Invalid) -> Value:
        """The value all rows that may fit have."""
        last = possible[-1]
        if all(equal(value, last) is Truth.TRUE for value in possible[:-1]):
            return last
        return self._undecided(doubt)

    def _undecided(self, doubt: Truth | Unknown | Invalid) -> Value:
        if isinstance(doubt, Unknown | Invalid):
            return doubt
        return Unknown(f"which row of {self.name} fits is not known")

    def _fits(self, key: Expr, arg: Value, facts: Facts) -> Truth | Unknown | Invalid:
        if isinstance(key, Wildcard):
            return Truth.TRUE
        if isinstance(key, Name) and key.id not in self.scope and not dtypes.is_dtype(key.id):
            return equal(arg, key.id, facts)  # a bare word, as `gfx942`, is that string
        if isinstance(key, SequenceExpr):
            misses = [_negation(self._fits(item, arg, facts)) for item in key.items]
            return _negation(_conjunction(misses))
        value = evaluate(key, self.scope, facts)
        if not isinstance(value, tuple):
            return equal(arg, value, facts)
        return _negation(_conjunction([_negation(equal(arg, item, facts)) for item in value]))
