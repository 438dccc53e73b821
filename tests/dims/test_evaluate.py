"""Conditions: never wrong against brute force, and a reason that names the values."""

from __future__ import annotations

import pytest
from hypothesis import given

from fusiondsl.decl.dtypes import DTYPES, FP8
from fusiondsl.dims import (
    NO_FACTS,
    PRESENT,
    UNKNOWN_VALUE,
    Dim,
    Facts,
    Invalid,
    LookupTable,
    Truth,
    Unknown,
    Value,
    constant_fold,
    evaluate,
    is_dtype,
    itemsize,
    kind_of,
    names,
    render,
    show,
    truth,
)
from fusiondsl.dims.expr import (
    Binary,
    Call,
    DType,
    Ellipsis_,
    Expr,
    Keyword,
    Literal,
    Method,
    Name,
    Sequence,
    Slice,
    Spread,
    Subscript,
    Unary,
    Wildcard,
)
from tests.dims.strategies import EXAMPLES, assignments, conditions, facts, meaning, numbers

H, T = Name("H"), Name("T")
SYMBOLS: dict[str, Value] = {s: Dim.symbol(s) for s in ("T", "H", "N")}


def binary(left: Expr, op: str, right: Expr | float | str | bool | None) -> Binary:
    is_expr = not isinstance(right, int | float | str | bool | None)
    return Binary(op, left, right if is_expr else Literal(right))  # type: ignore[arg-type]


def seq(*items: Expr | int) -> Sequence:
    return Sequence(tuple(Literal(i) if isinstance(i, int) else i for i in items))


@EXAMPLES
@given(facts(), conditions)
def test_conditions_are_never_wrong(known: Facts, expr: Expr) -> None:
    verdict = truth(expr, SYMBOLS, known)
    outcomes = set()
    for values in assignments(known):
        try:
            outcomes.add(bool(meaning(expr, values)))
        except ZeroDivisionError:
            outcomes = {True, False}  # nothing may be claimed of what has no value
    assert verdict.truth is Truth.UNKNOWN or outcomes <= {verdict.truth is Truth.TRUE}
    assert bool(verdict.reason) is (verdict.truth is not Truth.TRUE)


@EXAMPLES
@given(conditions)
def test_constant_conditions_are_decided(expr: Expr) -> None:
    values = {"T": 7, "H": 12, "N": 2}
    verdict = truth(expr, dict(values))
    try:
        expected = bool(meaning(expr, values))
    except ZeroDivisionError:
        return
    assert verdict.truth is Truth.of(expected)


@EXAMPLES
@given(numbers)
def test_numbers_agree_with_integers(expr: Expr) -> None:
    values = {"T": 7, "H": 12, "N": 2}
    try:
        expected = meaning(expr, values)
    except ZeroDivisionError:
        assert isinstance(evaluate(expr, dict(values)), Invalid)
        return
    assert evaluate(expr, dict(values)) == Dim.const(expected)


