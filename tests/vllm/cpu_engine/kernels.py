"""Kernels of the rules of tests, made of vLLM's own."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

CALLS: Counter[int] = Counter()
"""Of `add_rms_norm`, by the number of rows."""


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    CALLS[x.shape[0]] += 1
    y, residual_out = torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, eps)
    return y, residual_out


def rms_norm_int8_quant(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _quantised(torch.ops.vllm_ir.rms_norm(x, weight, eps))


def add_rms_norm_int8_quant(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    normed, residual_out = torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, eps)
    q, scale = _quantised(normed)
    return q, residual_out, scale


def _quantised(normed: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.empty_like(normed, dtype=torch.int8)
    scale = normed.new_empty((normed.shape[0], 1), dtype=torch.float32)
    torch.ops._C.dynamic_scaled_int8_quant(q, normed.contiguous(), scale, None)
    return q, scale
