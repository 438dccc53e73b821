"""The post-grad graph of a decoder with latent attention and block-scaled fp8, as on AMD GPUs.

What vLLM's passes for AITER look for in it, four sites a layer: two all-reduces with residual add,
norm and group quantisation, the two norms of latent attention with the quantised query, and the
gated activation with group quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from benchmarks.model_graph import GraphBuilder

aten = torch.ops.aten
GROUP = 128


@dataclass(frozen=True)
class LatentShape:
    """Sizes of the model as one rank sees them."""

    layers: int = 80
    hidden: int = 4096
    intermediate: int = 7168
    q_latent: int = 1536
    kv_latent: int = 512
    rotary: int = 64
    heads: int = 16
    head_dim: int = 192
    value_dim: int = 128
    eps: float = 1e-6

    @property
    def latents(self) -> int:
        return self.q_latent + self.kv_latent + self.rotary


class LatentDecoder:
    """Builds the graph layer by layer."""

    def __init__(self, shape: LatentShape, tp_group: str) -> None:
        self.shape = shape
        self.tp_group = tp_group
        self.builder = GraphBuilder()

    def build(self) -> fx.GraphModule:
        b = self.builder
        hidden = b.input("hidden", b.tokens, self.shape.hidden)
        residual = b.input("residual", b.tokens, self.shape.hidden)
        for index in range(self.shape.layers):
            hidden, residual = self._layer(f"layer{index}", hidden, residual)
        b.graph.output((hidden, residual))
        b.graph.eliminate_dead_code()
        return fx.GraphModule({}, b.graph)

    def _layer(self, name: str, x: fx.Node, residual: fx.Node) -> tuple[fx.Node, fx.Node]:
        shape = self.shape
        q, scale, residual = self._reduced_norm(f"{name}_input_norm", x, residual)
        latents = self._gemm(f"{name}_latents", q, scale, shape.latents)
        attention = self._attention(name, latents)
        q, scale = self._quant(attention)
        projected = self._gemm(f"{name}_output", q, scale, shape.hidden)
        q, scale, residual = self._reduced_norm(f"{name}_post_norm", projected, residual)
        gate_up = self._gemm(f"{name}_gate_up", q, scale, 2 * shape.intermediate)
        q, scale = self._quant(self._activation(gate_up))
        return self._gemm(f"{name}_down", q, scale, shape.hidden), residual

    def _reduced_norm(
        self, name: str, x: fx.Node, residual: fx.Node
    ) -> tuple[fx.Node, fx.Node, fx.Node]:
        b = self.builder
        weight = b.input(name, self.shape.hidden)
        reduced = b.call(torch.ops.vllm.all_reduce.default, x, self.tp_group)
        both = b.call(
            torch.ops.vllm_ir.fused_add_rms_norm.default, reduced, residual, weight, self.shape.eps
        )
        return (*self._quant(b.item(both, 0)), b.item(both, 1))

    def _quant(self, x: fx.Node) -> tuple[fx.Node, fx.Node]:
        b = self.builder
        both = b.call(torch.ops.vllm.rocm_aiter_group_fp8_quant.default, x, GROUP)
        return b.item(both, 0), b.item(both, 1)

    def _gemm(self, name: str, q: fx.Node, scale: fx.Node, width: int) -> fx.Node:
        b = self.builder
        columns = q.meta["val"].shape[-1]
        weight = b.input(name, width, columns, dtype=torch.float8_e4m3fn)
        blocks = (-(-width // GROUP), -(-columns // GROUP))
        return b.call(
            torch.ops.vllm.rocm_aiter_gemm_a8w8_blockscale.default,
            q,
            weight,
            scale,
            b.input(f"{name}_scale", *blocks, dtype=torch.float32),
            torch.bfloat16,
        )

    def _attention(self, name: str, latents: fx.Node) -> fx.Node:
        b, shape = self.builder, self.shape
        rest_width = shape.kv_latent + shape.rotary
        split = b.call(aten.split_with_sizes.default, latents, [shape.q_latent, rest_width], -1)
        query, rest = b.item(split, 0), b.item(split, 1)
        split = b.call(aten.split_with_sizes.default, rest, [shape.kv_latent, shape.rotary], -1)
        latent, rotary = b.item(split, 0), b.item(split, 1)
        normed = self._norm(f"{name}_q_norm", query, shape.q_latent)
        latent = self._norm(f"{name}_kv_norm", latent, shape.kv_latent)
        heads = self._gemm(f"{name}_query", *self._quant(normed), shape.heads * shape.head_dim)
        query = b.reshape(heads, [-1, shape.heads, shape.head_dim])
        key = b.call(aten.cat.default, [latent, rotary], -1)
        attended = b.call(
            torch.ops.vllm.unified_attention.default, query, key, latent, f"{name}.attn"
        )
        values = b.call(aten.slice.Tensor, attended, 2, 0, shape.value_dim)
        return b.reshape(values, [-1, shape.heads * shape.value_dim])

    def _norm(self, name: str, x: fx.Node, width: int) -> fx.Node:
        b = self.builder
        return b.call(torch.ops.vllm_ir.rms_norm.default, x, b.input(name, width), self.shape.eps)

    def _activation(self, gate_up: fx.Node) -> fx.Node:
        b = self.builder
        call = b.call(
            auto_functionalized,
            torch.ops._C.silu_and_mul.default,
            result=b.empty(self.shape.intermediate, torch.bfloat16),
            input=gate_up,
        )
        return b.item(call, 1)


class PlainDecoder(LatentDecoder):
    """The same without quantisation, on one rank, with ordinary attention: nothing to fuse."""

    def _reduced_norm(
        self, name: str, x: fx.Node, residual: fx.Node
    ) -> tuple[fx.Node, fx.Node, fx.Node]:
        b = self.builder
        weight = b.input(name, self.shape.hidden)
        both = b.call(
            torch.ops.vllm_ir.fused_add_rms_norm.default, x, residual, weight, self.shape.eps
        )
        normed = b.item(both, 0)
        return normed, normed, b.item(both, 1)

    def _quant(self, x: fx.Node) -> tuple[fx.Node, fx.Node]:
        return x, x

    def _gemm(self, name: str, q: fx.Node, scale: fx.Node, width: int) -> fx.Node:
        b = self.builder
        weight = b.input(name, q.meta["val"].shape[-1], width)
        return b.call(aten.mm.default, q, weight)

    def _attention(self, name: str, latents: fx.Node) -> fx.Node:
        b, shape = self.builder, self.shape
        sizes = [shape.q_latent, shape.kv_latent, shape.rotary]
        split = b.call(aten.split_with_sizes.default, latents, sizes, -1)
        query = b.reshape(b.item(split, 0), [-1, 12, shape.value_dim])
        key = b.reshape(b.item(split, 1), [-1, 4, shape.value_dim])
        rotary = b.item(split, 2)
        attended = b.call(
            torch.ops.vllm.unified_attention.default, query, key, rotary, f"{name}.attn"
        )
        return b.reshape(attended, [-1, shape.q_latent])