LIMIT = binary(
    binary(binary(Name("tokens"), "*", H), "*", Call("itemsize", (Name("D"),))), "<=", 64
)
TOKENS = NO_FACTS.with_range("tokens", 1, 16)
SCOPE: dict[str, Value] = {
    "tokens": Dim.symbol("tokens"),
    "H": 4,
    "D": DType("bf16"),
    "half": (DType("bf16"), DType("f16")),
    "group": "pp:0",
    "env.tp_group": "tp:0",
    "env.aiter": False,
    "env.tp_size": 3,
    "eps": 1e-5,
    "x": PRESENT,
    "scales": None,
    "layer": UNKNOWN_VALUE,
    "limit": 100,
}
REASONS: list[tuple[Expr, Truth, str]] = [
    (
        LIMIT,
        Truth.UNKNOWN,
        "tokens * H * itemsize(D) is 8..128, over the limit 64 for part of the range",
    ),
    (binary(binary(H, "%", 128), "==", 0), Truth.FALSE, "H % 128 is 4, not 0"),
    (binary(Name("env.arch"), "==", "gfx950"), Truth.UNKNOWN, "env.arch is not known"),
    (binary(Name("layer"), "==", "a"), Truth.UNKNOWN, "layer is not known"),
    (binary(Name("D"), "in", seq(Name("f32"))), Truth.FALSE, "D is bf16, not in (f32,)"),
    (
        binary(Name("D"), "not in", Name("half")),
        Truth.FALSE,
        "D is bf16, which is in half (bf16, f16)",
    ),
    (binary(Name("D"), "==", Name("f32")), Truth.FALSE, "D is bf16, not f32"),
    (
        binary(Name("group"), "==", Name("env.tp_group")),
        Truth.FALSE,
        'group is "pp:0", not env.tp_group ("tp:0")',
    ),
    (
        binary(Name("env.tp_size"), "in", seq(2, 4, 8)),
        Truth.FALSE,
        "env.tp_size is 3, not in (2, 4, 8)",
    ),
    (Name("env.aiter"), Truth.FALSE, "env.aiter is false"),
    (Unary("not", binary(H, ">", 1)), Truth.FALSE, "H > 1 holds"),
    (
        Unary("not", binary(Name("tokens"), ">", 8)),
        Truth.UNKNOWN,
        "tokens is 1..16, not above 8 for part of the range",
    ),
    (binary(Name("scales"), "!=", None), Truth.FALSE, "scales is none"),
    (binary(Name("x"), "==", None), Truth.FALSE, "x is present, not none"),
    (binary(Name("tokens"), "==", 8), Truth.UNKNOWN, "tokens is 1..16, not always 8"),
    (binary(Name("tokens"), "!=", 8), Truth.UNKNOWN, "tokens is 1..16, and may be 8"),
    (
        binary(Name("tokens"), "in", seq(8, 20)),
        Truth.UNKNOWN,
        "tokens is 1..16, not always in (8, 20)",
    ),
    (
        binary(Name("tokens"), "not in", seq(8)),
        Truth.UNKNOWN,
        "tokens is 1..16, and may be in (8,)",
    ),
    (binary(Name("tokens"), "<", 1), Truth.FALSE, "tokens is 1..16, not below 1"),
    (binary(Name("tokens"), ">=", 17), Truth.FALSE, "tokens is 1..16, under the minimum 17"),
    (
        Binary("<=", Literal(17), Name("tokens")),
        Truth.FALSE,
        "tokens is 1..16, under the minimum 17",
    ),
    (binary(H, ">", Name("limit")), Truth.FALSE, "H is 4, not above limit (100)"),
    (
        binary(binary(H, "==", 5), "or", binary(Name("D"), "==", Name("f32"))),
        Truth.FALSE,
        "H is 4, not 5; D is bf16, not f32",
    ),
    (binary(binary(H, "==", 4), "and", binary(H, "==", 5)), Truth.FALSE, "H is 4, not 5"),
    (binary(Name("nowhere"), "and", binary(H, "==", 5)), Truth.FALSE, "H is 4, not 5"),
    (binary(Name("nowhere"), "and", binary(H, "==", 4)), Truth.UNKNOWN, "nowhere is not known"),
    (binary(Name("nowhere"), "or", binary(H, "==", 5)), Truth.UNKNOWN, "nowhere is not known"),
    (Call("is_pow2", (binary(H, "+", 1),)), Truth.FALSE, "is_pow2(H + 1) is false"),
    (
        Call("is_pow2", (Name("tokens"),)),
        Truth.UNKNOWN,
        "is_pow2(tokens) holds for part of the range",
    ),
    (binary(binary(H, "//", 0), "==", 1), Truth.UNKNOWN, "division by zero in 4 // 0"),
    (binary(binary(H, "/", 3), "==", 1), Truth.UNKNOWN, "4 / 3 is not whole"),
    (
        binary(binary(Name("tokens"), "/", 3), "==", 1),
        Truth.UNKNOWN,
        "tokens / 3 is not known to be whole",
    ),
    (
        binary(binary(H, "%", binary(Name("tokens"), "-", 1)), "==", 1),
        Truth.UNKNOWN,
        "the divisor tokens - 1 may be 0",
    ),
    (binary(Name("D"), "<", 1), Truth.UNKNOWN, "< compares numbers, and bf16 is a dtype"),
    (binary(H, "in", Name("D")), Truth.UNKNOWN, "in needs a list, and bf16 is a dtype"),
    (H, Truth.UNKNOWN, "4 is an integer, not a condition"),
    (
        binary(binary(Name("group"), "+", 1), "==", 1),
        Truth.UNKNOWN,
        "+ cannot be applied to a string and an integer",
    ),
    (Method(Name("x"), "stride", ()), Truth.UNKNOWN, "x.stride() has no value in a condition"),
    (Call("supported", (H,)), Truth.UNKNOWN, "supported is not known"),
    (Call("itemsize", (H,)), Truth.UNKNOWN, "itemsize takes a dtype, not an integer"),
    (Call("ceil_div", (H,)), Truth.UNKNOWN, "ceil_div takes 2 arguments, not 1"),
    (Call("round_up", (H, Name("D"))), Truth.UNKNOWN, "round_up takes integers, not a dtype"),
    (Call("min", ()), Truth.UNKNOWN, "min of nothing"),
    (Call("max", (H, Name("D"))), Truth.UNKNOWN, "max takes numbers, not a dtype"),
    (Call("is_pow2", ()), Truth.UNKNOWN, "is_pow2 takes one integer"),
    (Call("min", (H,), (Keyword("k", H),)), Truth.UNKNOWN, "min takes no keywords"),
    (Unary("~", H), Truth.UNKNOWN, "~ cannot be applied to an integer"),
    (binary(Literal(2), "**", 100_000), Truth.UNKNOWN, "a number is too large"),
    (binary(Literal(2), "**", -1), Truth.UNKNOWN, "the exponent -1 is negative"),
    (binary(Name("tokens"), "**", 9), Truth.UNKNOWN, "the exponent 9 is over 8"),
    (
        binary(Literal(2), "**", Name("tokens")),
        Truth.UNKNOWN,
        "the exponent tokens is not a constant",
    ),
]


