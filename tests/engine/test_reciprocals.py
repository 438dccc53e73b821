"""Spellings by way of a reciprocal: as near as is promised, and never without consent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.reciprocals import (
    inverse,
    is_about,
    is_number,
    is_power_of_two,
    is_reciprocal,
    reciprocals,
)
from fusiondsl.engine.report import RefusalKind
from fusiondsl.rules import load_source
from tests.support.capture import Captured, traced

F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
CHECKS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# --- constants ----------------------------------------------------------------------------------


@given(
    st.floats(min_value=2.0**-120, max_value=2.0**120), st.booleans(), st.sampled_from([F32, F64])
)
@CHECKS
def test_what_an_operation_computes_is_a_reciprocal(
    size: float, negative: bool, dtype: torch.dtype
) -> None:
    of = -size if negative else size
    assert is_reciprocal(1.0 / of, of, dtype)
    found = (1.0 / torch.tensor(of, dtype=dtype)).item()
    assert is_reciprocal(found, of, dtype)
    assert {1.0 / of, found} == set(reciprocals(of, dtype))
    for other in (math.nextafter(1.0 / of, math.inf), math.nextafter(1.0 / of, -math.inf)):
        assert is_reciprocal(other, of, dtype) == (other == found)
        assert is_about(other, of)
    assert not is_reciprocal(-found, of, dtype)


@given(st.floats(min_value=2.0**-120, max_value=2.0**120), st.sampled_from([F32, F64]))
@CHECKS
def test_the_inverse_has_the_number_as_its_reciprocal(number: float, dtype: torch.dtype) -> None:
    for given_ in (number, -number, torch.tensor(number, dtype=F32).item()):
        found = inverse(given_, dtype)
        assert found is None or is_reciprocal(given_, found, dtype)


@pytest.mark.parametrize("of", [448.0, 240.0, 6.0, 0.1, 3, 127.0, -7.5, 512])
def test_the_inverse_is_the_number_that_was_meant(of: float) -> None:
    assert inverse(1.0 / of, F32) == inverse(1.0 / of, F64) == of


@pytest.mark.parametrize("number", [0.0, -0.0, 0, math.inf, -math.inf, math.nan, True, "2", None])
def test_what_is_no_number_is_a_reciprocal_of_nothing(number: Any) -> None:
    for dtype in (F64, F32, BF16, F16):
        assert not is_reciprocal(number, 2.0, dtype)
        assert not is_reciprocal(2.0, number, dtype)
        assert reciprocals(number, dtype) == ()
        assert inverse(number, dtype) is None
    assert not is_about(number, math.inf)


def test_what_is_subnormal_has_no_reciprocal() -> None:
    tiny, huge = 2.0**-127, 2.0**127
    assert is_reciprocal(tiny, huge, F64)
    for dtype in (F32, BF16, F16):
        assert not is_reciprocal(tiny, huge, dtype)
        assert not is_reciprocal(huge, tiny, dtype)
        assert is_reciprocal(2.0**-126, 2.0**126, dtype)
    assert not is_reciprocal(2.0**-1023, 2.0**1023, F64)


def test_whole_numbers_and_other_dtypes() -> None:
    assert is_reciprocal(0.25, 4, BF16)
    assert not is_reciprocal(0.25, 4, torch.int32)
    assert not is_number(2**53 + 1)
    assert not is_number(False)
    assert is_power_of_two(-0.125)
    assert not is_power_of_two(0.75)
    assert not is_power_of_two(0.0)


# --- graphs -------------------------------------------------------------------------------------

aten = torch.ops.aten


class Spelled(NamedTuple):
    """What a rule says, how a graph spells it, and how it spells what the rule does say."""

    body: str
    spelled: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    always: Callable[[float], bool]
    """Whether the constant makes both the same."""


def _never(_: float) -> bool:
    return False


# `x` and `v` are tensors, `c` a constant; `v` has no zeros and nothing negative.
SPELLED: dict[str, Spelled] = {
    "product for quotient": Spelled(
        "x / {c!r}", lambda x, v, c: x * (1.0 / c), lambda x, v, c: x / c, is_power_of_two
    ),
    "quotient for product": Spelled(
        "x * {k!r}", lambda x, v, c: x / c, lambda x, v, c: x * (1.0 / c), is_power_of_two
    ),
    "reciprocal for quotient": Spelled(
        "x / v", lambda x, v, c: x * v.reciprocal(), lambda x, v, c: x / v, _never
    ),
    "quotient for reciprocal": Spelled(
        "x * reciprocal(v)", lambda x, v, c: x / v, lambda x, v, c: x * v.reciprocal(), _never
    ),
    "reciprocal of root": Spelled(
        "rsqrt(v) + x", lambda x, v, c: 1 / v.sqrt() + x, lambda x, v, c: v.rsqrt() + x, _never
    ),
    "root of reciprocal": Spelled(
        "x - reciprocal(sqrt(v))",
        lambda x, v, c: x - v.rsqrt(),
        lambda x, v, c: x - v.sqrt().reciprocal(),
        _never,
    ),
    "power": Spelled(
        "rsqrt(v) - x", lambda x, v, c: v.sqrt() ** -1 - x, lambda x, v, c: v.rsqrt() - x, _never
    ),
    "quotient by root": Spelled(
        "x * rsqrt(v)", lambda x, v, c: x / v.sqrt(), lambda x, v, c: x * v.rsqrt(), _never
    ),
    "product with rsqrt": Spelled(
        "x / sqrt(v)", lambda x, v, c: v.rsqrt() * x, lambda x, v, c: x / v.sqrt(), _never
    ),
    "sum over N": Spelled(
        "x - mean(v, -1, keepdim = true)",
        lambda x, v, c: x - v.sum(-1, keepdim=True) / v.shape[-1],
        lambda x, v, c: x - v.mean(-1, keepdim=True),
        _never,
    ),
    "sum times one over N": Spelled(
        "x + mean(v, -1, keepdim = true)",
        lambda x, v, c: x + v.sum(-1, keepdim=True) * (1 / v.shape[-1]),
        lambda x, v, c: x + v.mean(-1, keepdim=True),
        _never,
    ),
}
ROWS, ODD = 3, 24  # 24 columns: their number is no power of two


@cache
def rules(body: str, dtype: str, allow: str) -> CompiledRules:
    text = f"""
