"""Spellings of the semantic ops as they stand in model code, one function each.

Functions that call custom ops need `extern_ops.register_extern_ops` first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

EPS = 1e-6
GROUP = "tp:0"
ops = torch.ops

# --- RMSNorm -------------------------------------------------------------------------------------


def norm_vllm_ir(x: Tensor, weight: Tensor) -> Tensor:
    return ops.vllm_ir.rms_norm(x, weight, EPS)


def norm_custom(x: Tensor, weight: Tensor) -> Tensor:
    out = torch.empty_like(x)
    ops._C.rms_norm(out, x, weight, EPS)
    return out


def norm_aiter(x: Tensor, weight: Tensor) -> Tensor:
    return ops.vllm_aiter.rms_norm(x, weight, EPS)


def norm_llama(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS)
    return weight * h.to(x.dtype)


def norm_x_times_x(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = torch.rsqrt((h * h).mean(dim=x.dim() - 1, keepdim=True) + EPS) * h
    return h.to(x.dtype) * weight


def norm_ir_native(x: Tensor, weight: Tensor) -> Tensor:
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(dim=-1, keepdim=True) + EPS)
    return (h.to(weight.dtype) * weight).to(x.dtype)


def norm_gpt_oss(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS)
    return (weight * h).to(x.dtype)


def norm_weight_upcast(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS)
    return (h * weight.float()).to(x.dtype)


def norm_functional(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


# --- residual add and RMSNorm --------------------------------------------------------------------


def add_norm_vllm_ir(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return ops.vllm_ir.fused_add_rms_norm(x, residual, weight, EPS)


def add_norm_custom(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x, residual = x + 0.5, residual + 0.5  # fresh tensors: the op writes into both
    ops._C.fused_add_rms_norm(x, residual, weight, EPS)
    return x, residual


def add_norm_aiter(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return ops.vllm_aiter.fused_add_rms_norm(x, residual, weight, EPS)


def add_norm_ir_native(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    s = x.float() + residual.float()
    n = s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + EPS)
    return (n.to(weight.dtype) * weight).to(x.dtype), s.to(x.dtype)


def add_norm_llama(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = residual + x
    return norm_llama(total, weight), total


def add_norm_gpt_oss(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return norm_gpt_oss(total, weight), total


def add_norm_add_then_ir(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return norm_vllm_ir(total, weight), total


# --- SiLU-mul ------------------------------------------------------------------------------------


def silu_custom(x: Tensor) -> Tensor:
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    ops._C.silu_and_mul(out, x)
    return out


def silu_custom_gpu(x: Tensor) -> Tensor:
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    ops._C.silu_and_mul.gpu(out, x)
    return out


def silu_sliced(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]


def silu_chunked(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return up * F.silu(gate)


def silu_f32(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return (F.silu(gate.float()) * up.float()).to(x.dtype)


def silu_written_out(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return gate / (1 + torch.exp(-gate)) * up


def silu_sigmoid(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return gate * torch.sigmoid(gate) * up


# --- FP8 quantisation ----------------------------------------------------------------------------

FN = torch.float8_e4m3fn
FNUZ = torch.float8_e4m3fnuz


def _native_limits(dtype: torch.dtype) -> tuple[float, float]:
    limit = 448.0 if dtype is FN else 224.0
    return limit, 1.0 / (limit * 512.0)


def static_custom(x: Tensor, scale: Tensor, dtype: torch.dtype = FN) -> Tensor:
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    ops._C.static_scaled_fp8_quant(out, x, scale)
    return out


def static_custom_per_tensor(x: Tensor, scale: Tensor, dtype: torch.dtype = FN) -> Tensor:
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    ops._C.static_scaled_fp8_quant(out, x, scale, [-1, -1])
    return out


def static_custom_gpu(x: Tensor, scale: Tensor, dtype: torch.dtype = FN) -> Tensor:
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    ops._C.static_scaled_fp8_quant.gpu(out, x, scale, [-1, -1])
    return out


def static_native(x: Tensor, scale: Tensor, dtype: torch.dtype = FN) -> Tensor:
    limit, _ = _native_limits(dtype)
    return (x.to(torch.float32) * scale.reciprocal()).clamp(-limit, limit).to(dtype)


def token_custom(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    scale = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
    ops._C.dynamic_per_token_scaled_fp8_quant(out, x, scale, None)
    return out, scale


def token_aiter(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    return ops.vllm.rocm_aiter_per_token_quant(x, dtype)


def token_native(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    limit, floor = _native_limits(dtype)
    amax = x.abs().amax(dim=-1).unsqueeze(-1).to(torch.float32)
    scale = (amax / limit).clamp(min=floor)
    return (x.to(torch.float32) * scale.reciprocal()).clamp(-limit, limit).to(dtype), scale


def group_custom(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    limit, _ = _native_limits(dtype)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    scale = torch.empty(*x.shape[:-1], x.shape[-1] // 128, dtype=torch.float32, device=x.device)
    ops._C.per_token_group_fp8_quant(x, out, scale, 128, 1e-10, -limit, limit, False, False, False)
    return out, scale


def group_aiter(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    assert dtype is FN  # the op follows the platform: the reference platform has f8e4m3fn
    return ops.vllm.rocm_aiter_group_fp8_quant(x, 128)


def group_native(x: Tensor, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    limit, floor = _native_limits(dtype)
    width = x.shape[-1]
    grouped = x.view(-1, width // 128, 128)
    amax = grouped.abs().max(dim=-1, keepdim=True)[0].float()
    scale = (amax / limit).clamp(min=floor)
    codes = (grouped / scale).clamp(-limit, limit).to(dtype).view(x.shape)
    return codes, scale.squeeze(-1).reshape(*x.shape[:-1], width // 128)


# --- collectives, MXFP4 --------------------------------------------------------------------------


def reduce_vllm(x: Tensor) -> Tensor:
    return ops.vllm.all_reduce(x, GROUP)


def mx_own(x: Tensor) -> tuple[Tensor, Tensor]:
    return ops.fusiondsl.mxfp4_quant(x, "even")


def mx_gemm_vllm(x: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    return ops.vllm.gemm_with_dynamic_quant(x, weight, weight_scale, False, torch.bfloat16)


# --- gated RMSNorm --------------------------------------------------------------------------------


def gated_norm(x: Tensor, z: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS)
    return (h * weight.float() * F.silu(z.float())).to(x.dtype)