@pytest.mark.parametrize(("expr", "expected", "reason"), REASONS, ids=[r for _, _, r in REASONS])
def test_reasons(expr: Expr, expected: Truth, reason: str) -> None:
    verdict = truth(expr, SCOPE, TOKENS)
    assert verdict.truth is expected
    assert verdict.reason == reason


HOLDS: list[Expr] = [
    binary(Name("D"), "in", Name("half")),
    binary(Name("D"), "not in", seq(Name("f32"))),
    binary(Name("scales"), "==", None),
    binary(Name("x"), "!=", None),
    binary(Name("eps"), "==", 1e-5),
    binary(Name("eps"), "<", 1),
    binary(binary(Name("eps"), "*", 2), "<=", 2e-5),
    binary(H, "<", 4.5),
    binary(Name("tokens"), "<", 16.5),
    binary(Name("tokens"), "!=", 0.5),
    binary(Name("env.aiter"), "==", False),
    binary(binary(H, "==", 4), "==", True),
    Unary("not", Name("env.aiter")),
    binary(H, "!=", "4"),
    binary(Name("env.aiter"), "!=", 0),
    binary(seq(H, T), "==", seq(4, T)),
    binary(seq(1, 2), "!=", seq(1, 2, 3)),
    binary(Call("product", (seq(2, 3, H),)), "==", 24),
    binary(Call("product", (Literal(0.5), Literal(4))), "==", 2),
    binary(Call("max", (Literal(0.5), H)), "==", 4),
    binary(Call("round_up", (binary(H, "+", 1), Literal(8))), "==", 8),
    binary(Name("tokens"), "<=", 16),
    binary(Call("itemsize", (Name("fp8"),)), "==", 1),
    binary(binary(Literal(2), "**", 10), "==", 1024),
    binary(binary(H, "**", 2), "==", 16),
    binary(binary(Literal(7.0), "//", 2), "==", 3),
    binary(Unary("-", Name("eps")), "<", 0),
]


