"""Rules in `torch.compile`: slots and what is in them, settings, dynamic sizes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._inductor import compile_fx, config
from torch._inductor.custom_graph_pass import CustomGraphPass, CustomInferenceAwareGraphPass

import fusiondsl
from fusiondsl.engine.graph_pass import REPORT
from fusiondsl.integrations import torch_compile
from fusiondsl.integrations.torch_compile import RequiredRuleError, install, installed, uninstall

GLU = """
extern op aten.glu(self: D[t.., 2 * N], dim: int = -1) -> D[t.., N]

rule gated(x: D[t.., 2 * N]) {
  match { y = x[.., :N] * sigmoid(x[.., N:]) }
  replace { y = aten.glu(x) }
  where { vectors: N % 8 == 0 }
  allow { round }
}

op twice(x: D[t..]) -> (y: D[t..]) {
  means { y = x + x }
  impl "tests.integrations.kernels:twice"(x) -> y
}

rule doubled(x: D[t..]) {
  match { y = x + x }
  replace { y = twice(x) }
  allow { round }
}
"""
POST, PRE = "post_grad_custom_post_pass", "post_grad_custom_pre_pass"


@pytest.fixture
def rules(tmp_path: Path) -> fusiondsl.CompiledRules:
    (tmp_path / "glu.fuse").write_text(GLU)
    return fusiondsl.load(tmp_path / "glu.fuse").compile()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing compiled, nothing cached, nothing in the slots: before and after."""
    torch._dynamo.reset()
    with config.patch({POST: None, PRE: None, "force_disable_caches": True}), torch.no_grad():
        yield
        assert getattr(config, POST) is None
        assert getattr(config, PRE) is None


def gate(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x[..., :half] * torch.sigmoid(x[..., half:])


def compiled(**settings: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(gate, fullgraph=True, **settings)


X = torch.randn(7, 128)


# --- installing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["pre", "post"])
def test_one_call_installs(rules: fusiondsl.CompiledRules, slot: Any) -> None:
    fusion = install(rules, slot=slot)
    torch.testing.assert_close(compiled()(X), gate(X))
    assert fusion.last_report is not None
    assert fusion.last_report.counts == {"gated": 1}
    uninstall(fusion)
    compiled()(X)
    assert len(fusion.reports) == 1
