"""Ops of vLLM's GPU builds, with slow implementations of our own.

A CPU build has some of the names with other arguments: those are overloads `gpu` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

F8 = torch.float8_e4m3fn


def _normed(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
    wide = x.float()
    if residual is not None:
        wide = wide + residual.float()
        residual.copy_(wide)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide.to(weight.dtype) * weight).to(x.dtype)


def _coded(x: Tensor, scale: Tensor, dtype: torch.dtype = F8) -> Tensor:
    most = torch.finfo(dtype).max
    return (x.float() / scale.float()).clamp(-most, most).to(dtype)


def _static(result: Tensor, input: Tensor, scale: Tensor, group_shape: Any = None) -> None:
    rows = input.shape[0]
    result[:rows].copy_(_coded(input, scale, result.dtype))


def _scaled_by_row(result: Tensor, scale: Tensor, x: Tensor, bound: Tensor | None) -> None:
    most = torch.finfo(result.dtype).max
    top = x.float().abs().amax(-1, keepdim=True)
    if bound is not None:
        top = torch.minimum(top, bound.float())
    scale.copy_((top / most).clamp(min=1.0 / (most * 512)))
    result.copy_(_coded(x, scale, result.dtype))


def _per_token(result: Tensor, input: Tensor, scale: Tensor, scale_ub: Tensor | None) -> None:
    _scaled_by_row(result, scale, input, scale_ub)


def _per_tensor(result: Tensor, input: Tensor, scale: Tensor) -> None:
    most = torch.finfo(result.dtype).max
    scale.copy_(
        (input.float().abs().max() / most).clamp(min=1.0 / (most * 512)).reshape(scale.shape)
    )
    result.copy_(_coded(input, scale, result.dtype))


def _gated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    wide = x[..., :half].float()
    return (wide / (torch.exp(-wide) + 1)).to(x.dtype) * x[..., half:]


def _silu_and_mul(result: Tensor, input: Tensor) -> None:
    result.copy_(_gated(input))


def _norm_static(
    result: Tensor, input: Tensor, weight: Tensor, scale: Tensor, epsilon: float
) -> None:
    result.copy_(_coded(_normed(input, weight, epsilon), scale, result.dtype))


def _add_norm_static(
    result: Tensor, input: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, epsilon: float
) -> None:
    result.copy_(_coded(_normed(input, weight, epsilon, residual), scale, result.dtype))


def _norm_per_token(
    result: Tensor,
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    epsilon: float,
    scale_ub: Tensor | None,
    residual: Tensor | None,
) -> None:
    _scaled_by_row(result, scale, _normed(input, weight, epsilon, residual), scale_ub)


def _silu_quant(result: Tensor, input: Tensor, scale: Tensor) -> None:
    result.copy_(_coded(_gated(input), scale, result.dtype))


_OPS: dict[str, tuple[str, Callable[..., None] | None]] = {
    "static_scaled_fp8_quant.gpu": (
        "Tensor! result, Tensor input, Tensor scale, int[]? group_shape=None",
        _static,
    ),
    "dynamic_scaled_fp8_quant.gpu": ("Tensor! result, Tensor input, Tensor! scale", _per_tensor),
    "dynamic_per_token_scaled_fp8_quant.gpu": (
        "Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub",
        _per_token,
    ),
    "silu_and_mul.gpu": ("Tensor! result, Tensor input", _silu_and_mul),
    "rms_norm_static_fp8_quant": (
        "Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon",
        _norm_static,
    ),
    "fused_add_rms_norm_static_fp8_quant": (
        (
            "Tensor! result, Tensor input, Tensor! residual, Tensor weight, Tensor scale, "
            "float epsilon"
        ),
        _add_norm_static,
    ),
    "rms_norm_dynamic_per_token_quant": (
        (
            "Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, "
            "Tensor? scale_ub, Tensor!? residual"
        ),
        _norm_per_token,
    ),
    "silu_and_mul_quant": ("Tensor! result, Tensor input, Tensor scale", _silu_quant),
    # Only named by vLLM's passes, never called here.
    "rms_norm_per_block_quant": (
        (
            "Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, "
            "Tensor? scale_ub, Tensor!? residual, int group_size, bool is_scale_transposed"
        ),
        None,
    ),
    "silu_and_mul_per_block_quant": (
        (
            "Tensor! out, Tensor input, Tensor! scales, int group_size, Tensor? scale_ub=None, "
            "bool is_scale_transposed=False"
        ),
        None,
    ),
    "per_token_group_fp8_quant": (
        (
            "Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
            "float fp8_min, float fp8_max, bool scale_ue8m0, bool dummy_is_scale_transposed, "
            "bool dummy_is_tma_aligned"
        ),
        None,
    ),
    "fused_qk_norm_rope": (
        (
            "Tensor! qkv, int num_heads_q, int num_heads_k, int num_heads_v, int head_dim, "
            "float eps, Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, bool is_neox, "
            "Tensor position_ids, int forced_token_heads_per_warp=-1"
        ),
        None,
    ),
}

_library: torch.library.Library | None = None


def define() -> None:
    """Once a process."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("_C", "FRAGMENT")
    for name, (schema, implementation) in _OPS.items():
        op, _, overload = name.partition(".")
        packet = getattr(torch.ops._C, op, None)
        if packet is not None and hasattr(packet, overload or "default"):
            continue
        _library.define(f"{name}({schema}) -> ()")
        if implementation is not None:
            _library.impl(name, implementation, "CPU")
        torch.library.register_fake(f"_C::{name}", lambda *args, **kwargs: None, lib=_library)
