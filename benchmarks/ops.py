"""Schemas and fakes of the serving ops that the benchmark graph calls, without kernels.

Names and schemas are those of a CUDA build of vLLM, so that the graph looks as it does there.
Ops that an installed package has already registered are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import Library

FP8 = torch.float8_e4m3fn

_MUTATING_OPS = (
    (
        "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale,"
        " float epsilon) -> ()"
    ),
    (
        "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual,"
        " Tensor weight, Tensor scale, float epsilon) -> ()"
    ),
    (
        "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale,"
        " int[]? group_shape=None) -> ()"
    ),
    (
        "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale,"
        " Tensor? scale_ub) -> ()"
    ),
    (
        "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s,"
        " int group_size, float eps, float fp8_min, float fp8_max, bool scale_ue8m0,"
        " bool dummy_is_scale_transposed, bool dummy_is_tma_aligned) -> ()"
    ),
    (
        "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight,"
        " Tensor! scale, float epsilon, Tensor? scale_ub, Tensor!? residual) -> ()"
    ),
    (
        "rms_norm_per_block_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale,"
        " float epsilon, Tensor? scale_ub, Tensor!? residual, int group_size,"
        " bool is_scale_transposed) -> ()"
    ),
    "silu_and_mul(Tensor! result, Tensor input) -> ()",
    "silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
    (
        "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size,"
        " Tensor cos_sin_cache, bool is_neox, int rope_dim_offset=0, bool inverse=False) -> ()"
    ),
    (
        "cutlass_scaled_mm(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales,"
        " Tensor? bias) -> ()"
    ),
)

_libraries: list[Library] = []


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """The norm in plain torch; also the trace of the decomposed form."""
    xf = x.to(torch.float32)
    variance = xf.pow(2).mean(dim=-1, keepdim=True)
    normed = xf * torch.rsqrt(variance + epsilon)
    return (normed.to(weight.dtype) * weight).to(x.dtype)


def fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The residual add and the norm of the unrounded sum in plain torch."""
    total = x.to(torch.float32) + residual.to(torch.float32)
    variance = total.pow(2).mean(dim=-1, keepdim=True)
    normed = total * torch.rsqrt(variance + epsilon)
    return (normed.to(weight.dtype) * weight).to(x.dtype), total.to(x.dtype)


def silu_and_mul(x: Tensor) -> Tensor:
    """The gated activation in plain torch."""
    half = x.shape[-1] // 2
    return torch.nn.functional.silu(x[..., :half]) * x[..., half:]


def _mutates_only(*_args: object, **_kwargs: object) -> None:
    """The fake of an op that returns nothing."""


def _like_first(tensor: Tensor, *_rest: object) -> Tensor:
    return torch.empty_like(tensor)


def _ir_rms_norm(
    x: Tensor, weight: Tensor, epsilon: float, variance_size: int | None = None
) -> Tensor:
    return rms_norm(x, weight, epsilon)


def _ir_fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    return fused_add_rms_norm(x, residual, weight, epsilon)


def _define(namespace: str, schema: str, fake: Callable[..., object]) -> None:
    name = schema.partition("(")[0]
    if hasattr(getattr(torch.ops, namespace), name):
        return
    library = Library(namespace, "FRAGMENT")
    library.define(schema)
    library._register_fake(name, fake)
    _libraries.append(library)


def register() -> None:
    """Define every op that is not there yet."""
    for schema in _MUTATING_OPS:
        _define("_C", schema, _mutates_only)
    _define("vllm", "all_reduce(Tensor tensor, str group_name) -> Tensor", _like_first)
    _define(
        "vllm",
        "unified_attention(Tensor query, Tensor key, Tensor value, str layer_name) -> Tensor",
        _like_first,
    )
    _define(
        "vllm_ir",
        "rms_norm(Tensor x, Tensor? weight, float epsilon, SymInt? variance_size=None) -> Tensor",
        _ir_rms_norm,
    )
    _define(
        "vllm_ir",
        "fused_add_rms_norm(Tensor x, Tensor x_residual, Tensor? weight, float epsilon,"
        " SymInt? variance_size=None) -> (Tensor, Tensor)",
        _ir_fused_add_rms_norm,
    )


def register_numbered(count: int) -> None:
    """Define `bench::source0`, `bench::source1`, ... and `bench::fused`."""
    for index in range(count):
        _define("bench", f"source{index}(Tensor x) -> Tensor", _like_first)
    _define("bench", "fused(Tensor x, int which) -> Tensor", _like_first)


register()
