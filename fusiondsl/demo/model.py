"""The demo's decoder: attention and gated MLP, with its own way of quantising in each layer.

Written as models are: norms, activation, rotary embedding and attention in plain torch, what has
no torch spelling (collective, MX formats) as semantic ops of the shipped patterns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fusiondsl.demo import layers
from fusiondsl.demo.config import TP_GROUP, LayerConfig, ModelConfig, Scheme
from fusiondsl.demo.linear import Linear

_BRANCH_GAIN = 0.05
"""Scale of what a branch adds to the residual stream, which dominates it in trained models."""


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, scheme: Scheme, rng: torch.Generator) -> None:
        super().__init__()
        self.sizes = [
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
            config.kv_heads * config.head_dim,
        ]
        self.head_dim = config.head_dim
        self.qkv = Linear(scheme, config.hidden, sum(self.sizes), rng)
        self.output = Linear(scheme, self.sizes[0], config.hidden, rng, _BRANCH_GAIN)

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
        self.gate_up = Linear(scheme, config.hidden, 2 * config.intermediate, rng)
        self.down = Linear(scheme, config.intermediate, config.hidden, rng, _BRANCH_GAIN)

    def forward(self, normed: Tensor) -> Tensor:
        projected: Tensor = self.down(layers.silu_and_mul(self.gate_up(normed)))
        return projected


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, layer: LayerConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.config = layer
        self.eps = config.eps
        self.input_norm = _norm_weight(config.hidden, config.dtype, rng)
        self.post_norm = _norm_weight(config.hidden, config.dtype, rng)
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
    """Hidden states in; hidden states out, with scales if quantised, then the exposed norms."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.eps = config.eps
        self.layers = nn.ModuleList(DecoderLayer(config, layer, rng) for layer in config.layers)
        self.output = config.output
        self.last_norm = _norm_weight(config.hidden, config.last_norm_dtype, rng)
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
        normed, _ = layers.add_rms_norm(hidden, residual, self.last_norm, self.eps)
        if self.output == "none":
            return normed, *exposed
        codes, scales = layers.fp8_token_quant(normed)
        return codes, scales, *exposed


def _norm_weight(width: int, dtype: torch.dtype, rng: torch.Generator) -> nn.Parameter:
    weight = 1.0 + 0.1 * torch.randn(width, generator=rng)
    return nn.Parameter(weight.to(dtype), requires_grad=False)


def inputs(config: ModelConfig, tokens: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Hidden states and positions of one sequence, of any length for `torch.compile`."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, config.hidden, generator=rng).to(config.dtype)
    positions = torch.arange(tokens)
    for tensor in (hidden, positions):
        torch._dynamo.mark_dynamic(tensor, 0)
    return hidden, positions
