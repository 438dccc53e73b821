"""vLLM's pass manager on a CPU, with and without its norm and activation fusions."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import torch
from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass
from vllm.config import set_current_vllm_config

from tests.vllm.cpu_engine.plugins import PATTERNS

MATCHED: Counter[str] = Counter()
"""What vLLM's own fusion passes have matched."""


class SchemaFunctionalization(FixFunctionalizationPass):
    """Arguments are called what the op calls them: a CPU build has other names for some."""

    def defunctionalize(
        self, graph: Any, node: Any, mutated_args: Any, args: tuple[str, ...] | None = None
    ) -> None:
        arguments = node.args[0]._schema.arguments
        written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        mutated = [name for name in written if node.kwargs.get(name) is not None]
        names = tuple(a.name for a in arguments if a.name in node.kwargs)
        whole = len(names) == len(node.kwargs)
        places = {index + 1: name for index, name in enumerate(mutated)}
        super().defunctionalize(graph, node, places, names if whole else args)


class Manager(PostGradPassManager):
    def configure(self, config: Any) -> None:
        super().configure(config)
        self.fix_functionalization = SchemaFunctionalization(config)
        if os.environ.get(PATTERNS):
            from tests.vllm.cpu_engine.pattern_pass import PatternPass

            with set_current_vllm_config(config, check_compile=False):
                self.passes.append(PatternPass(config, os.environ[PATTERNS]))


class ManagerWithFusions(Manager):
    def configure(self, config: Any) -> None:
        super().configure(config)
        from vllm.compilation.passes.fusion import matcher_utils

        for key, op in list(matcher_utils.QUANT_OPS.items()):
            packet = getattr(torch.ops._C, op.name().split("::")[1])
            matcher_utils.QUANT_OPS[key] = getattr(packet, "gpu", op)
        matcher_utils.SILU_MUL_OP = torch.ops._C.silu_and_mul.gpu
        from vllm.compilation.passes.fusion.act_quant_fusion import ActivationQuantFusionPass
        from vllm.compilation.passes.fusion.rms_quant_fusion import RMSNormQuantFusionPass

        with set_current_vllm_config(config, check_compile=False):
            self.fusions = [RMSNormQuantFusionPass(config), ActivationQuantFusionPass(config)]
        self.passes += self.fusions

    def __call__(self, graph: Any) -> None:
        super().__call__(graph)
        for fusion in self.fusions:
            MATCHED[type(fusion).__name__] += fusion.matched_count
