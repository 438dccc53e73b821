"""Twelve kinds of small graphs on which fusion passes have failed, each with its right outcome."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import (
    EPS,
    F32,
    Applied,
    H,
    L,
    T,
    apply,
    refused,
    rewritten,
    rows,
    rule_file,
    rules,
    vector,
)
from tests.support.capture import Captured, post_grad, traced

Source = Callable[..., Any]
STRUCTURE, CONSTANT, DTYPE = RefusalKind.STRUCTURE, RefusalKind.CONSTANT, RefusalKind.DTYPE
SHAPE, LAYOUT, EXTRA = RefusalKind.SHAPE, RefusalKind.LAYOUT, RefusalKind.EXTRA_USER
UNKNOWN, FALSE = RefusalKind.PREDICATE_UNKNOWN, RefusalKind.PREDICATE_FALSE
EFFECT, LOST = RefusalKind.EFFECT, RefusalKind.LOST

X, W = rows(), vector()
X3 = X.view(1, T, H)
CAPTURES = [pytest.param(post_grad, id="post_grad"), pytest.param(traced, id="make_fx")]


GRAPHS = [
    pytest.param(post_grad, True, id="post_grad"),
    pytest.param(traced, True, id="make_fx"),
    pytest.param(traced, False, id="static"),
]


def base() -> CompiledRules:
    return rules(rule_file("pain_points.fuse"))


def source(x: Tensor, w: Tensor) -> Any:
    return L.group_codes(L.norm(x, w, EPS), 128)


def fires(captured: Captured, rule: str, *args: Tensor, given: int | None = T) -> Applied:
    applied = rewritten(captured, base(), args, given=given)
    assert applied.counts == {rule: 1}, str(applied.report)
    return applied


# --- 1: views, slices, reductions ----------------------------------------------------------------


@pytest.mark.parametrize(("capture", "dynamic"), GRAPHS)
@pytest.mark.parametrize(
    "between",
    [
        lambda n: n.view(-1, H),
        lambda n: n.reshape(n.shape[0], -1),
        lambda n: n.unsqueeze(0).squeeze(0),
        lambda n: n.view(-1, 4, 128).flatten(1),
        lambda n: n.clone(),
        lambda n: n[:, :H],
        lambda n: n.to(torch.bfloat16),
        lambda n: n.expand(n.shape).contiguous(),
    ],
    ids=["view", "reshape", "unsqueeze", "unflatten", "clone", "slice", "cast", "expand"],
)
def test_what_changes_nothing_may_stand_between(
    capture: Any, dynamic: bool, between: Source
) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(between(L.norm(x, w, EPS)), 128)

    applied = fires(capture(function, X, W, dynamic=dynamic), "norm_codes", X, W)
    assert applied.calls() == ["norm_codes"]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(
    ("before", "between"),
    [
        (lambda x: x, lambda n: n.view(-1, H)),
        (lambda x: x.view(-1, H), lambda n: n.view(1, -1, H)),
        (lambda x: x.transpose(0, 1), lambda n: n.view(-1, H)),
        (lambda x: x, lambda n: n.unsqueeze(1)),
    ],
    ids=["join", "split", "transposed", "more"],
)
def test_leading_dimensions_may_be_regrouped(capture: Any, before: Source, between: Source) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(between(L.norm(before(x), w, EPS)), 128)

    fires(capture(function, X3, W, dynamic=False), "norm_codes", X3, W)


@pytest.mark.parametrize(
    "between",
    [
        lambda n: n.view(-1, H // 2),
        lambda n: n.view(-1, 4, 128),
        lambda n: n[:, :384],
        lambda n: n[1:],
        lambda n: n.float(),
        lambda n: n.view(torch.float16),
        lambda n: n.flip(0),
        lambda n: n.t().contiguous().view(-1, H),
    ],
    ids=["last_dim", "groups", "columns", "rows", "dtype", "bits", "order", "transposed"],
)
def test_what_changes_something_may_not(between: Source) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(between(L.norm(x, w, EPS)), 128)

    applied = rewritten(traced(function, X, W, dynamic=False), base(), (X, W))
    refused(applied, "norm_codes", STRUCTURE, "lab.norm", "found aten")


@pytest.mark.parametrize(("capture", "dynamic"), GRAPHS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(x.shape[0], x.shape[1] // 128, 128).float().abs().amax(-1),
        lambda x: x.reshape(-1, H // 128, 128).float().abs().amax(-1),
        lambda x: x.view(x.shape[0], 4, 128).float().abs().amax(2),
        lambda x: x.unflatten(-1, (4, 128)).float().abs().amax((-1,)),
        lambda x: x.unflatten(-1, (4, 128)).float().abs().max(-1).values,
        lambda x: x.float().view(-1, 4, 128).abs().amax(-1),
    ],
    ids=["own", "reshape", "axis", "unflatten", "max", "cast_first"],
)
def test_spellings_of_a_group_maximum(capture: Any, dynamic: bool, function: Source) -> None:
    fires(capture(function, X, dynamic=dynamic), "group_max", X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1, 4, 128).float().abs().amax(1),
        lambda x: x.view(-1, 8, 64).float().abs().amax(-1),
        lambda x: x.view(-1, 4, 128).abs().amax(-1),
        lambda x: x.view(-1, 4, 128).float().amax(-1),
        lambda x: x.view(-1, 4, 128).float().abs().amin(-1),
        lambda x: x.view(-1, 4, 128).float().abs().amax((-1, -2)),
    ],
    ids=["axis", "groups", "no_cast", "no_abs", "minimum", "two_axes"],
)
def test_other_reductions(function: Source) -> None:
    applied = rewritten(post_grad(function, X), base(), (X,), given=T)
    assert not applied.counts


# --- 2: fan-out ----------------------------------------------------------------------------------

GATE = rows(H, 8, 5)
KEEP = """
rule norm_codes_keep(x: D[t.., H], w: D[H], eps: float, group: int) {
  match {
    n = lab.norm(x, w, eps)
    codes, scale = lab.group_codes(n, group)
  }
  replace { codes, scale, n = lab.norm_codes_keep(x, w, eps, group) }
}
"""


def gated(x: Tensor, w: Tensor, gate: Tensor) -> Any:
    n = L.norm(x, w, EPS)
    return L.group_codes(n, 128), n @ gate


def gated_first(x: Tensor, w: Tensor, gate: Tensor) -> Any:
    n = L.norm(x, w, EPS)
    return n @ gate, L.group_codes(n, 128)


def returned(x: Tensor, w: Tensor, gate: Tensor) -> Any:
    n = L.norm(x, w, EPS)
    return L.group_codes(n, 128), n, gate


def viewed(x: Tensor, w: Tensor, gate: Tensor) -> Any:
    n = L.norm(x, w, EPS)
    return L.group_codes(n, 128), n.view(-1, 4, 128).sum(1), gate


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("function", [gated, gated_first, returned, viewed])
def test_a_second_user_of_an_inner_value(capture: Any, function: Source) -> None:
    captured = capture(function, X, W, GATE, dynamic=False)
    applied = rewritten(captured, base(), (X, W, GATE))
    refused(applied, "norm_codes", EXTRA, "n (norm", "is also used by")
    captured = capture(function, X, W, GATE, dynamic=False)
    assert rewritten(captured, rules(KEEP), (X, W, GATE)).counts == {"norm_codes_keep": 1}


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("times", [2, 3])
def test_repeated_consumers_share_one_fused_op(capture: Any, times: int) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS)
        return [L.group_codes(n, 128) for _ in range(times)]

    applied = fires(capture(function, X, W), "norm_codes", X, W)
    assert applied.calls() == ["norm_codes"]


@pytest.mark.parametrize("capture", CAPTURES)
def test_repeated_producers(capture: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return [L.group_codes(L.norm(x, w, EPS), 128) for _ in range(2)]

    applied = rewritten(capture(function, X, W), base(), (X, W), given=T)
    assert set(applied.calls()) == {"norm_codes"}


def test_consumers_that_differ_are_not_merged() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS)
        return L.group_codes(n, 128), L.group_codes(n, 128, True)

    applied = rewritten(traced(function, X, W), base(), (X, W))
    refused(applied, "norm_codes", EXTRA, "n (norm", "group_codes_1")


# --- 3: dead outputs -----------------------------------------------------------------------------

R = rows(salt=1)


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(
    "pick",
    [
        lambda codes, scale, total: (codes, scale, total),
        lambda codes, scale, total: (codes, scale),
        lambda codes, scale, total: (codes, total),
        lambda codes, scale, total: (scale, total),
        lambda codes, scale, total: codes.float(),
        lambda codes, scale, total: scale,
    ],
    ids=["all", "no_residual", "no_scale", "no_codes", "codes", "scale"],
)
def test_dead_outputs(capture: Any, pick: Source) -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        n, total = L.add_norm(x, r, w, EPS)
        return pick(*L.group_codes(n, 128), total)

    fires(capture(function, X, R, W), "add_norm_codes", X, R, W)


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_dead_call_is_no_source(capture: Any) -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        return L.add_norm(x, r, w, EPS)[1]

    applied = rewritten(capture(function, X, R, W), base(), (X, R, W), given=T)
    assert not applied.counts


# --- 4: weights of another dtype -----------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_gemma_weight_is_bound_before_the_sum(capture: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(x, w.float() + 1.0, EPS), 128)

    applied = fires(capture(function, X, W), "gemma_codes", X, W)
    call = next(n for n in applied.graph.nodes if "gemma_codes" in str(n.target))
    assert call.args[1].op == "placeholder"
    plain = rules(rule_file("pain_points.fuse").partition("# Binds")[0])
    applied = rewritten(capture(function, X, W), plain, (X, W), given=T)
    refused(applied, "norm_codes", DTYPE, "w is f32", "D is bf16")


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("dtype", [F32, torch.float16])
def test_a_weight_parameter_of_another_dtype(capture: Any, dtype: torch.dtype) -> None:
    w = vector(dtype=dtype)
    applied = rewritten(capture(source, X, w), base(), (X, w), given=T)
    refused(applied, "norm_codes", DTYPE, "w is f")


# --- 5: constants and predicates -----------------------------------------------------------------

BOUND = """
rule bound(x: D[t.., H], w: D[H], eps: float, group: int) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, group) }
  replace { codes, scale = lab.norm_codes(x, w, eps, group) }
}
"""


@pytest.mark.parametrize(
    ("eps", "group", "culprit"), [(1e-5, 128, "1e-05"), (EPS, 64, "64"), (1e-5, 256, "256")]
)
def test_constants(eps: float, group: int, culprit: str) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(x, w, eps), group)

    applied = rewritten(post_grad(function, X, W), base(), (X, W), given=T)
    refused(applied, "norm_codes", CONSTANT, culprit)
    applied = rewritten(post_grad(function, X, W), rules(BOUND), (X, W), given=T)
    assert applied.counts == {"bound": 1}
    call = next(n for n in applied.graph.nodes if "norm_codes" in str(n.target))
    assert call.args[2:] == (eps, group)


TWO = """
rule narrow(x: D[t.., H], w: D[H]) {
  match { n = lab.norm(x, w, 1e-6); codes, scale = lab.group_codes(n, 128) }
  replace { codes, scale = lab.norm_codes(x, w, 1e-6, 128) }
  where { width: H <= 256 }
}
rule wide(x: D[t.., H], w: D[H]) {
  match { n = lab.norm(x, w, 1e-6); codes, scale = lab.group_codes(n, 128) }
  replace {
    codes, scale, n = lab.norm_codes_keep(x, w, 1e-6, 128)
  }
  where { width: H > 256 }
  after narrow
}
"""


@pytest.mark.parametrize(("width", "winner", "loser"), [(256, "narrow", "wide"), (512, "wide", "")])
def test_one_source_two_predicates(width: int, winner: str, loser: str) -> None:
    x, w = rows(width=width), vector(width)
    applied = rewritten(post_grad(source, x, w), rules(TWO), (x, w), given=T)
    assert applied.counts == {winner: 1}
    if not loser:
        assert refused(applied, "narrow", FALSE, "H").label == "width"


SPLIT = """
rule halves(x: D[t.., 256], w: D[128]) {
  match {
    a, b = split(x, [128, 128])
    n = lab.norm(a, w, 1e-6)
    s = n + b
  }
  replace { n = lab.norm(a, w, 1e-6); s = lab.other(n) }
  where { t < 0 }
}
"""


def test_a_split_of_another_width() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        a, b = x.split([256, 256], -1)
        return L.norm(a, w[:256], EPS) + b

    applied = rewritten(post_grad(function, X, W), rules(SPLIT), (X, W), given=T)
    assert applied.refusal("halves").kind in (CONSTANT, SHAPE)


# --- 6: partial rotary ---------------------------------------------------------------------------

ROTARY = """
rule full_rotary(q: D[N, T, 2 * B], cos: D[T, B], sin: D[T, B]) {
  match {
    a = q[.., :B]
    b = q[.., B:]
    y = cat([a * cos - b * sin, b * cos + a * sin], -1)
  }
  replace { y = lab.turn(q, cos, sin) }
}
"""


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotate_some(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = 2 * cos.shape[-1]
    return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), -1)


def rotary_args(width: int) -> tuple[Tensor, ...]:
    heads = rows(4 * T, 128, dtype=F32).view(4, T, 128)
    return heads, rows(T, width, 1, F32), rows(T, width, 2, F32)


@pytest.mark.parametrize("capture", CAPTURES)
def test_full_rotary(capture: Any) -> None:
    args = rotary_args(64)
    applied = rewritten(capture(rotate, *args, dynamic=False), rules(ROTARY), args)
    assert applied.counts == {"full_rotary": 1}


def test_partial_rotary_is_not_full_rotary() -> None:
    args = rotary_args(32)
    applied = rewritten(traced(rotate_some, *args, dynamic=False), rules(ROTARY), args)
    assert not applied.counts
    refused(applied, "full_rotary", LAYOUT, "x of lab.turn", "contiguous")


def test_partial_rotary_never_takes_the_whole_head() -> None:
    args = rotary_args(32)
    applied = rewritten(traced(rotate_some, *args, dynamic=False), rules(ROTARY), args)
    calls = [n for n in applied.graph.nodes if "lab.turn" in str(n.target)]
    assert all(call.args[0].meta["val"].shape[-1] == 64 for call in calls)


# --- 7: token bounds -----------------------------------------------------------------------------

BOUNDED = """
rule bounded(x: D[tokens.., H], w: D[H]) {
  match { n = lab.norm(x, w, 1e-6); codes, scale = lab.group_codes(n, 128) }
  replace { codes, scale = lab.norm_codes(x, w, 1e-6, 128) }
  where { few: tokens <= LIMIT }
}
"""


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("limit", [4, 256])
def test_a_token_bound_is_proved_or_refused(capture: Any, limit: int) -> None:
    compiled = rules(BOUNDED.replace("LIMIT", str(limit)))
    applied = rewritten(capture(source, X, W), compiled, (X, W), given=T)
    refusal = refused(applied, "bounded", UNKNOWN, "tokens", str(limit))
    assert refusal.label == "few"
    inside, across, beyond = range(1, limit + 1), range(1, limit + 2), range(limit + 1, 9000)
    applied = apply(capture(source, X, W), compiled, across)
    refused(applied, "bounded", UNKNOWN, str(limit), str(limit + 1))
    applied = apply(capture(source, X, W), compiled, beyond)
    refused(applied, "bounded", FALSE, str(limit))
    applied = rewritten(capture(source, X, W), compiled, (X, W), inside, given=T)
    assert applied.counts == {"bounded": 1}


def test_a_byte_bound() -> None:
    text = BOUNDED.replace("tokens <= LIMIT", "tokens * H * itemsize(D) <= 256 KiB")
    fine = apply(post_grad(source, X, W), rules(text), range(1, 257))
    assert fine.counts == {"bounded": 1}
    over = apply(post_grad(source, X, W), rules(text), range(1, 258))
    refused(over, "bounded", UNKNOWN, "tokens")


@pytest.mark.parametrize("tokens", [1, 4, 256, 257])
def test_static_tokens_decide_a_bound(tokens: int) -> None:
    x = rows(tokens)
    compiled = rules(BOUNDED.replace("LIMIT", "256"))
    applied = rewritten(post_grad(source, x, W, dynamic=False), compiled, (x, W))
    assert applied.counts == ({"bounded": 1} if tokens <= 256 else {})


def test_tokens_of_three_dimensions_are_their_product() -> None:
    x = rows(64).view(4, 16, H)
    compiled = rules(BOUNDED.replace("LIMIT", "64"))
    assert apply(traced(source, x, W, dynamic=False), compiled).counts == {"bounded": 1}
    compiled = rules(BOUNDED.replace("LIMIT", "63"))
    refused(apply(traced(source, x, W, dynamic=False), compiled), "bounded", FALSE, "64")


# --- 8: the contract of the replacement ----------------------------------------------------------


def codes_of(text: str) -> list[str]:
    with pytest.raises(FusionError) as caught:
        rules(text)
    return [d.code for d in caught.value.diagnostics]


def test_another_fp8_flavour_is_refused_by_the_checker() -> None:
    text = BOUND.replace("lab.norm_codes(", "lab.norm_codes_z(")
    assert codes_of(text) == ["FD304"]


def test_an_attribute_nobody_consumes_is_refused_by_the_checker() -> None:
    lossy = BOUND.replace("group: int)", "group: int, pow2: bool)").replace(
        "lab.group_codes(n, group)", "lab.group_codes(n, group, pow2 = pow2)"
    )
    assert codes_of(lossy) == ["FD308"]


def test_an_attribute_with_another_value_is_another_source() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(x, w, EPS), 128, True)

    applied = rewritten(post_grad(function, X, W), base(), (X, W), given=T)
    refused(applied, "norm_codes", CONSTANT, "true")


def test_another_layout_is_refused_at_the_site() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(x, w, EPS), 128, False, True)

    text = BOUND.replace("lab.group_codes(n, group)", "lab.group_codes(n, group, by_column = true)")
    applied = rewritten(post_grad(function, X, W), rules(text), (X, W), given=T)
    refused(applied, "bound", LAYOUT, "scale", "strides")


# --- 9: e8m0 scales ------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("dynamic", [True, False])
def test_e8m0_scales(capture: Any, dynamic: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.mx_codes(L.norm(x, w, EPS))

    fires(capture(function, X, W, dynamic=dynamic), "norm_mx", X, W)


# --- 10: mutating producers ----------------------------------------------------------------------

INTO = """
rule into(x: D[t.., H], w: D[H], eps: float, group: int) {
  match { n = lab.norm_into(x, w, eps); codes, scale = lab.group_codes(n, group) }
  replace { codes, scale = lab.norm_codes(x, w, eps, group) }
}
"""
FORMS = [
    pytest.param(lambda f, *a: post_grad(f, *a, functionalized=1), id="v1"),
    pytest.param(lambda f, *a: post_grad(f, *a, functionalized=2), id="v2"),
    pytest.param(lambda f, *a: traced(f, *a), id="raw"),
]


def buffered(x: Tensor, w: Tensor) -> Any:
    n = torch.empty_like(x)
    L.norm_into(n, x, w, EPS)
    return L.group_codes(n, 128)


@pytest.mark.parametrize("capture", FORMS)
def test_a_mutating_producer(capture: Any) -> None:
    applied = rewritten(capture(buffered, X, W), rules(INTO), (X, W), given=T)
    assert applied.counts == {"into": 1}
    assert applied.calls() == ["norm_codes"]
    assert not any("empty" in str(n.target) for n in applied.graph.nodes)


@pytest.mark.parametrize("capture", FORMS)
@pytest.mark.parametrize("write", ["add_", "bump", "view", "row", "copy", "again"])
def test_a_write_in_between(capture: Any, write: str) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = torch.empty_like(x)
        L.norm_into(n, x, w, EPS)
        if write == "add_":
            n.add_(1)
        elif write == "bump":
            L.bump(n, 1.0)
        elif write == "view":
            n.view(-1).mul_(2)
        elif write == "row":
            n[0].zero_()
        elif write == "copy":
            n.copy_(x)
        else:
            L.norm_into(n[1:], x[1:], w, 1e-3)
        return L.group_codes(n, 128)

    applied = rewritten(capture(function, X, W), rules(INTO), (X, W), given=T)
    assert not applied.counts


@pytest.mark.parametrize("capture", FORMS)
@pytest.mark.parametrize("write", ["input", "weight"])
def test_an_input_written_in_between(capture: Any, write: str) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        x, w = x + 1, w + 1
        n = torch.empty_like(x)
        L.norm_into(n, x, w, EPS)
        (x if write == "input" else w).mul_(3)
        return L.group_codes(n, 128), x.sum() + w.sum()

    rewritten(capture(function, X, W), rules(INTO), (X, W), given=T)


@pytest.mark.parametrize("capture", FORMS)
def test_a_buffer_read_later(capture: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = torch.empty_like(x)
        L.norm_into(n, x, w, EPS)
        return L.group_codes(n, 128), n @ w

    applied = rewritten(capture(function, X, W), rules(INTO), (X, W), given=T)
    assert applied.refusal("into").kind in (EXTRA, EFFECT)


@pytest.mark.parametrize("capture", FORMS)
def test_a_buffer_that_is_returned(capture: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = torch.empty_like(x)
        L.norm_into(n, x, w, EPS)
        return L.group_codes(n, 128), n

    applied = rewritten(capture(function, X, W), rules(INTO), (X, W), given=T)
    assert applied.refusal("into").kind in (EXTRA, EFFECT)


@pytest.mark.parametrize("capture", FORMS)
def test_a_buffer_read_through_an_alias(capture: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = torch.empty_like(x)
        flat = n.view(-1)
        L.norm_into(n, x, w, EPS)
        return L.group_codes(n, 128), flat + 1

    applied = rewritten(capture(function, X, W), rules(INTO), (X, W), given=T)
    assert not applied.counts


@pytest.mark.parametrize("capture", FORMS)
def test_a_buffer_of_the_caller(capture: Any) -> None:
    def function(x: Tensor, n: Tensor, w: Tensor) -> Any:
        L.norm_into(n, x, w, EPS)
        return L.group_codes(n, 128)

    args = (X, torch.zeros_like(X), W)
    captured = capture(function, *args)
    mine = [a.clone() for a in args]
    captured.run(mine, T)
    applied = rewritten(captured, rules(INTO), args, given=T)
    theirs = [a.clone() for a in args]
    captured.run(theirs, T)
    assert torch.equal(mine[1], theirs[1]), applied.report


# --- 11: placement -------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_an_input_made_after_a_user_of_an_output(capture: Any) -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        t = L.act(a)
        early = L.other(t)
        late = L.other(b)
        return early, late + t

    fires(capture(function, X, R), "act_sum", X, R)


@pytest.mark.parametrize("capture", CAPTURES)
def test_long_chains_move(capture: Any) -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        t = L.act(a)
        early = L.other(L.other(t) + 1)
        late = L.other(L.other(b) * 2)
        return early, late + t, early + late

    fires(capture(function, X, R), "act_sum", X, R)


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_an_input_computed_from_an_output(capture: Any, steps: int) -> None:
    def function(a: Tensor) -> Any:
        t = L.act(a)
        b = t
        for _ in range(steps):
            b = L.other(b)
        return b + t

    applied = rewritten(capture(function, X), base(), (X,), given=T)
    refused(applied, "act_sum", STRUCTURE, "cycle")


@pytest.mark.parametrize("capture", CAPTURES)
def test_sites_that_would_make_a_cycle_together(capture: Any) -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        first, second = L.act(a), L.act(b)
        return L.other(second) + first, L.other(first) + second

    applied = rewritten(capture(function, X, R), base(), (X, R), given=T)
    assert applied.counts == {"act_sum": 1}
    assert any("cycle" in str(refusal) for refusal in applied.report.refused)


# --- 12: competing rules -------------------------------------------------------------------------

COMPETING = {
    "a": """rule reduce_norm(x: D[t.., H], w: D[H], eps: float, group: str) {
      match { r = lab.reduce(x, group); n = lab.norm(r, w, eps) }
      replace { n = lab.reduce_norm(x, w, eps, group) }
    }""",
    "b": """rule norm_then_codes(x: D[t.., H], w: D[H], eps: float, by: int) {
      match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
      replace { codes, scale = lab.norm_codes(x, w, eps, by) }
    }""",
    "c": """rule all_three(x: D[t.., H], w: D[H], eps: float, by: int, group: str) {
      match {
        r = lab.reduce(x, group); n = lab.norm(r, w, eps); codes, scale = lab.group_codes(n, by)
      }
      replace { codes, scale = lab.reduce_norm_codes(x, w, eps, by, group) }
    }""",
}
ORDERS = ["abc", "acb", "bac", "bca", "cab", "cba"]


def competing(order: str) -> CompiledRules:
    return rules("\n".join(COMPETING[name] for name in order))


@pytest.mark.parametrize("order", ORDERS)
def test_the_widest_rule_wins_whatever_the_order(order: str) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(L.reduce(x, "tp"), w, EPS), 128)

    applied = rewritten(traced(function, X, W), competing(order), (X, W))
    assert applied.counts == {"all_three": 1}
    assert applied.calls() == ["reduce_norm_codes"]
    for loser in ("reduce_norm", "norm_then_codes"):
        refused(applied, loser, LOST, "all_three")


def test_where_the_widest_rule_cannot_fire_another_does() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        r = L.reduce(x, "tp")
        n = L.norm(r, w, EPS)
        return L.group_codes(n, 128), r

    applied = rewritten(traced(function, X, W), competing("abc"), (X, W))
    assert applied.counts == {"norm_then_codes": 1}
    refused(applied, "all_three", EXTRA, "r (reduce")
    refused(applied, "reduce_norm", EXTRA, "r (reduce")


def test_many_layers_in_any_order() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        outputs = []
        for _ in range(4):
            codes, scale = L.group_codes(L.norm(L.reduce(x, "tp"), w, EPS), 128)
            x = (codes.float() * scale.repeat_interleave(128, -1)).to(x.dtype)
            outputs.append(L.norm(L.reduce(x, "tp"), w, EPS))
        return outputs, x

    texts = set()
    for order in random.Random(0).sample(ORDERS, 3):
        captured = traced(function, X, W)
        applied = rewritten(captured, competing(order), (X, W))
        assert applied.counts == {"all_three": 4, "reduce_norm": 4}
        texts.add(str(applied.graph))
    assert len(texts) == 1
