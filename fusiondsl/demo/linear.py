"""A linear layer in any of the demo's schemes of quantisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fusiondsl.demo import layers
from fusiondsl.demo.config import Scheme
from fusiondsl.demo.layers import FP8, GROUP


class Linear(nn.Module):
    """Quantises its activations on the way in; without a scheme it is f32 throughout."""

    weight: Tensor
    weight_scale: Tensor

    def __init__(
        self, scheme: Scheme, width: int, out_width: int, rng: torch.Generator, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.scheme = scheme
        weight = torch.randn(width, out_width, generator=rng) * gain * width**-0.5
        if scheme == "none":
            self.register_buffer("weight", weight)
        elif scheme == "mxfp4":
            codes, scales = torch.ops.fusiondsl.mxfp4_quant(weight.t().contiguous())
            self.register_buffer("weight", codes)
            self.register_buffer("weight_scale", scales.t().contiguous())
        else:
            scale = weight.abs().amax() / layers.FP8_MAX
            self.register_buffer("weight", (weight / scale).to(FP8))
            self.register_buffer("weight_scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.scheme == "none":
            return x @ self.weight
        if self.scheme == "mxfp4":
            product: Tensor = torch.ops.fusiondsl.mxfp4_gemm(
                x, self.weight, self.weight_scale, torch.bfloat16
            )
            return product
        codes, scales = self._quantise(x)
        return layers.fp8_matmul(codes, scales, self.weight, self.weight_scale)

    def _quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.scheme == "token":
            return layers.fp8_token_quant(x)
        codes, scales = torch.ops.fusiondsl.fp8_group_quant(x, GROUP, FP8)
        return codes, scales
