"""Calls in any spelling: defaults, keywords, literals, lists, optional tensors, commutativity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import H, L, T, apply, refused, rewritten, rows, rules, vector
from tests.support.capture import traced

X, R, W = rows(), rows(salt=1), vector()

MIX = """
rule mixed(x: D[t..], gain: float) {
  match { m = lab.mix(x, [1, 2], gain = gain); y = lab.other(m) }
  replace { m = lab.mix(x, [1, 2], gain = gain); y = lab.twice(m) }
}
"""
PLAIN = """
rule plain(x: D[t..]) {
  match { m = lab.mix(x, [1, 2]); y = lab.act(m) }
  replace { y = lab.act_bump(lab.mix(x, [1, 2]), 0.0) }
}
"""


def edit(function: Callable[..., Any], change: Callable[[fx.Node], None]) -> Any:
    """A traced graph whose call of `lab.mix` is respelled by hand."""
    captured = traced(function, X)
    node = next(n for n in captured.gm.graph.nodes if "lab.mix" in str(n.target))
    change(node)
    captured.gm.recompile()
    return captured


def mixed(x: Tensor) -> Tensor:
    return L.act(L.mix(x, [1, 2]))


def respell(*args: Any, **kwargs: Any) -> Callable[[fx.Node], None]:
    def change(node: fx.Node) -> None:
        node.args = (node.args[0], *args)
        node.kwargs = kwargs

    return change


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (([1, 2],), {}),
        (([1, 2], None), {}),
        (([1, 2], None, 1.0), {}),
        (([1, 2], None, 1.0, False), {}),
        (((1, 2),), {"exact": False}),
        ((), {"parts": [1, 2]}),
        ((), {"gain": 1.0, "parts": [1, 2], "bias": None}),
        (([1, 2],), {"gain": 1}),
    ],
)
def test_spellings_of_one_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    captured = edit(mixed, respell(*args, **kwargs))
    applied = rewritten(captured, rules(PLAIN), (X,))
    assert applied.counts == {"plain": 1}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (([1, 2],), {"exact": True}),
        (([1, 2], None, 1.0, True), {}),
        (([1, 2], None, 2.0), {}),
        (([1, 2],), {"gain": 0.5}),
        (([2, 1],), {}),
        (([1, 2, 3],), {}),
        (([1],), {}),
        (([],), {}),
    ],
)
def test_calls_that_say_something_else(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    applied = rewritten(edit(mixed, respell(*args, **kwargs)), rules(PLAIN), (X,))
    refused(applied, "plain", RefusalKind.CONSTANT)


def test_an_optional_tensor_that_is_there() -> None:
    captured = traced(lambda x, r: L.act(L.mix(x, [1, 2], r)), X, R)
    assert not rewritten(captured, rules(PLAIN), (X, R)).counts


OPTIONAL = """
rule optional(x: D[t..], bias: D[t..]?, parts: int[], gain: float) {
  match { m = lab.mix(x, parts, bias, gain); y = lab.act(m) }
  replace { y = lab.act_bump(lab.mix(x, parts, bias, gain), 0.0) }
}
"""
REQUIRED = OPTIONAL.replace("D[t..]?", "D[t..]").replace("optional", "required")


@pytest.mark.parametrize("parts", [[], [3], [1, 2, 3]])
@pytest.mark.parametrize("there", [True, False])
def test_lists_and_optional_tensors_are_bound(parts: list[int], there: bool) -> None:
    def function(x: Tensor, r: Tensor) -> Any:
        return L.act(L.mix(x, parts, r if there else None, 0.5)), r

    captured = traced(function, X, R)
    applied = rewritten(captured, rules(OPTIONAL), (X, R))
    assert applied.counts == {"optional": 1}
    call = next(n for n in applied.graph.nodes if "lab.mix" in str(n.target))
    assert list(call.args[1]) == parts
    assert (call.args[2] is not None) is there
    applied = rewritten(traced(function, X, R), rules(REQUIRED), (X, R))
    assert applied.counts == ({"required": 1} if there else {})


# --- literals ------------------------------------------------------------------------------------


def scaled(literal: str) -> Any:
    return rules(
        f"""
        rule scaled(x: D[t..]) {{
          match {{ y = lab.act(x * {literal}) }}
          replace {{ y = lab.twice(x) }}
        }}"""
    )


@pytest.mark.parametrize("literal", [2, 2.0])
@pytest.mark.parametrize("given", [2, 2.0])
def test_numbers_are_compared_with_their_type(literal: Any, given: Any) -> None:
    applied = apply(traced(lambda x: L.act(x * given), X), scaled(str(literal)))
    assert bool(applied.counts) is (type(literal) is type(given))


def test_true_is_not_one() -> None:
    captured = traced(lambda x: L.act(x * 1), X)
    node = next(n for n in captured.gm.graph.nodes if "mul" in str(n.target))
    node.args = (node.args[0], True)
    applied = apply(captured, scaled("1"))
    refused(applied, "scaled", RefusalKind.CONSTANT, "true")


@pytest.mark.parametrize("given", [2, 2.0, True])
@pytest.mark.parametrize("kind", ["int", "float"])
def test_scalar_parameters_are_typed(kind: str, given: Any) -> None:
    text = f"""
    rule typed(x: D[t..], n: {kind}) {{
      match {{ y = lab.act(x * n) }}
      replace {{ y = lab.act_bump(x * n, 0.0) }}
    }}"""
    captured = traced(lambda x: L.act(x * 1), X)
    node = next(n for n in captured.gm.graph.nodes if "mul" in str(n.target))
    node.args = (node.args[0], given)
    assert bool(apply(captured, rules(text)).counts) is (type(given).__name__ == kind)


# --- commutativity and equal values --------------------------------------------------------------

SUM = """
rule summed(a: D[t..], b: D[t..]) {
  match { y = lab.act(a * 2.0 + b) }
  replace { y = lab.act_bump(b + a * 2.0, 0.0) }
}
"""


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: L.act(a * 2.0 + b),
        lambda a, b: L.act(b + a * 2.0),
        lambda a, b: L.act(b + 2.0 * a),
    ],
)
def test_commutative_operands(function: Any) -> None:
    assert rewritten(traced(function, X, R), rules(SUM), (X, R)).counts == {"summed": 1}


DIFFERENCE = """
rule difference(a: D[t..], b: D[t..]) {
  match { y = lab.act(lab.other(a) SIGN b) }
  replace { y = lab.act_bump(lab.other(a) SIGN b, 0.0) }
}
"""


@pytest.mark.parametrize("sign", ["-", "/"])
def test_other_operands_stay_in_order(sign: str) -> None:
    def apart(a: Tensor, b: Tensor) -> Tensor:
        return a - b if sign == "-" else a / b

    compiled = rules(DIFFERENCE.replace("SIGN", sign))
    captured = traced(lambda a, b: L.act(apart(L.other(a), b)), X, R)
    assert rewritten(captured, compiled, (X, R)).counts == {"difference": 1}
    captured = traced(lambda a, b: L.act(apart(b, L.other(a))), X, R)
    assert not rewritten(captured, compiled, (X, R)).counts


PAIR = """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
"""
SQUARE = """
rule square(a: D[t..]) {
  match { y = lab.act(a * a) }
  replace { y = lab.twice(a) }
}
"""


def test_two_names_are_never_one_value() -> None:
    applied = rewritten(traced(lambda a: L.act(a) + a, X), rules(PAIR), (X,))
    refused(applied, "pair", RefusalKind.STRUCTURE, "a", "b", "same value")


def test_one_name_is_one_value() -> None:
    assert rules(SQUARE).apply(traced(lambda a: L.act(a * a), X).gm).counts == {"square": 1}
    assert not rules(SQUARE).apply(traced(lambda a, b: L.act(a * b), X, R).gm).counts


@pytest.mark.parametrize("function", [lambda a: L.act(a * a.clone()), lambda a: L.act(a * a[:])])
def test_one_name_behind_what_changes_nothing(function: Any) -> None:
    captured = traced(function, X)
    report = rules(SQUARE).apply(captured.gm)
    captured.gm.graph.lint()
    assert report.counts in ({}, {"square": 1})


# --- devices, scalars from the graph -------------------------------------------------------------


@pytest.mark.parametrize("device", ["meta", "cuda:0", "cpu"])
def test_any_device(device: str) -> None:
    """Nothing runs: the graph is made of fakes."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x: Tensor, w: Tensor) -> Any:
        mask = torch.zeros(x.shape[0], 4, device=device)
        return (*L.group_codes(L.norm(x, w, 1e-6), 128), mask)

    with FakeTensorMode():
        x = torch.empty(T, H, dtype=torch.bfloat16, device=device)
        w = torch.empty(H, dtype=torch.bfloat16, device=device)
        gm = make_fx(function)(x, w)
    text = """
    rule fused(x: D[t.., H], w: D[H], eps: float, by: int) {
      match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
      replace { codes, scale = lab.norm_codes(x, w, eps, by) }
    }"""
    assert apply(gm, rules(text)).counts == {"fused": 1}
