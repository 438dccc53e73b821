"""What several tests start engines with, and ask of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.vllm.cpu_engine.start import Engines, Outcome

PACKS = Path(__file__).parent / "packs"
REFERENCES = {"FUSIONDSL_REFERENCE_OPS": "1"}
SHIPPED = {
    **REFERENCES,
    "FUSIONDSL_RULES": "fusiondsl:rocm_aiter",
    "FUSIONDSL_FACTS": "env.arch=gfx950",
}
F32 = {
    **REFERENCES,
    "FUSIONDSL_RULES": str(PACKS / "f32.fuse"),
    "FUSIONDSL_FACTS": "env.arch=gfx950",
}
GPU_OPS = {"CPU_ENGINE_GPU_OPS": "1", "CPU_ENGINE_F32": "1"}
ONE_GRAPH = {"use_inductor_graph_partition": True}
PIECES: dict[str, Any] = {"use_inductor_graph_partition": False}
CUSTOM = {**ONE_GRAPH, "custom_ops": ["+quant_fp8", "+silu_and_mul"]}
STATIC = {"add_rms_norm_static_quant": 7, "rms_norm_static_quant": 1, "silu_mul_static_quant": 4}
"""Four layers have two norms each, and one comes last; that one and the first differ."""
WITHOUT_SILU = {rule: count for rule, count in STATIC.items() if rule != "silu_mul_static_quant"}


def same_text(one: Mapping[str, Any] | Outcome, other: Mapping[str, Any] | Outcome) -> bool:
    """Greedy tokens are equal, and log-probabilities as good as equal."""
    assert one["tokens"] == other["tokens"]
    ours = [value for text in one["logprobs"] for value in text]
    theirs = [value for text in other["logprobs"] for value in text]
    return bool(max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-4)


def fired(outcome: Outcome) -> dict[str, int]:
    """What the one line of the start says: workers of several ranks are other processes."""
    assert outcome.code == 0, outcome.log[-6000:]
    (line,) = [line for line in outcome.log.splitlines() if "] fusiondsl: " in line]
    listed = re.findall(r"[:,] (\w+) (\d+)(?=[,;])", line.partition(" sites in ")[2])
    return {rule: int(count) for rule, count in listed}


def compiled(outcome: Outcome) -> bool:
    return "num_inductor_compiles" in outcome["counter"]


def unfused(engines: Engines) -> Outcome:
    return engines.start("llama_fp8_static", variables=GPU_OPS, compilation=CUSTOM, dtype="float32")
