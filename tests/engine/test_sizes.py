"""Sizes that only matched values determine: items of a split, views."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import fusiondsl
from fusiondsl.engine.report import RefusalKind
from fusiondsl.graphs import read

SPLIT = """
rule parts(x: D[t.., Q + 2 * K]) {
  match {
    a, b, c = split(x, [Q, K, K], -1)
    y = b + c
    z = neg(a)
  }
  replace {
    y = c + b
    z = a * -1.0
  }
  where { wide: Q >= 2 * K }
}
"""

VIEW = """
rule rows(x: D[t.., G * W]) {
  match {
    v = x.view(t.., G, W)
    y = abs(v)
  }
  replace { y = relu(v) + relu(neg(v)) }
  where { even: W % 2 == 0 }
}
"""


def _apply(rules: str, function: Any, *args: torch.Tensor) -> tuple[fusiondsl.Report, Any]:
    gm = make_fx(function, tracing_mode="fake")(*args)
    report = fusiondsl.load_source(rules).compile().apply(gm)
    gm.graph.lint()
    torch.testing.assert_close(gm(*args), function(*args), rtol=0, atol=0)
    return report, gm


@pytest.mark.parametrize(("q", "k", "fires"), [(256, 128, 1), (128, 64, 1), (64, 64, 0)])
def test_the_items_of_a_split_give_its_sizes(q: int, k: int, fires: int) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b, c = x.split([q, k, k], -1)
        return b + c, -a

    report, _ = _apply(SPLIT, function, torch.randn(5, q + 2 * k))
    assert report.counts.get("parts", 0) == fires
    if not fires:
        (refusal,) = report.refusals_of("parts")
        assert refusal.label == "wide"


def test_sites_that_differ_only_in_the_size_of_a_view_are_judged_apart() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view(5, 2, 6).abs(), x.view(5, 4, 3).abs()

    report, _ = _apply(VIEW, function, torch.randn(5, 12))
    assert report.counts == {"rows": 1}
    (refusal,) = report.refusals_of("rows")
    assert refusal.label == "even"


TURN = """
extern op mine.turn(x: D[T, H], at: i64[T]) -> D[T, H]
extern op mine.act(x: D[t.., H]) -> D[t.., H]
extern op mine.act_turn(x: D[T, H], at: i64[T]) -> D[T, H]
extern op mine.act_sum(x: D[T, H], y: D[T, H]) -> D[T, H]
rule turned(x: D[tokens, H], at: i64[tokens]) {
  match { y = mine.turn(mine.act(x), at) }
  replace { y = mine.act_turn(x, at) }
  where { few: tokens <= 64 }
}
rule summed(x: D[tokens, H], y: D[tokens, H]) {
  match { z = mine.act(x) + y * 2.0 }
  replace { z = mine.act_sum(x, y) }
}
"""
TWO = """\
class M(torch.nn.Module):
    def forward(self, s1: "Sym(s1)", s2: "Sym(s2)", x: "f32[s1, 8][8, 1]cpu",
        at: "i64[s2][1]cpu"{more}):
        act: "f32[s1, 8][8, 1]cpu" = torch.ops.mine.act.default(x)
        {call}
        return ({result},)
"""


@pytest.mark.parametrize(("tokens", "fires"), [(64, 1), (65, 0)])
def test_one_size_under_two_names(tokens: int, fires: int) -> None:
    """The op is declared for as many places as rows, so a graph with it has as many."""
    rules = fusiondsl.load_source(TURN).compile()
    call = 'y: "f32[s1, 8][8, 1]cpu" = torch.ops.mine.turn.default(act, at)'
    (found,) = read(TWO.format(call=call, result="y", more=""), program=rules.program)
    report = rules.apply(found.gm, tokens=range(1, tokens + 1))
    assert report.counts == ({"turned": 1} if fires else {})
    assert not found.symbols.shape_env.guards
    assert not found.symbols.shape_env.replacements
    if not fires:
        (refusal,) = report.refusals_of("turned")
        assert refusal.label == "few"


def test_two_sizes_that_no_call_needs_to_be_one() -> None:
    rules = fusiondsl.load_source(TURN).compile()
    call = """twice: "f32[s2, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(other, 2.0)
        sum_1: "f32[s1, 8][8, 1]cpu" = torch.ops.aten.add.Tensor(act, twice)"""
    more = ', other: "f32[s2, 8][8, 1]cpu"'
    text = TWO.format(call=call, result="sum_1", more=more)
    (found,) = read(text, program=rules.program)
    report = rules.apply(found.gm, tokens=range(1, 65))
    assert report.counts == {}
    (refusal,) = report.refusals_of("summed")
    assert refusal.kind is RefusalKind.SHAPE
    assert refusal.message.endswith("s2 is not provably equal")
