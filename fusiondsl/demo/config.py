"""What the demo runs: a quantised decoder in bf16, and one of the same layers in f32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch

Scheme: TypeAlias = Literal["group", "token", "mxfp4", "none"]
"""How activations are quantised."""
TP_GROUP = "tp:0"


@dataclass(frozen=True)
class LayerConfig:
    scheme: Scheme
    """For the layer's linear layers."""
    reduced: bool = True
    """Sharded over ranks: attention and MLP end in an all-reduce."""
    exposes_norm: bool = False
    """The first norm of the layer is also read unquantised, as a router would."""


@dataclass(frozen=True)
class ModelConfig:
    title: str
    dtype: torch.dtype
    output: Scheme
    """How the decoder's output is quantised."""
    last_norm_dtype: torch.dtype
    """Of the weight of the norm behind the last layer."""
    layers: tuple[LayerConfig, ...]
    hidden: int = 512
    intermediate: int = 1024
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    eps: float = 1e-6
    max_tokens: int = 2048


QUANTISED = ModelConfig(
    "A decoder in bf16, quantised to FP8 and MXFP4:",
    torch.bfloat16,
    "token",
    torch.float32,
    (
        LayerConfig("group"),
        LayerConfig("token", reduced=False),
        LayerConfig("mxfp4"),
        LayerConfig("group", exposes_norm=True),
    ),
)

_PLAIN = LayerConfig("none")

FLOAT32 = ModelConfig(
    "The same layers in f32, not quantised; shipped rules for all-reduce + RMSNorm take it:",
    torch.float32,
    "none",
    torch.float32,
    (_PLAIN, _PLAIN, replace(_PLAIN, exposes_norm=True), _PLAIN),
)
