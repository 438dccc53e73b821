"""The post-grad graph of a decoder with static fp8 quantisation, as vLLM hands it to Inductor.

One dynamic token dimension; norms and activation either as ops or decomposed to aten.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor import pattern_matcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from benchmarks import ops
from benchmarks.ops import FP8

aten = torch.ops.aten
TOKEN_HINT = 8192


@dataclass(frozen=True)
class Shape:
    """Sizes of the model as one rank sees them."""

    layers: int = 80
    hidden: int = 4096
    intermediate: int = 7168
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    eps: float = 1e-5

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def qkv_size(self) -> int:
        return self.q_size + 2 * self.kv_size


class GraphBuilder:
    """Appends nodes with the metadata that Inductor's passes expect: val, stack trace, sequence."""

    def __init__(self) -> None:
        self.shape_env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shape_env, allow_non_fake_inputs=True)
        self.graph = fx.Graph()
        source = ConstantSource("tokens")
        symbol = self.shape_env.create_symbol(
            TOKEN_HINT, source, DimDynamic.DYNAMIC, None, positive=True
        )
        tokens = self.shape_env.create_symintnode(symbol, hint=TOKEN_HINT, source=source)
        self.tokens = self._placeholder("tokens", tokens)

    def _placeholder(self, name: str, val: object) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = val
        return node

    def input(
        self, name: str, *shape: int | fx.Node, dtype: torch.dtype = torch.bfloat16
    ) -> fx.Node:
        sizes = [dim.meta["val"] if isinstance(dim, fx.Node) else dim for dim in shape]
        with self.mode:
            return self._placeholder(name, torch.empty(sizes, dtype=dtype))

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        vals, named_vals = fx.map_arg((args, kwargs), lambda arg: arg.meta["val"])
        with self.mode:
            node.meta["val"] = target(*vals, **named_vals)
        position = len(self.graph.nodes)
        node.meta["stack_trace"] = f'  File "model.py", line {position}, in forward\n    {node}'
        node.meta["nn_module_stack"] = {"L['self']": ("model", "DecoderModel")}
        node.meta["seq_nr"] = position
        node.meta["original_aten"] = target
        node.meta["from_node"] = []
        return node

    def inline(self, function: Callable[..., Any], *args: Any) -> list[fx.Node]:
        """Append the nodes that tracing `function` with Inductor's decompositions gives."""
        vals = fx.map_arg(args, lambda arg: arg.meta["val"])
        with self.mode:
            traced = pattern_matcher.fwd_only(function, list(vals))
        values: dict[fx.Node, Any] = {}
        inputs = iter(args)
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
            elif node.op == "output":
                results = fx.map_arg(node.args[0], values.__getitem__)
                return list(results) if isinstance(results, (list, tuple)) else [results]
            else:
                inner_args, inner_kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = self.call(node.target, *inner_args, **inner_kwargs)
        raise AssertionError("a traced graph ends with an output")

    def item(self, node: fx.Node, index: int) -> fx.Node:
        return self.call(operator.getitem, node, index)

    def empty(self, width: int, dtype: torch.dtype) -> fx.Node:
        return self.call(
            aten.empty.memory_format,
            [self.tokens, width],
            dtype=dtype,
            device=torch.device("cpu"),
            pin_memory=False,
        )

    def reshape(self, node: fx.Node, sizes: Sequence[int]) -> fx.Node:
        return self.call(aten.reshape.default, node, list(sizes))


@dataclass(frozen=True)
class Layer:
    """The weights and scales of one decoder layer, as graph inputs."""

    input_norm: fx.Node
    post_norm: fx.Node
    scales: tuple[fx.Node, ...]
    """Activation scales before qkv, output projection, gate-up and down."""
    weight_scale: fx.Node
    qkv: fx.Node
    output: fx.Node
    gate_up: fx.Node
    down: fx.Node


