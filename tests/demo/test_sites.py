"""Fused calls against the values they replace, on a graph small enough to know the answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

import fusiondsl
from fusiondsl.demo.run import shipped_rules
from fusiondsl.demo.sites import SiteComparison, compare_sites
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Report
from fusiondsl.ops import reference_ops
from fusiondsl.rules import load_source
from fusiondsl.verify.numerics import Comparison, PackedComparison
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


def rewritten(
    function: Callable[..., Any], rules: CompiledRules, *args: Tensor
) -> tuple[Report, list[SiteComparison]]:
    captured = post_grad(function, *args)
    before = captured.gm
    after = fx.GraphModule(before, copy.deepcopy(before.graph))
    report = rules.apply(after)
    arguments = [args[0].shape[0] if place is None else args[place] for place in captured.order]
    with reference_ops():
        return report, compare_sites(before, after, report, arguments)


def own_rules() -> CompiledRules:
    return load_source(RULES).compile(fusiondsl.Target())


def rows(width: int) -> Tensor:
    return torch.randn(3, width, generator=torch.Generator().manual_seed(0))


def test_every_replaced_value_is_compared_on_original_inputs() -> None:
    report, sites = rewritten(model, own_rules(), rows(16))
    assert report.counts == {"both": 1, "gated": 1}
    found = {(site.rule, site.results): site.found for site in sites}
    assert set(found) == {("gated", "glu_default"), ("both", "low"), ("both", "high")}
    low, gated, high = found["both", "low"], found["gated", "glu_default"], found["both", "high"]
    assert isinstance(low, Comparison)
    assert low.equal
    assert gated.mean_error < 1e-6
    assert high.mean_error > 0.1


def test_a_value_that_only_another_fused_call_reads() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        high = (x - 1.0) * 3.0
        low = high - 1.0
        return low * 3.0, low

    report, sites = rewritten(function, own_rules(), rows(8))
    assert report.counts == {"both": 2}
    assert len({site.node for site in sites if site.results == "high"}) == 2


def test_a_product_and_the_codes_it_is_made_of() -> None:
    rules = shipped_rules()
    codes, scales = torch.ops.fusiondsl.mxfp4_quant(rows(32).repeat(32, 1))

    def function(x: Tensor, weight: Tensor, weight_scale: Tensor) -> Any:
        half = x.shape[-1] // 2
        act = torch.nn.functional.silu(x[..., :half]) * x[..., half:]
        return torch.ops.fusiondsl.mxfp4_gemm(act, weight, weight_scale, torch.bfloat16)

    x = rows(64).bfloat16()
    report, sites = rewritten(function, rules, x, codes, scales.t().contiguous())
    assert report.counts == {"silu_mul_mxfp4_gemm": 1}
    assert [(site.results, site.quantity) for site in sites] == [
        ("codes, scales", "mxfp4"),
        ("y", "product"),
    ]
    assert isinstance(sites[0].found, PackedComparison)
    assert sites[0].found.code_steps <= 1
