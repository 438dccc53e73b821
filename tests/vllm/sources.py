"""What a model computes in front of vLLM's passes for AITER, with a place to plant something else.

A source is a function of a `Site` and of tensors. At `site.at(place, value)` a case may change the
value, or have it read by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tests.support.rocm_vllm import (
    GATED_HEADS,
    GATED_WIDTH,
    HEAD_SIZE,
    HEADS,
    INTERLEAVED,
    LAYER,
    SECTIONS,
    TP_GROUP,
)

Inputs: TypeAlias = Mapping[str, Tensor]
Change: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layers:
    """vLLM's own layers, whose native code a model without compiled ops has in its graph."""

    group_quant: Any
    token_quant: Any
    gated_norm: Callable[..., Tensor]
    fp8: torch.dtype
    attention: Any
    """What calls name the attention layer by."""

    @staticmethod
    def of_width(width: int) -> Layers:
        """Must be called while vLLM's settings are in place."""
        quantisation = "vllm.model_executor.layers.quantization"
        shapes = import_module(f"{quantisation}.utils.quant_utils").GroupShape
        quant = import_module(f"{quantisation}.input_quant_fp8").QuantFP8
        norms = import_module("vllm.model_executor.layers.layernorm")

        def layer(shape: object) -> Any:
            return quant(False, shape, use_ue8m0=False, compile_native=False)

        return Layers(
            layer(shapes(1, width)),
            layer(shapes.PER_TOKEN),
            norms.RMSNormGated.forward_static,
            import_module("vllm.platforms").current_platform.fp8_dtype(),
            import_module("vllm.utils.torch_utils")._encode_layer_name(LAYER),
        )