class DecoderGraph:
    """Builds the graph layer by layer. `native` decomposes norms and activation."""

    def __init__(self, shape: Shape, *, native: bool) -> None:
        self.shape = shape
        self.native = native
        self.builder = GraphBuilder()

    def build(self) -> fx.GraphModule:
        b, shape = self.builder, self.shape
        hidden = b.input("hidden", b.tokens, shape.hidden)
        self._positions = b.input("positions", b.tokens, dtype=torch.int64)
        self._cos_sin = b.input("cos_sin", 4096, shape.head_dim)
        layers = [self._layer_inputs(index) for index in range(shape.layers)]
        final_norm = b.input("final_norm", shape.hidden)
        residual: fx.Node | None = None
        for index, layer in enumerate(layers):
            hidden, residual = self._layer(index, layer, hidden, residual)
        assert residual is not None
        normed, _ = self._norm(hidden, residual, final_norm)
        b.graph.output((normed,))
        b.graph.eliminate_dead_code()
        return fx.GraphModule({}, b.graph)

    def _layer_inputs(self, index: int) -> Layer:
        shape = self.shape

        def parameter(name: str, *sizes: int, dtype: torch.dtype = torch.bfloat16) -> fx.Node:
            return self.builder.input(f"layer{index}_{name}", *sizes, dtype=dtype)

        return Layer(
            input_norm=parameter("input_norm", shape.hidden),
            post_norm=parameter("post_norm", shape.hidden),
            scales=tuple(parameter(f"scale{i}", 1, 1, dtype=torch.float32) for i in range(4)),
            weight_scale=parameter("weight_scale", 1, dtype=torch.float32),
            qkv=parameter("qkv", shape.hidden, shape.qkv_size, dtype=FP8),
            output=parameter("output", shape.q_size, shape.hidden, dtype=FP8),
            gate_up=parameter("gate_up", shape.hidden, 2 * shape.intermediate, dtype=FP8),
            down=parameter("down", shape.intermediate, shape.hidden, dtype=FP8),
        )

    def _layer(
        self, index: int, layer: Layer, hidden: fx.Node, residual: fx.Node | None
    ) -> tuple[fx.Node, fx.Node]:
        shape = self.shape
        normed, residual = self._norm(hidden, residual, layer.input_norm)
        qkv = self._linear(normed, shape.hidden, layer.qkv, shape.qkv_size, layer, 0)
        attention = self._attention(index, qkv)
        projected = self._linear(attention, shape.q_size, layer.output, shape.hidden, layer, 1)
        reduced = self._all_reduce(projected)
        normed, residual = self._norm(reduced, residual, layer.post_norm)
        gate_up = self._linear(
            normed, shape.hidden, layer.gate_up, 2 * shape.intermediate, layer, 2
        )
        activated = self._activation(gate_up)
        down = self._linear(activated, shape.intermediate, layer.down, shape.hidden, layer, 3)
        return self._all_reduce(down), residual

    def _norm(
        self, x: fx.Node, residual: fx.Node | None, weight: fx.Node
    ) -> tuple[fx.Node, fx.Node]:
        b, eps = self.builder, self.shape.eps
        if residual is None:
            if self.native:
                (normed,) = b.inline(lambda x, w: ops.rms_norm(x, w, eps), x, weight)
                return normed, x
            return b.call(torch.ops.vllm_ir.rms_norm.default, x, weight, eps), x
        if self.native:
            normed, total = b.inline(
                lambda x, r, w: ops.fused_add_rms_norm(x, r, w, eps), x, residual, weight
            )
            return normed, total
        both = b.call(torch.ops.vllm_ir.fused_add_rms_norm.default, x, residual, weight, eps)
        return b.item(both, 0), b.item(both, 1)

    def _activation(self, gate_up: fx.Node) -> fx.Node:
        b = self.builder
        if self.native:
            (activated,) = b.inline(ops.silu_and_mul, gate_up)
            return activated
        result = b.empty(self.shape.intermediate, torch.bfloat16)
        call = b.call(
            auto_functionalized, torch.ops._C.silu_and_mul.default, result=result, input=gate_up
        )
        return b.item(call, 1)

    def _linear(
        self, x: fx.Node, width: int, weight: fx.Node, out_width: int, layer: Layer, which: int
    ) -> fx.Node:
        b, scale = self.builder, layer.scales[which]
        quantised = b.call(
            auto_functionalized,
            torch.ops._C.static_scaled_fp8_quant.default,
            result=b.empty(width, FP8),
            input=x,
            scale=scale,
            group_shape=[-1, -1],
        )
        product = b.call(
            auto_functionalized,
            torch.ops._C.cutlass_scaled_mm.default,
            out=b.empty(out_width, torch.bfloat16),
            a=b.item(quantised, 1),
            b=weight,
            a_scales=scale,
            b_scales=layer.weight_scale,
            bias=None,
        )
        return b.item(product, 1)

    def _attention(self, index: int, qkv: fx.Node) -> fx.Node:
        b, shape = self.builder, self.shape
        split = b.call(
            aten.split_with_sizes.default, qkv, [shape.q_size, shape.kv_size, shape.kv_size], -1
        )
        rotated = b.call(
            auto_functionalized,
            torch.ops._C.rotary_embedding.default,
            positions=self._positions,
            query=b.item(split, 0),
            key=b.item(split, 1),
            head_size=shape.head_dim,
            cos_sin_cache=self._cos_sin,
            is_neox=True,
        )
        query = b.reshape(b.item(rotated, 1), [-1, shape.heads, shape.head_dim])
        key = b.reshape(b.item(rotated, 2), [-1, shape.kv_heads, shape.head_dim])
        value = b.reshape(b.item(split, 2), [-1, shape.kv_heads, shape.head_dim])
        attention = b.call(
            torch.ops.vllm.unified_attention.default, query, key, value, f"layers.{index}.attn"
        )
        return b.reshape(attention, [-1, shape.q_size])

    def _all_reduce(self, x: fx.Node) -> fx.Node:
        return self.builder.call(torch.ops.vllm.all_reduce.default, x, "tp:0")


def decoder_graph(shape: Shape = Shape(), *, native: bool = False) -> fx.GraphModule:
    """The graph of a whole decoder; 80 layers of op forms are 4,646 nodes."""
    return DecoderGraph(shape, native=native).build()


def clone(module: fx.GraphModule) -> fx.GraphModule:
    """A copy that shares the fake values, without matcher bookkeeping in the metadata."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(module.graph, copies)
    graph.output(output)
    for node, copy in copies.items():
        copy.meta = {k: v for k, v in node.meta.items() if k != "mutation_region_id"}
    return fx.GraphModule({}, graph)
