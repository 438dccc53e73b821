"""Fused calls against the values they replace, on a graph small enough to know the answer."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, fx

import fusiondsl
from fusiondsl.demo.sites import SiteComparison, compare_sites
from fusiondsl.engine.report import Report
from fusiondsl.ops import reference_ops
from fusiondsl.rules import load_source
from fusiondsl.verify.numerics import Comparison
from tests.support.capture import post_grad

# `both` is wrong about `high`: the comparison must show it.
RULES = """
extern op aten.glu(self: D[t.., 2 * N], dim: int = -1) -> D[t.., N]

op demo_test.both(x: D[t.., H]) -> (low: D[t.., H], high: D[t.., H]) {
  means {
    low = x - 1.0
    high = x + 5.0
  }
}

rule gated(x: D[t.., 2 * N]) {
  match { y = x[.., :N] * sigmoid(x[.., N:]) }
  replace { y = aten.glu(x) }
  allow { round }
}

rule both(x: D[t.., H]) {
  match {
    low = x - 1.0
    high = low * 3.0
  }
  replace { low, high = demo_test.both(x) }
}
"""


def model(x: Tensor) -> tuple[Tensor, Tensor]:
    low = x[..., :8] * torch.sigmoid(x[..., 8:]) - 1.0
    return low * 3.0, low.abs()


def rewritten() -> tuple[Report, list[SiteComparison]]:
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    captured = post_grad(model, x)
    before = captured.gm
    after = fx.GraphModule(before, copy.deepcopy(before.graph))
    report = load_source(RULES).compile(fusiondsl.Target()).apply(after)
    arguments = [3 if place is None else x for place in captured.order]
    with reference_ops():
        return report, compare_sites(before, after, report, arguments)


def test_every_replaced_value_is_compared_on_original_inputs() -> None:
    report, sites = rewritten()
    assert report.counts == {"both": 1, "gated": 1}
    found = {(site.rule, site.results): site.found for site in sites}
    assert set(found) == {("gated", "glu_default"), ("both", "low"), ("both", "high")}
    low, gated, high = found["both", "low"], found["gated", "glu_default"], found["both", "high"]
    assert isinstance(low, Comparison)
    assert low.equal
    assert gated.mean_error < 1e-6
    assert high.mean_error > 0.1
