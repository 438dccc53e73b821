"""The true cause comes first: some of the broken sources, scored as the command does."""

from __future__ import annotations

from collections import Counter

from benchmarks.breaks import broken_sources
from benchmarks.near_misses import MIN_SHARE, score, table

RULES = frozenset(
    {
        "add_rms_norm_static_quant",
        "allreduce_rms_norm",
        "mla_dual_rms_norm",
        "rms_norm_group_quant",
        "gated_rms_norm_flat_group_quant",
        "silu_mul_mxfp4_gemm",
    }
)


def test_the_true_cause_is_named_first() -> None:
    scored = [score(case) for case in broken_sources(RULES)]
    wrong = [item.case.name for item in scored if not item.right]
    assert len(scored) >= 100
    assert len(wrong) <= (1 - MIN_SHARE) * len(scored), wrong
    kinds = Counter(item.case.kind for item in scored)
    assert len(kinds) >= 18
    assert table(scored)[-1].startswith(f"| all | {len(scored)} |")