rule spelled(x: {dtype}[T, H], v: {dtype}[T, H]) {{
  match {{ y = relu({body}) }}
  replace {{ y = clamp_min({body}, 0.0) }}
  allow {{ {allow} }}
}}
"""
    unread = "" if "v" in body.replace("reciprocal", "") else ", v: " + dtype + "[T, H]"
    text = text.replace(unread, "") if unread else text
    unread = "" if "x" in body else f"x: {dtype}[T, H], "
    return load_source(text.replace(unread, "") if unread else text).compile()


def graph(function: Callable[..., Tensor], x: Tensor, v: Tensor, c: float) -> Captured:
    return traced(lambda x, v: function(x, v, c).relu(), x, v)


def operands(dtype: torch.dtype, seed: int, columns: int = ODD) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, columns, generator=made, dtype=F64)
    v = torch.rand(ROWS, columns, generator=made, dtype=F64) * 9 + 0.5
    return x.to(dtype), v.to(dtype)


@pytest.mark.parametrize("name", SPELLED)
@pytest.mark.parametrize("dtype", [F32, F64])
@settings(CHECKS, max_examples=3)
@given(c=st.sampled_from([448.0, 3.0, 0.1, 7.0, 1e-3, -12.5, 4.0]), seed=st.integers(0, 99))
def test_both_are_as_near_as_is_promised(
    name: str, dtype: torch.dtype, c: float, seed: int
) -> None:
    spelled = SPELLED[name]
    x, v = operands(dtype, seed)
    body = spelled.body.format(c=c, k=1.0 / c)
    short = {F32: "f32", F64: "f64"}[dtype]
    always = spelled.always(c)

    strict = graph(spelled.spelled, x, v, c)
    before = str(strict.gm.graph)
    report = rules(body, short, "unproved").apply(strict.gm)
    assert report.counts == ({"spelled": 1} if always else {})
    if not always:
        assert str(strict.gm.graph) == before
        (refusal,) = report.settled
        assert refusal.kind is RefusalKind.DIFFERENCE
        assert "which differs by recip" in refusal.message

    asked = graph(spelled.spelled, x, v, c)
    expected = asked.run((x, v))[0]
    report = rules(body, short, "unproved; recip").apply(asked.gm)
    (fired,) = report.fired
    assert fired.differs == (() if always else ("recip",))
    near(asked.run((x, v))[0], expected, x, bits=always)

    plain = graph(spelled.plain, x, v, c)
    expected = plain.run((x, v))[0]
    (fired,) = rules(body, short, "unproved").apply(plain.gm).fired
    assert fired.differs == ()
    assert torch.equal(plain.run((x, v))[0], expected)


def near(found: Tensor, expected: Tensor, x: Tensor, *, bits: bool) -> None:
    if bits:
        assert torch.equal(found, expected)
        return
    scale = torch.maximum(expected.abs(), x.abs()).clamp_min(1.0)
    assert ((found - expected).abs() <= 4 * torch.finfo(x.dtype).eps * scale).all()


@pytest.mark.parametrize("name", [n for n, s in SPELLED.items() if s.always is _never])
def test_halves_are_rounded_as_well(name: str) -> None:
    spelled = SPELLED[name]
    x, v = operands(BF16, 1)
    for allow in ("unproved", "unproved; recip", "unproved; round"):
        asked = graph(spelled.spelled, x, v, 3.0)
        assert rules(spelled.body, "bf16", allow).apply(asked.gm).counts == {}
    asked = graph(spelled.spelled, x, v, 3.0)
    report = rules(spelled.body, "bf16", "unproved; recip; round; reduce_order").apply(asked.gm)
    (fired,) = report.fired
    assert fired.differs[:2] == ("round", "recip")


@pytest.mark.parametrize("columns", [1, 2, 8, 64])
@pytest.mark.parametrize("name", ["sum over N", "sum times one over N"])
def test_sums_over_a_power_of_two_are_means(name: str, columns: int) -> None:
    spelled = SPELLED[name]
    x, v = operands(F32, columns, columns)
    asked = graph(spelled.spelled, x, v, 3.0)
    expected = asked.run((x, v))[0]
    (fired,) = rules(spelled.body, "f32", "unproved").apply(asked.gm).fired
    assert fired.differs == ()
    assert torch.equal(asked.run((x, v))[0], expected)


def test_integers_are_no_part_of_it() -> None:
    def count(x: Tensor, v: Tensor, c: float) -> Tensor:
        return x * v

    x = torch.ones(ROWS, ODD, dtype=torch.int32)
    asked = graph(count, x, x + 1, 3.0)
    assert rules("x / v", "f32", "unproved; recip").apply(asked.gm).counts == {}


def test_symbolic_sizes_are_no_constants() -> None:
    x, v = operands(F32, 1)
    asked = traced(lambda x, v: (x - v.sum(-1, keepdim=True) / v.shape[-1]).relu(), x, v)
    compiled = rules("x - mean(v, -1, keepdim = true)", "f32", "unproved; recip")
    assert compiled.apply(asked.gm).counts == {"spelled": 1}
    asked = traced(lambda x, v: (x.t() - v.t().sum(-1, keepdim=True) / v.shape[0]).relu(), x, v)
    assert compiled.apply(asked.gm).counts == {}


# --- semantic ops -------------------------------------------------------------------------------

SHARED = """
op soft.norm(x: f32[T, H], w: f32[H], eps: float) -> (y: f32[T, H]) {
  means { y = x * rsqrt(mean(square(x), -1, keepdim = true) + eps) * w }
  form written { y = x * rsqrt(mean(square(x), -1, keepdim = true) + eps) * w }
}
op soft.normed_relu(x: f32[T, H], w: f32[H], eps: float) -> (y: f32[T, H]) {
  means { y = relu(soft.norm(x, w, eps)) }
}
op soft.normed_exp(x: f32[T, H], w: f32[H], eps: float) -> (y: f32[T, H]) {
  means { y = exp(soft.norm(x, w, eps)) }
}
rule normed_relu(x: f32[T, H], w: f32[H], eps: float) {
  match { y = relu(soft.norm(x, w, eps)) }
  replace { y = soft.normed_relu(x, w, eps) }
  allow { recip }
}
rule normed_exp(x: f32[T, H], w: f32[H], eps: float) {
  match { y = exp(soft.norm(x, w, eps)) }
  replace { y = soft.normed_exp(x, w, eps) }
}
"""


def by_root(x: Tensor, w: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w


def by_sum(x: Tensor, w: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) / ODD + 1e-6).rsqrt() * w


@pytest.mark.parametrize("norm", [by_root, by_sum])
def test_one_rule_takes_what_another_one_refuses(norm: Callable[..., Tensor]) -> None:
    x, _ = operands(F32, 2)
    w = torch.ones(ODD)
    both = traced(lambda x, w: (norm(x, w).relu(), norm(x, w).exp()), x, w)
    answer = load_source(SHARED).compile().why(both.gm)
    (fires,) = answer.of("normed_relu").fired
    assert fires.differs == ("recip",)
    near = answer.of("normed_exp").near[0]
    assert near.causes[0].code == "difference"
    assert "the form `written` of `soft.norm`" in near.causes[0].message
    assert [edit.text for edit in near.edits] == ["`allow { recip }`"]
    report = load_source(SHARED).compile().apply(both.gm)
    assert report.counts == {"normed_relu": 1}
    assert report.refusals_of("normed_exp")[0].kind is RefusalKind.DIFFERENCE


def test_what_stands_there_goes_first() -> None:
    x, _ = operands(F32, 2)
    w = torch.ones(ODD)
    plain = traced(
        lambda x, w: (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w).relu(), x, w
    )
    divided = traced(lambda x, w: by_root(x, w).relu(), x, w)
    for captured, differs in ((plain, ()), (divided, ("recip",))):
        (fired,) = load_source(SHARED).compile().apply(captured.gm).fired
        assert fired.differs == differs


def test_an_edit_that_is_named_makes_the_rule_fire() -> None:
    x, v = operands(F32, 3)
    asked = graph(SPELLED["quotient by root"].spelled, x, v, 3.0)
    strict = rules("x * rsqrt(v)", "f32", "unproved")
    (near,) = strict.why(asked.gm).of("spelled").near
    assert [edit.text for edit in near.edits] == ["`allow { recip }`"]
    (rule,) = strict.program.rules
    edited = replace(rule, allow=(*rule.allow, replace(rule.allow[0], kind="recip")))
    program = replace(strict.program, rules=(edited,))
    assert CompiledRules(program).apply(asked.gm).counts == {"spelled": 1}


def test_no_edit_is_named_that_would_not_help() -> None:
    text = """
