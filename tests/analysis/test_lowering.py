"""Bodies as flat calls: spellings that are one thing become one thing, nothing else does."""

from __future__ import annotations

import pytest

from fusiondsl.dims.expr import Binary, DType, Literal, Name, Spread
from fusiondsl.dims.render import render
from fusiondsl.ir.program import (
    Branch,
    Call,
    Computed,
    Const,
    ListOf,
    OpDecl,
    Ref,
    Rule,
    Step,
    TensorType,
    Unrounded,
)
from tests.support.analysed import analysed

OPS = """
op norm(x: D[t.., H], w: W[H], eps: float) -> (y: D[t.., H]) { means axiom }
op two(x: D[t.., H]) -> (a: D[t.., H], b: f32[t.., 1]) { means axiom }
op k(x: D[t.., H], w: D[H], eps: float) -> (y: D[t.., H]) { means axiom }
extern op ext.both(out r: D[t.., H], inout x: D[t.., H], n: int = 3, *, flag: bool = true)
    -> f32[t..]
"""


def op(text: str) -> OpDecl:
    program = analysed(OPS + text)
    return program.ops["it"]


def rule(text: str) -> Rule:
    (found,) = analysed(OPS + text).rules
    return found


def body(statements: str, types: str = "x: f32[t.., H], s: float") -> list[str]:
    decl = op(f"op it({types}) -> (y: f32[t.., H]) {{ means {{\n{statements}\n}} }}")
    return [text(step) for step in decl.means or ()]


def text(step: Step) -> str:
    assert isinstance(step, Call)
    args = ", ".join(map(operand, step.args))
    return f"{', '.join(r or '_' for r in step.results)} = {step.op.removeprefix('prim.')}({args})"


def operand(item: object) -> str:
    match item:
        case Ref():
            return item.name
        case Unrounded():
            return f"~{item.name}"
        case Const(value=DType() as value):
            return value.name
        case Const():
            return repr(item.value)
        case Computed():
            return render(item.expr)
        case ListOf():
            return f"[{', '.join(map(operand, item.items))}]"
        case _:
            return "_"


@pytest.mark.parametrize("square", ["x * x", "x ** 2", "x.pow(2)", "x.square()", "square(x)"])
def test_square_has_one_spelling(square: str) -> None:
    assert body(f"y = {square}") == ["y = square(x)"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x ** 0.5", "y = pow(x, 0.5)"),
        ("1.0 / x", "y = div(1.0, x)"),
        ("2.0 * x", "y = mul(x, 2.0)"),
        ("2.0 - x", "y = sub(2.0, x)"),
        ("x * s", "y = mul(x, s)"),
        ("-x", "y = neg(x)"),
        ("x.float()", "y = cast(x, f32)"),
        ("x + -1.0", "y = add(x, -1.0)"),
    ],
)
def test_operators(expression: str, expected: str) -> None:
    assert body(f"y = {expression}") == [expected]


def test_nested_expressions_get_temporaries() -> None:
    assert body("y = x * rsqrt(mean(square(x), -1, keepdim = true) + s)") == [
        "%0 = square(x)",
        "%1 = mean(%0, -1)",
        "%2 = view(%1, [t.., 1])",
        "%3 = add(%2, s)",
        "%4 = rsqrt(%3)",
        "y = mul(x, %4)",
    ]


def test_equal_calls_are_one_value() -> None:
    assert body("a = abs(x)\nb = abs(x)\ny = a + abs(x) * b") == [
        "a = abs(x)",
        "%0 = square(a)",
        "y = add(a, %0)",
    ]


def test_one_and_one_point_zero_differ() -> None:
    assert body("a = x + 1\nb = x + 1.0\ny = a * b") == [
        "a = add(x, 1)",
        "b = add(x, 1.0)",
        "y = mul(a, b)",
    ]


def test_empty_buffers_are_never_one() -> None:
    assert len(body("a = empty_like(x)\nb = empty_like(x)\ny = a * b")) == 3


@pytest.mark.parametrize(
    "halves",
    [
        "a, b = split(x, [N, N], -1)",
        "a, b = x.chunk(2, -1)",
        "a = x[.., :N]\nb = x[.., N:]",
        "a = x[.., 0:N]\nb = x[.., N:2 * N]",
    ],
)
def test_halves(halves: str) -> None:
    decl = op(f"op it(x: D[t.., 2 * N]) -> (y: D[t.., N]) {{ means {{\n{halves}\ny = a * b\n}} }}")
    assert [text(step) for step in decl.means or ()] == [
        "a = slice(x, -1, 0, N)",
        "b = slice(x, -1, N, 2 * N)",
        "y = mul(a, b)",
    ]


