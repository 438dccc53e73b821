"""Rule sets of different sizes: the shipped seven, and seven plus many more that do not match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ops

RULES = Path(__file__).parent / "rules"
EXTRA = 393
"""Generated rules on top of the seven written ones."""


@dataclass(frozen=True)
class RuleSet:
    name: str
    rules: int
    files: tuple[Path, ...]


def seven() -> RuleSet:
    """Norms with static, per-token and per-group quantisation, and the activation."""
    files = (RULES / "static_quant.fuse", RULES / "dynamic_quant.fuse")
    return RuleSet("7 rules", 7, files)


def distinct_ops(directory: Path) -> RuleSet:
    """393 more rules, each over an op of its own that the graph does not have."""
    ops.register_numbered(EXTRA)
    lines = ["extern op bench.fused(x: D[t.., H], which: int) -> D[t.., H]"]
    for i in range(EXTRA):
        lines += [
            f"extern op bench.source{i}(x: D[t.., H]) -> D[t.., H]",
            f"rule distinct{i}(x: D[t.., H]) {{",
            f"  match {{ y = bench.source{i}(x) * 2.0 }}",
            f"  replace {{ y = bench.fused(x, {i}) }}",
            "}",
        ]
    return _more("400 rules over distinct ops", directory / "distinct.fuse", lines)


def one_anchor(directory: Path) -> RuleSet:
    """393 more rules over the graph's own norm and quantisation, each with another epsilon."""
    lines = [f'import "{(RULES / "static_quant.fuse").resolve()}"']
    for i in range(EXTRA):
        eps = f"{(i + 2) * 1e-4:.4f}"
        lines += [
            f"rule literal{i}(",
            "    x: D[t.., H], residual: D[t.., H], weight: D[H], scale: f32[s..]) {",
            "  match {",
            f"    normed, residual_out = fused_add_rms_norm(x, residual, weight, {eps})",
            "    q = fp8_static_quant(normed, scale)",
            "  }",
            "  replace {",
            "    q: fp8[t.., H], residual_out = _C.fused_add_rms_norm_static_fp8_quant(",
            f"        x, residual, weight, scale, {eps})",
            "  }",
            "  where { D in (bf16, f16) }",
            "  allow { round; reduce_order; recip; saturate }",
            "}",
        ]
    return _more("400 rules on one anchor", directory / "one_anchor.fuse", lines)


def _more(name: str, path: Path, lines: Sequence[str]) -> RuleSet:
    path.write_text("\n".join(lines) + "\n")
    base = seven()
    return RuleSet(name, base.rules + EXTRA, (*base.files, path))
