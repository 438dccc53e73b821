"""Exported patterns in a pass of vLLM, on graphs that they fit and on others; prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch._inductor.pattern_matcher as pm
import vllm.ir.ops  # noqa: F401  (registers the ops)
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from vllm.compilation.passes.inductor_pass import enable_fake_mode, pass_context
from vllm.compilation.passes.vllm_inductor_pass import VllmFusionPatternMatcherPass
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.utils import Range

import fusiondsl
from fusiondsl.integrations.vllm import as_pattern_replacements

PACK = Path(__file__).parent / "packs" / "limited.fuse"
EPS = 1e-6


class Rules(VllmFusionPatternMatcherPass):  # type: ignore[misc]
    def __init__(self, config: VllmConfig, path: Path) -> None:
        super().__init__(config, "rules")
        self.exported = as_pattern_replacements(fusiondsl.load(path), config)
        for pattern in self.exported:
            self.register(pattern)


class Checked(Rules):
    """As with the change to vLLM that docs/vllm.md shows."""

    @enable_fake_mode
    def register(self, pattern: Any) -> None:
        pm.register_replacement(
            pattern.pattern,
            pattern.replacement,
            pattern.get_inputs(),
            self._trace_fn,
            self.pm_pass,
            extra_check=pattern.extra_check,
        )
        self._pattern_replacements.append(pattern)


def graph_of(shape: tuple[int, ...], dtype: torch.dtype, eps: float, symbolic: bool) -> fx.Graph:
    def norm(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
        return torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, eps, None)

    mode = FakeTensorMode(shape_env=ShapeEnv())
    like = [torch.empty(shape, dtype=dtype)] * 2 + [torch.empty(shape[-1:], dtype=dtype)]
    inputs = [t if symbolic else mode.from_tensor(t, static_shapes=True) for t in like]
    tracing = "symbolic" if symbolic else "real"
    made: fx.Graph = make_fx(norm, tracing_mode=tracing)(*inputs).graph
    return made


def rewritten(rules: Rules, tokens: tuple[int, int], graph: fx.Graph) -> int:
    with pass_context(Range(*tokens)):
        rules(graph)
    graph.lint()
    return sum("lab_add_rms_norm" in str(node.target) for node in graph.nodes)


def main(directory: Path) -> dict[str, Any]:
    config = VllmConfig()
    other = directory / "other.fuse"
    other.write_text(PACK.read_text().replace("MOST = 16", "MOST = 17"))
    copied = directory / "copied.fuse"
    copied.write_text(PACK.read_text())
    with set_current_vllm_config(config):
        cases = {
            "fits": ((1, 16), ((7, 64), torch.float32, EPS, True)),
            "another epsilon": ((1, 16), ((7, 64), torch.float32, 1e-5, True)),
            "an epsilon that is not exported": ((1, 16), ((7, 64), torch.float32, 1e-3, True)),
            "too many tokens": ((17, 256), ((7, 64), torch.float32, EPS, True)),
            "some counts too many": ((1, 256), ((7, 64), torch.float32, EPS, True)),
            "static and few": ((1, 256), ((7, 64), torch.float32, EPS, False)),
            "static and too many": ((1, 256), ((17, 64), torch.float32, EPS, False)),
            "another dtype": ((1, 16), ((7, 64), torch.float16, EPS, True)),
            "three dimensions": ((1, 16), ((7, 2, 64), torch.float32, EPS, True)),
        }
        found = {}
        for kind in (Rules, Checked):
            rules = kind(config, PACK)
            found[kind.__name__] = {
                name: rewritten(rules, tokens, graph_of(*case))
                for name, (tokens, case) in cases.items()
            }
        uuids = [Rules(config, path).uuid() for path in (PACK, copied, other)]
    left = [item.rule for item in rules.exported.left_out]
    return {"rewritten": found, "uuids": uuids, "count": len(rules.exported), "left_out": left}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