@pytest.mark.parametrize(
    ("x", "parts", "stands"),
    [
        ("x: D[T, N + M]", "a, _ = split(x, [N, M])", ["0, N"]),
        ("x: D[T, N + M]", "_, a = split(x, [N, M])", ["N, M + N"]),
        ("x: D[T, N + 2 * M]", "a, _, _ = split(x, [N, M, M])", ["0, N"]),
        # Two sizes that only the parts tell.
        ("x: D[T, N + M + K]", "a, _, _ = split(x, [N, M, K])", ["0, N", "M + N, K + M + N"]),
    ],
)
def test_dropped_parts_need_not_stand(x: str, parts: str, stands: list[str]) -> None:
    """Unless a size is read from one."""
    source = f"match {{ {parts}; y = relu(a) }}\nreplace {{ y = abs(a) }}"
    found = [text(step) for step in rule(f"rule it({x}) {{\n{source}\n}}").match[:-1]]
    assert [step.partition("-1, ")[2].rstrip(")") for step in found] == stands


def test_views_are_kept_as_written() -> None:
    assert body("y = x.view(t.., H / 8, 8).view(t.., H)") == [
        "%0 = view(x, [t.., H / 8, 8])",
        "y = view(%0, [t.., H])",
    ]


def test_inferred_size() -> None:
    assert body("y = x.reshape(-1, H)[.., :].view(t.., H)")[0] == "%0 = view(x, [t, H])"


def test_skipped_rounding() -> None:
    assert body("n = abs(x)\ny = neg(~n)")[-1] == "y = neg(~n)"
    assert body("y = neg(~abs(x))") == ["%0 = abs(x)", "y = neg(~%0)"]


def test_cases() -> None:
    decl = op(
        "op it(x: D[T], f: bool) -> (y: D[T]) { means {\ncase f { y = abs(x) } else { y = x }\n} }"
    )
    (step,) = decl.means or ()
    assert isinstance(step, Branch)
    assert step.condition == Name("f")
    assert [text(s) for s in step.then] == ["y = abs(x)"]
    assert [text(s) for s in step.otherwise] == ["y = cast(x, D)"]


def test_arguments_are_complete_and_in_order() -> None:
    found = rule(
        "rule r(a: D[T, H], w: D[H]) {\n"
        "match { s, r, x = ext.both(n = 4, x = a)\n y = norm(r, eps = 1, w = w) }\n"
        "replace { y = k(r, w, 1) } }"
    )
    assert [text(call) for call in found.match] == [
        "s, r, x = ext.both(a, 4, True)",
        "y = norm(r, w, 1.0)",
    ]
    assert found.kept == ("r",)


def test_results_that_nobody_names() -> None:
    found = rule(
        "rule r(x: D[T, H], w: D[H]) {\n"
        "match { y = norm(norm(x, w, 1e-6), w, 1e-5) }\nreplace { y = k(x, w, 1e-5) } }"
    )
    assert [call.results for call in found.match] == [("%0",), ("y",)]
    found = rule(
        "rule r(x: D[T, H]) {\nmatch { _, b = two(x)\n y = b + 1.0 }\n"
        "replace { _, c = two(abs(x)); y = c } }"
    )
    assert found.match[0].results == (None, "b")
    assert found.outputs == (("y", "c"),)


def test_outputs() -> None:
    found = rule(
        "rule r(x: D[T, H], w: D[H]) {\n"
        "match { n = norm(x, w, 1e-6)\n m = k(n, w, 1e-6)\n o = k(m, w, 1e-6) }\n"
        "replace { n = n; o = k(n, w, 1e-3); m = x } }"
    )
    assert found.outputs == (("o", "o"), ("m", "x"))
    assert found.kept == ("n",)


def test_types_of_every_value() -> None:
    found = rule(
        "rule r(x: D[tokens.., H], w: f32[H]) {\n"
        "match { y = norm(x, w, 1e-6).to(f32) * w }\nreplace { y = x.to(f32) * w } }"
    )
    rows = (Spread("tokens"), Name("H"))
    assert dict(found.types) == {
        "%0": TensorType("D", rows),
        "%1": TensorType("f32", rows),
        "%2": TensorType("f32", rows),
        "y": TensorType("f32", rows),
    }


def test_sizes_of_results() -> None:
    decl = op(
        "op half(x: D[t.., H], n: int) -> (y: D[t.., H / n]) { means axiom }\n"
        "op it(x: D[t.., 2 * N]) -> (y: D[t.., N]) { means { y = half(x, 2) } }"
    )
    assert isinstance(decl.means, tuple)
    assert decl.results[0].type == TensorType("D", (Spread("t"), Name("N")))


def test_what_a_pattern_takes_for_granted_is_a_condition() -> None:
    found = rule(
        "rule r(x: D[T, H], y: E[T, K], w: D[H]) {\n"
        "match { z = k(x, w, 1e-6) + k(y[.., :], w, 1e-6) }\nreplace { z = k(x + y, w, 1e-6) } }"
    )
    assert [c.expr for c in found.where] == [
        Binary("==", Name("E"), Name("D")),
        Binary("==", Name("K"), Name("H")),
    ]


def test_integer_for_a_float() -> None:
    found = rule(
        "rule r(x: D[T, H], w: D[H]) { match { y = norm(x, w, 1) }; replace { y = k(x, w, 2) } }"
    )
    assert repr(found.match[0].args[2]) == repr(Const(1.0))
    assert Literal(1) == Literal(1.0)  # why constants are never compared by `==` alone
