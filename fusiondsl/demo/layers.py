"""The parts of the demo's decoder, in plain torch: norms, activation, rotary attention, fp8."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
GROUP = 128
"""Elements that share a scale in per-group fp8 quantisation."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    xf = x.to(torch.float32)
    normed = xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)
    return (normed.to(weight.dtype) * weight).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of the sum in f32; the residual stream gets the rounded sum."""
    total = x.to(torch.float32) + residual.to(torch.float32)
    normed = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps)
    return (normed.to(weight.dtype) * weight).to(x.dtype), total.to(x.dtype)


def silu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return functional.silu(x[..., :half]) * x[..., half:]


def fp8_token_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """One scale a token."""
    amax = x.abs().amax(-1).unsqueeze(-1).to(torch.float32)
    scale = (amax / FP8_MAX).clamp(min=1.0 / (FP8_MAX * 512.0))
    codes = x.to(torch.float32) * scale.reciprocal()
    return codes.clamp(-FP8_MAX, FP8_MAX).to(FP8), scale


def fp8_matmul(codes: Tensor, scales: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """Dequantise and multiply; `scales` has one column, or one a group."""
    groups = codes.to(torch.float32).view(codes.shape[0], scales.shape[1], -1)
    activations = (groups * scales.unsqueeze(-1)).flatten(1)
    return (activations @ (weight.to(torch.float32) * weight_scale)).to(torch.bfloat16)


def rotary_table(positions: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, one row a position."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of `[tokens, heads, head_dim]`, halves rotated against each other."""
    xf = x.to(torch.float32)
    low, high = xf.chunk(2, -1)
    rotated = torch.cat((-high, low), -1)
    return (xf * cos[:, None] + rotated * sin[:, None]).to(x.dtype)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention with grouped heads over one sequence."""
    mixed = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        is_causal=True,
        enable_gqa=True,
    )
    return mixed[0].transpose(0, 1).flatten(1)