@dataclass
class Site:
    """How a source is spelled in one case, and what is planted in it."""

    layers: Layers
    eps: float
    spelling: str
    """Of quantisation and activation: `aiter`, `vllm` (compiled ops) or `native` (plain torch)."""
    changes: Mapping[str, Change] = field(default_factory=dict)
    group: str = TP_GROUP
    width: int = 128
    """Of the groups that are quantised."""
    neox: bool = True
    interleaved: bool = INTERLEAVED
    heads: int = HEADS
    seen: dict[str, Tensor] = field(default_factory=dict)

    def at(self, place: str, value: Tensor) -> Tensor:
        change = self.changes.get(place)
        value = value if change is None else change(value)
        self.seen[place] = value
        return value

    # --- ops -------------------------------------------------------------------------------------

    def all_reduce(self, x: Tensor) -> Tensor:
        return self.at("reduced", torch.ops.vllm.all_reduce(x, group_name=self.group))

    def rms_norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return self.at("normed", torch.ops.vllm_ir.rms_norm(x, weight, self.eps))

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        normed, total = torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, self.eps)
        return self.at("normed", normed), total

    def group_quant(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.spelling == "aiter":
            return torch.ops.vllm.rocm_aiter_group_fp8_quant(x, self.width)
        return self._quant(self.layers.group_quant, x)

    def token_quant(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.spelling == "aiter":
            return torch.ops.vllm.rocm_aiter_per_token_quant(x, self.layers.fp8)
        return self._quant(self.layers.token_quant, x)

    def _quant(self, quantiser: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        forward = quantiser.forward_cuda if self.spelling == "vllm" else quantiser.forward_native
        q, scale = forward(x)
        return q, scale

    def silu_and_mul(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        if self.spelling == "native":
            return self.at("activated", torch.nn.functional.silu(x[..., :half]) * x[..., half:])
        result = torch.empty((*x.shape[:-1], half), dtype=x.dtype, device=x.device)
        torch.ops._C.silu_and_mul(result, x)
        return self.at("activated", result)


# --- all-reduce ------------------------------------------------------------------------------


def allreduce_norm(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    reduced = s.all_reduce(x)
    return s.rms_norm(reduced, weight), reduced


def allreduce_add_norm(s: Site, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return s.add_rms_norm(s.all_reduce(x), residual, weight)


def allreduce_gemma(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    reduced = s.all_reduce(x)
    return s.rms_norm(reduced, s.at("gain", weight.float() + 1.0)), reduced


def allreduce_add_gemma(s: Site, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return s.add_rms_norm(s.all_reduce(x), residual, s.at("gain", weight.float() + 1.0))


def allreduce_norm_quant(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return s.group_quant(s.rms_norm(s.all_reduce(x), weight))


def allreduce_add_norm_quant(
    s: Site, x: Tensor, residual: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    normed, total = s.add_rms_norm(s.all_reduce(x), residual, weight)
    return (*s.group_quant(normed), total)


def allreduce_add_norm_quant_indexer(
    s: Site, x: Tensor, residual: Tensor, weight: Tensor, indexer: Tensor
) -> tuple[Tensor, ...]:
    normed, total = s.add_rms_norm(s.all_reduce(x), residual, weight)
    scores = torch.ops.vllm.rocm_unquantized_gemm(normed, indexer)
    return (*s.group_quant(normed), total, scores, normed)


# --- norm and quantisation ------------------------------------------------------------------------


def norm_group_quant(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return s.group_quant(s.rms_norm(x, weight))


def add_norm_group_quant(
    s: Site, x: Tensor, residual: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    normed, total = s.add_rms_norm(x, residual, weight)
    return (*s.group_quant(normed), total)


def norm_two_group_quants(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed = s.rms_norm(x, weight)
    return (*s.group_quant(normed), *s.group_quant(normed))


def norm_token_quant(s: Site, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return s.token_quant(s.rms_norm(x, weight))


def add_norm_token_quant(
    s: Site, x: Tensor, residual: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    normed, total = s.add_rms_norm(x, residual, weight)
    return (*s.token_quant(normed), total)


def gated_norm_quant(s: Site, x: Tensor, z: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Per head; `x` is [tokens, heads, width], or [tokens * heads, width] behind a view."""
    normed = s.layers.gated_norm(x, z, weight, s.eps, x.dtype)
    flat = normed.reshape(-1, GATED_HEADS * GATED_WIDTH)
    return s.group_quant(s.at("normed", flat))


# --- the other passes -----------------------------------------------------------------------------


def silu_mul_quant(s: Site, x: Tensor) -> tuple[Tensor, ...]:
    return s.group_quant(s.silu_and_mul(x))


def add_norm_pad(
    s: Site, x: Tensor, residual: Tensor, weight: Tensor, router: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    normed, total = s.add_rms_norm(x, residual, weight)
    padded = torch.nn.functional.pad(normed, (0, -normed.shape[-1] % s.width), value=0.0)
    return padded, total, torch.ops.vllm.rocm_unquantized_gemm(normed, router, bias)


def _latents(s: Site, x: Tensor, q: int, kv: int) -> tuple[Tensor, Tensor, Tensor]:
    query, rest = x.split([q, x.shape[-1] - q], dim=-1)
    latent, rotary = s.at("rest", rest).split([kv, rest.shape[-1] - kv], dim=-1)
    return s.at("query", query), s.at("latent", latent), rotary


def mla_norms(s: Site, x: Tensor, q_weight: Tensor, kv_weight: Tensor) -> tuple[Tensor, ...]:
    query, latent, rotary = _latents(s, x, q_weight.shape[0], kv_weight.shape[0])
    return s.rms_norm(query, q_weight), s.rms_norm(latent, kv_weight), rotary


def mla_norms_token_quant(
    s: Site, x: Tensor, q_weight: Tensor, kv_weight: Tensor
) -> tuple[Tensor, ...]:
    query, latent, rotary = _latents(s, x, q_weight.shape[0], kv_weight.shape[0])
    quantised = torch.ops.vllm.rocm_aiter_rmsnorm_fused_dynamic_quant(
        query, q_weight, s.eps, s.layers.fp8
    )
    return (*quantised, s.rms_norm(latent, kv_weight), rotary)


def mla_norms_group_quant(
    s: Site, x: Tensor, q_weight: Tensor, kv_weight: Tensor
) -> tuple[Tensor, ...]:
    query, latent, rotary = _latents(s, x, q_weight.shape[0], kv_weight.shape[0])
    quantised = torch.ops.vllm.rocm_aiter_rmsnorm_fp8_group_quant(query, q_weight, s.eps, s.width)
    return (*quantised, s.rms_norm(latent, kv_weight), rotary)


def mla_norm_then_token_quant(
    s: Site, x: Tensor, q_weight: Tensor, kv_weight: Tensor
) -> tuple[Tensor, ...]:
    normed, latent, rotary = mla_norms(s, x, q_weight, kv_weight)
    return (*s.token_quant(normed), latent, rotary)


def mla_norm_then_group_quant(
    s: Site, x: Tensor, q_weight: Tensor, kv_weight: Tensor
) -> tuple[Tensor, ...]:
    normed, latent, rotary = mla_norms(s, x, q_weight, kv_weight)
    return (*s.group_quant(normed), latent, rotary)


# --- queries, keys and their cache ----------------------------------------------------------------


def rope_attention(
    s: Site, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor
) -> tuple[Tensor, ...]:
    q, k, v = _heads(s, qkv, q_weight, k_weight)
    positions = torch.arange(qkv.shape[0], device=qkv.device)
    torch.ops._C.rotary_embedding(positions, q, k, HEAD_SIZE, cos_sin, s.neox)
    return _attended(s, q, k, v)


def mrope_attention(
    s: Site, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor
) -> tuple[Tensor, ...]:
    q, k, v = _heads(s, qkv, q_weight, k_weight)
    _turn_by_three(s, q, k, cos_sin)
    return _attended(s, q, k, v)


def rope_quant_attention(
    s: Site, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, q_scale: Tensor
) -> tuple[Tensor, ...]:
    q, k, v = _heads(s, qkv, q_weight, k_weight)
    positions = torch.arange(qkv.shape[0], device=qkv.device)
    torch.ops._C.rotary_embedding(positions, q, k, HEAD_SIZE, cos_sin, s.neox)
    return _attended(s, _quantised(s, q, q_scale), k, v)


def mrope_quant_attention(
    s: Site, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, q_scale: Tensor
) -> tuple[Tensor, ...]:
    q, k, v = _heads(s, qkv, q_weight, k_weight)
    _turn_by_three(s, q, k, cos_sin)
    return _attended(s, _quantised(s, q, q_scale), k, v)


def _heads(
    s: Site, qkv: Tensor, q_weight: Tensor, k_weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    wide = s.heads * HEAD_SIZE
    narrow = (qkv.shape[-1] - wide) // 2
    q, k, v = qkv.split([wide, narrow, narrow], dim=-1)
    q = s.rms_norm(q.reshape(-1, s.heads, HEAD_SIZE), q_weight)
    k = torch.ops.vllm_ir.rms_norm(k.reshape(-1, narrow // HEAD_SIZE, HEAD_SIZE), k_weight, s.eps)
    return q.reshape(-1, wide), k.reshape(-1, narrow), v


def _turn_by_three(s: Site, q: Tensor, k: Tensor, cos_sin: Tensor) -> None:
    row = torch.arange(q.shape[0], device=q.device)
    positions = torch.stack([row, row + 3, 2 * row])
    turned = 2 * sum(SECTIONS)
    torch.ops.vllm.mrope(
        positions, q, k, cos_sin, HEAD_SIZE, turned, *SECTIONS, s.interleaved, s.neox
    )


def _quantised(s: Site, query: Tensor, scale: Tensor) -> Tensor:
    codes = torch.empty_like(query, dtype=s.layers.fp8)
    torch.ops.vllm.rocm_aiter_per_tensor_quant(codes, query, scale, False)
    return codes


def _attended(s: Site, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    layer = s.layers.attention
    output = torch.empty((q.shape[0], s.heads, HEAD_SIZE), dtype=v.dtype, device=v.device)
    query = s.at("query", q).view(-1, s.heads, HEAD_SIZE)
    key = s.at("key", k.view(-1, k.shape[-1] // HEAD_SIZE, HEAD_SIZE))
    value = v.reshape(-1, v.shape[-1] // HEAD_SIZE, HEAD_SIZE)
    done = torch.ops.vllm.unified_kv_cache_update(key, value, layer)
    torch.ops.vllm.unified_attention_with_output(
        query, key, value, output, layer, kv_cache_dummy_dep=done
    )
    return (output.view(-1, s.heads * HEAD_SIZE),)
