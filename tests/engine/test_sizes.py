"""Sizes that only matched values determine: items of a split, views."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import fusiondsl

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