@pytest.mark.parametrize("expr", HOLDS, ids=render)
def test_holds(expr: Expr) -> None:
    scope = {**SCOPE, "T": Dim.symbol("T")}
    assert truth(expr, scope, TOKENS).truth is Truth.TRUE


def test_fp8_is_decided_only_with_the_arch() -> None:
    same = binary(Name("Q"), "==", Name("f8e4m3fn"))
    verdict = truth(same, {"Q": DType("fp8")})
    assert verdict.truth is Truth.UNKNOWN
    assert verdict.reason == "which dtype fp8 is depends on env.arch, which is not known"
    assert truth(binary(Name("Q"), "==", Name("fp8")), {"Q": DType("fp8")}).truth is Truth.TRUE
    assert truth(binary(Name("Q"), "==", Name("bf16")), {"Q": DType("fp8")}).truth is Truth.FALSE
    scope: dict[str, Value] = {"fp8": DType("f8e4m3fn"), "Q": DType("f8e4m3fn")}
    assert truth(binary(Name("Q"), "==", Name("fp8")), scope).truth is Truth.TRUE


def test_dtype_names_say_what_they_are() -> None:
    assert all(is_dtype(name) for name in [*DTYPES, FP8])
    assert {name: itemsize(name) for name in DTYPES} == {n: s for n, (_, s, _) in DTYPES.items()}
    assert not any(is_dtype(name) for name in ("D", "any", "f", "f12", "H8", "bf16x", ""))
    assert itemsize("any") is None


TABLE = LookupTable(
    "limit",
    ("arch", "tp"),
    (
        ((Name("gfx942"), Literal(2)), Name("BIG")),
        ((seq(Name("gfx942"), Name("gfx950")), Literal(8)), Literal(128)),
        ((Wildcard(), Wildcard()), Literal(32)),
    ),
    {"BIG": 64},
)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"arch": "gfx942", "tp": 2}, Dim.const(64)),
        ({"arch": "gfx942", "tp": 8}, Dim.const(128)),
        ({"arch": "gfx942", "tp": 4}, Dim.const(32)),
        ({"arch": "gfx90a", "tp": 2}, Dim.const(32)),
        ({"tp": 4}, Dim.const(32)),
        ({"tp": 2}, Unknown("arch is not known")),
        (
            {"arch": "gfx942", "tp": Dim.symbol("s")},
            Unknown("which row of limit fits is not known"),
        ),
    ],
)
def test_tables(scope: dict[str, Value], expected: Value) -> None:
    call = Call("limit", (Name("arch"), Name("tp")))
    assert evaluate(call, scope, functions={"limit": TABLE}) == expected


def test_a_table_without_a_fitting_row() -> None:
    table = LookupTable("t", ("a",), (((Literal(1),), Literal(2)),))
    call = Call("t", (Name("a"),))
    assert evaluate(call, {"a": 3}, functions={"t": table}) == Invalid("no row of t fits (3)")
    assert evaluate(call, {}, functions={"t": table}) == Unknown("a is not known")
    wrong = Call("t", ())
    expected = Invalid("t takes 1 arguments, not 0")
    assert evaluate(wrong, {}, functions={"t": table}) == expected


def test_functions_of_the_caller() -> None:
    def supported(args: object, facts: Facts) -> Value:
        return Truth.UNKNOWN

    call = Call("supported", (H,))
    verdict = truth(call, {"H": 3}, functions={"supported": supported})
    assert verdict.reason == "supported(H) holds for part of the range"


