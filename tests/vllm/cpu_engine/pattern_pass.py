"""A pass of vLLM with a pattern written by hand and the rules of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from vllm.compilation.passes.vllm_inductor_pass import (
    VllmFusionPatternMatcherPass,
    VllmPatternReplacement,
)

import fusiondsl
from fusiondsl.facts import parse_fact
from fusiondsl.integrations.vllm import as_pattern_replacements

NAME = "pattern_pass"


class ByHand(VllmPatternReplacement):  # type: ignore[misc]
    """SiLU-mul and FP8 quantisation with a given scale."""

    @property
    def pattern(self) -> Callable[..., Any]:
        quantise, gate = torch.ops._C.static_scaled_fp8_quant.gpu, torch.ops._C.silu_and_mul.gpu
        auto = torch.ops.higher_order.auto_functionalized

        def pattern(x: Tensor, scale: Tensor, gated: Tensor, codes: Tensor) -> Any:
            y = auto(gate, result=gated, input=x)[1]
            return auto(quantise, result=codes, input=y, scale=scale, group_shape=[-1, -1])[1]

        return pattern

    @property
    def replacement(self) -> Callable[..., Any]:
        fused = torch.ops._C.silu_and_mul_quant.default
        auto = torch.ops.higher_order.auto_functionalized

        def replacement(x: Tensor, scale: Tensor, gated: Tensor, codes: Tensor) -> Any:
            return auto(fused, result=codes, input=x, scale=scale)[1]

        return replacement

    def get_inputs(self) -> list[Tensor]:
        codes = self.empty(5, 16, dtype=torch.float8_e4m3fn)
        return [self.empty_fp32(5, 32), self.empty_fp32(1), self.empty_fp32(5, 16), codes]


class PatternPass(VllmFusionPatternMatcherPass):  # type: ignore[misc]
    def __init__(self, config: Any, asked: str) -> None:
        super().__init__(config, NAME)
        path, *facts = asked.split(",")
        self.register(ByHand())
        patterns = as_pattern_replacements(
            fusiondsl.load(path), config, facts=dict(map(parse_fact, facts))
        )
        for pattern in patterns:
            self.register(pattern)
        for left in patterns.left_out:
            print(f"left out: {left.rule}: {left.reason}", flush=True)
        print(f"registered {len(patterns)} spellings, uuid {self.uuid()}", flush=True)
