"""The demo's decoder: attention and gated MLP, with its own way of quantising in each layer.

Written as models are: norms, activation, rotary embedding and attention in plain torch, what has
no torch spelling (collective, MX formats) as semantic ops of the shipped patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from fusiondsl.demo import layers
from fusiondsl.demo.layers import FP8, GROUP

Scheme: TypeAlias = Literal["group", "token", "mxfp4"]
TP_GROUP = "tp:0"

_BRANCH_GAIN = 0.05
"""Scale of what a branch adds to the residual stream, which dominates it in trained models."""


@dataclass(frozen=True)
class LayerConfig:
    scheme: Scheme
    """How linear layers quantise their activations."""
    reduced: bool = True
    """Sharded over ranks: attention and MLP end in an all-reduce."""
    exposes_norm: bool = False
    """The first norm of the layer is also read unquantised, as a router would."""
    norm_dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True)
class ModelConfig:
    hidden: int = 512
    intermediate: int = 1024
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    eps: float = 1e-6
    max_tokens: int = 2048
    layers: tuple[LayerConfig, ...] = (
        LayerConfig("group"),
        LayerConfig("token", reduced=False),
        LayerConfig("mxfp4", reduced=False),
        LayerConfig("mxfp4"),
        LayerConfig("group", exposes_norm=True),
        LayerConfig("token", norm_dtype=torch.float32),
    )


class QuantLinear(nn.Module):
    """A linear layer over activations that are quantised on the way in."""

    weight: Tensor
    weight_scale: Tensor

    def __init__(
        self, scheme: Scheme, width: int, out_width: int, rng: torch.Generator, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.scheme = scheme
        weight = torch.randn(width, out_width, generator=rng) * gain * width**-0.5
        if scheme == "mxfp4":
            codes, scales = torch.ops.fusiondsl.mxfp4_quant(weight.t().contiguous())
            self.register_buffer("weight", codes)
            self.register_buffer("weight_scale", scales.t().contiguous())
        else:
            scale = weight.abs().amax() / layers.FP8_MAX
            self.register_buffer("weight", (weight / scale).to(FP8))
            self.register_buffer("weight_scale", scale)

    def forward(self, x: Tensor) -> Tensor:
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


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, scheme: Scheme, rng: torch.Generator) -> None:
        super().__init__()
        self.sizes = [
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
            config.kv_heads * config.head_dim,
        ]
        self.head_dim = config.head_dim
        self.qkv = QuantLinear(scheme, config.hidden, sum(self.sizes), rng)
        self.output = QuantLinear(scheme, self.sizes[0], config.hidden, rng, _BRANCH_GAIN)

    def forward(self, normed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (-1, self.head_dim))
            for part in self.qkv(normed).split(self.sizes, -1)
        )
        mixed = layers.attention(
            layers.rotate(query, cos, sin), layers.rotate(key, cos, sin), value
        )
        projected: Tensor = self.output(mixed)
        return projected


class Mlp(nn.Module):
    def __init__(self, config: ModelConfig, scheme: Scheme, rng: torch.Generator) -> None:
        super().__init__()
        self.gate_up = QuantLinear(scheme, config.hidden, 2 * config.intermediate, rng)
        self.down = QuantLinear(scheme, config.intermediate, config.hidden, rng, _BRANCH_GAIN)

    def forward(self, normed: Tensor) -> Tensor:
        projected: Tensor = self.down(layers.silu_and_mul(self.gate_up(normed)))
        return projected


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, layer: LayerConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.config = layer
        self.eps = config.eps
        self.input_norm = _norm_weight(config.hidden, layer.norm_dtype, rng)
        self.post_norm = _norm_weight(config.hidden, layer.norm_dtype, rng)
        self.attention = Attention(config, layer.scheme, rng)
        self.mlp = Mlp(config, layer.scheme, rng)

    def forward(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The layer's output, the residual stream, and the norm if the layer exposes it."""
        if residual is None:
            normed, residual = layers.rms_norm(x, self.input_norm, self.eps), x
        else:
            normed, residual = layers.add_rms_norm(x, residual, self.input_norm, self.eps)
        exposed = normed if self.config.exposes_norm else None
        attended = self._reduce(self.attention(normed, cos, sin))
        normed, residual = layers.add_rms_norm(attended, residual, self.post_norm, self.eps)
        return self._reduce(self.mlp(normed)), residual, exposed

    def _reduce(self, x: Tensor) -> Tensor:
        if not self.config.reduced:
            return x
        reduced: Tensor = torch.ops.fusiondsl.all_reduce(x, TP_GROUP)
        return reduced


class Decoder(nn.Module):
    """Hidden states in; quantised hidden states, their scales and the exposed norms out."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.eps = config.eps
        self.layers = nn.ModuleList(DecoderLayer(config, layer, rng) for layer in config.layers)
        self.final_norm = _norm_weight(config.hidden, torch.bfloat16, rng)
        cos, sin = layers.rotary_table(config.max_tokens, config.head_dim)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        cos, sin = self.cos[positions], self.sin[positions]
        residual: Tensor | None = None
        exposed: list[Tensor] = []
        for layer in self.layers:
            hidden, residual, norm = layer(hidden, residual, cos, sin)
            if norm is not None:
                exposed.append(norm)
        assert residual is not None
        normed, _ = layers.add_rms_norm(hidden, residual, self.final_norm, self.eps)
        codes, scales = layers.fp8_token_quant(normed)
        return codes, scales, *exposed


def _norm_weight(width: int, dtype: torch.dtype, rng: torch.Generator) -> nn.Parameter:
    weight = 1.0 + 0.1 * torch.randn(width, generator=rng)
    return nn.Parameter(weight.to(dtype), requires_grad=False)


def inputs(config: ModelConfig, tokens: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Hidden states and positions of one sequence."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, config.hidden, generator=rng).to(torch.bfloat16)
    return hidden, torch.arange(tokens)