def test_constant_fold() -> None:
    assert constant_fold(binary(Name("PACK"), "*", 2), {"PACK": 8}) == Dim.const(16)
    assert constant_fold(binary(H, "%", 0), {}) == Unknown("H is not known")
    assert constant_fold(binary(Literal(1), "%", 0), {}) == Invalid("division by zero in 1 % 0")
    assert constant_fold(binary(Literal(1.0), "/", 0.0), {}) == Invalid(
        "division by zero in 1.0 / 0"
    )
    assert constant_fold(binary(Literal(1e308), "**", 2.0), {}) == Invalid(
        "1e+308 ** 2.0 has no value"
    )
    assert constant_fold(binary(Literal(-1.0), "**", 0.5), {}) == Invalid(
        "-1.0 ** 0.5 has no value"
    )
    symbolic = evaluate(binary(T, "*", 0.5), {"T": Dim.symbol("T")})
    assert symbolic == Unknown("T * 0.5 is not known")


def test_a_hostile_expression_gets_an_answer() -> None:
    deep: Expr = H
    for _ in range(100_000):
        deep = Unary("-", deep)
    nested = evaluate(deep, {"H": 1})
    assert nested == Invalid("the expression is nested too deeply")
    product: Expr = Literal(1)
    for index in range(20):
        product = binary(product, "*", binary(Name(f"a{index}"), "+", Name(f"b{index}")))
    scope: dict[str, Value] = {name: Dim.symbol(name) for name in names(product)}
    assert evaluate(product, scope) == Invalid("a dimension with over 1000 terms")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (
            binary(binary(H, "+", T), "*", binary(H, "-", binary(T, "-", 1))),
            "(H + T) * (H - (T - 1))",
        ),
        (
            binary(binary(binary(H, "<", 1), "==", True), "and", Unary("not", T)),
            "(H < 1) == true and not T",
        ),
        (binary(binary(H, "**", 2), "**", binary(H, "**", 3)), "(H ** 2) ** H ** 3"),
        (Unary("-", binary(H, "+", 1)), "-(H + 1)"),
        (Unary("not", binary(H, "or", T)), "not (H or T)"),
        (Subscript(Name("x"), (Ellipsis_(), Slice(None, H))), "x[.., :H]"),
        (Subscript(Name("x"), (Slice(Literal(1), None), Wildcard())), "x[1:, _]"),
        (
            Method(binary(H, "+", T), "to", (Name("f32"),), (Keyword("copy", Literal(True)),)),
            "(H + T).to(f32, copy = true)",
        ),
        (Sequence((Spread("tokens"), Literal('a"\\'))), '(tokens.., "a\\"\\\\")'),
        (Sequence(()), "()"),
        (Literal(None), "none"),
        (Unary("~", Name("x")), "~x"),
    ],
)
def test_render(expr: Expr, text: str) -> None:
    assert render(expr) == text


def test_names() -> None:
    expr = Method(
        Subscript(Name("x"), (Slice(H, None), Spread("t"))), "f", (Literal(1),), (Keyword("k", T),)
    )
    assert names(expr) == {"x", "H", "t", "T"}
    assert names(Sequence((Unary("-", H), Call("f", (T,), (Keyword("k", Name("N")),))))) == {
        "H",
        "T",
        "N",
    }


def test_values_in_messages() -> None:
    values: list[Value] = [True, 1.5, UNKNOWN_VALUE, Invalid("bad"), Truth.TRUE, (1, None), PRESENT]
    assert [show(v) for v in values] == [
        "true",
        "1.5",
        "unknown",
        "bad",
        "true",
        "(1, none)",
        "present",
    ]
    assert [kind_of(v) for v in values] == [
        "a condition",
        "a float",
        "unknown",
        "invalid",
        "a condition",
        "a list",
        "a tensor",
    ]
    assert kind_of(None) == "none"