rule wide(x: f32[T, H], v: f32[T, H]) {
  match   { y = relu(x * rsqrt(v)) }
  replace { y = clamp_min(x * rsqrt(v), 0.0) }
  where   { H % 32 == 0 }
  allow   { unproved }
}
"""
    x, v = operands(F32, 3)
    asked = graph(SPELLED["quotient by root"].spelled, x, v, 3.0)
    (near,) = load_source(text).compile().why(asked.gm).of("wide").near
    assert [cause.code for cause in near.causes] == ["difference", "predicate-false"]
    assert near.edits == ()


def test_a_value_that_nobody_computed_is_not_kept() -> None:
    text = """
rule kept(x: f32[T, H], v: f32[T, H]) {
  match   { r = rsqrt(v); y = relu(x * r) }
  replace { r = r; y = clamp_min(x * r, 0.0) }
  allow   { unproved; recip }
}
"""
    x, v = operands(F32, 3)
    asked = graph(SPELLED["quotient by root"].spelled, x, v, 3.0)
    compiled = load_source(text).compile()
    assert compiled.apply(asked.gm).counts == {}
    (refusal,) = compiled.apply(asked.gm).settled
    assert "which the graph does not have" in refusal.message


# --- what is said before anything runs ----------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "dtype", "allow", "proved", "unneeded"),
    [
        ("x / 6.0", "f32", "recip", "up to {recip}", []),
        ("x / v", "bf16", "recip; round", "up to {round, recip}", []),
        ("x / v", "f32", "recip; round", "up to {recip}", ["round"]),
        ("x * rsqrt(v)", "f32", "recip", "up to {recip}", []),
        ("x / 4.0", "f32", "recip", "exact", ["recip"]),
        ("x * v", "f32", "recip", "exact", ["recip"]),
        ("x * rsqrt(v)", "f32", "relayout: y", "exact", []),
    ],
)
def test_consent_is_no_surplus_where_a_graph_may_need_it(
    body: str, dtype: str, allow: str, proved: str, unneeded: list[str]
) -> None:
    params = f"x: {dtype}[T, H]" + (f", v: {dtype}[T, H]" if "v" in body else "")
    given = "x, v" if "v" in body else "x"
    text = f"""
op fused.same({params}) -> (y: {dtype}[T, H]) {{
  means {{ y = relu({body}) }}
}}
rule same({params}) {{
  match   {{ y = relu({body}) }}
  replace {{ y = fused.same({given}) }}
  allow   {{ {allow} }}
}}
"""
    loaded = load_source(text)
    said = [d.message for d in loaded.warnings if d.code == "FD319"]
    assert said == [f"`same` allows `{kind}`, which does not occur" for kind in unneeded]
    assert str(loaded.compile().proof("same")) == proved
