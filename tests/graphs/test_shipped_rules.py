"""The shipped rules on graphs of real models: only what should fire does, and nothing breaks."""

from __future__ import annotations

from collections import Counter

import pytest

import fusiondsl
from fusiondsl import CompiledRules, Target
from fusiondsl.graphs import OpaqueOp, read
from fusiondsl.graphs.saved import dumps
from fusiondsl.resources import patterns_root
from tests.graphs.test_reader import CASES, INDEX

FACTS: dict[str, int | float | str | bool] = {
    "env.aiter": True,
    "env.aiter_dynamic_hidden": True,
    "env.aiter_allreduce_group_quant": True,
    "env.vllm": True,
}
FIRES = {
    # Tensor parallel: both norms of a layer stand behind an all-reduce.
    "llama.gpuops.tp2_rank0.r1-256.g0": {"allreduce_rms_norm": 1},
    "llama.gpuops.tp2_rank0.r1-256.g1": {"allreduce_add_rms_norm": 2},
    "llama.gpuops.tp2_rank0.r1-256.g4": {"allreduce_add_rms_norm": 2},
    "llama_fp8_static.gpuops.r1-256.g0": {"rms_norm_static_quant": 1},
    "llama_fp8_static.gpuops.r1-256.g1": {
        "add_rms_norm_static_quant": 2,
        "silu_mul_static_quant": 1,
    },
    "llama_fp8_static.gpuops.r1-256.g4": {
        "add_rms_norm_static_quant": 1,
        "silu_mul_static_quant": 1,
    },
    # The model calls SiLU-mul with quantisation itself.
    "llama_fp8_static_ct.gpuops.r1-256.g1": {"add_rms_norm_static_quant": 2},
    "llama_fp8_static_ct.gpuops.r1-256.g4": {"add_rms_norm_static_quant": 1},
    # Multi-head latent attention.
    "dsv2.native.r1-2048.g0": {"mla_dual_rms_norm": 1},
    "dsv2.native.r1-2048.g1": {"mla_dual_rms_norm": 1},
    "dsv2.native.r1-2048.g2": {"mla_dual_rms_norm": 1},
    "dsv3.native.r1-2048.g2": {"mla_dual_rms_norm": 1},
}
FEW = {stem: range(1, 81) for stem in FIRES if ".tp2_" in stem}
"""Their rows are too narrow for an all-reduce in two stages, which more tokens take."""


@pytest.fixture(scope="module")
def rules() -> CompiledRules:
    target = Target(arch="gfx950", tp_size=2, tp_group="tp:0", facts=FACTS)
    return fusiondsl.load(patterns_root()).compile(target)


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_real_graphs(stem: str, rules: CompiledRules) -> None:
    (found,) = read(CASES / f"{stem}.txt", program=rules.program)
    before = found.gm.code
    report = rules.apply(found.gm, tokens=FEW.get(stem, range(1, 2049)))
    assert report.counts == FIRES.get(stem, {})
    assert (found.gm.code == before) == (not report.fired)
    found.gm.graph.lint()
    assert not found.symbols.shape_env.guards
    assert not found.symbols.shape_env.replacements
    assert dumps(found.gm)


def test_opaque_ops_are_left_alone(rules: CompiledRules) -> None:
    (found,) = read(CASES / "llama_int8_dyn.gpuops.r1-256.g4.txt")

    def opaque() -> Counter[str]:
        calls = (n for n in found.gm.graph.nodes if n.op == "call_function")
        return Counter(
            str(t) for n in calls for t in (n.target, *n.args) if isinstance(t, OpaqueOp)
        )

    before = opaque()
    assert before
    rules.apply(found.gm, tokens=range(1, 2049))
    assert opaque() == before
