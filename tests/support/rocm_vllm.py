"""The installed vLLM as on an AMD GPU with AITER, on any machine: its passes can be built.

Nothing of vLLM is changed: only what it looks up outside itself is stood in for, that is the
GPU (`amdsmi`), the kernels (`aiter`, compiled `_C` ops) and the group of ranks. No kernel can run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.pattern_matcher import stable_topological_sort
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

TP_SIZE = 2
TP_GROUP = "tp:0"
HIDDEN = 4096

_KERNELS = ("vllm._C", "vllm._C_stable_libtorch", "vllm._rocm_C")
"""Compiled modules of vLLM: a CPU build has its own, with other schemas."""

# Schemas: csrc/libtorch_stable/torch_bindings.cpp.
_C_OPS = (
    "rms_norm(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()",
    ("fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon) -> ()"),
    (
        "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale,"
        " float epsilon) -> ()"
    ),
    (
        "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual,"
        " Tensor weight, Tensor scale, float epsilon) -> ()"
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
    (
        "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale,"
        " int[]? group_shape=None) -> ()"
    ),
    "dynamic_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale) -> ()",
    (
        "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale,"
        " Tensor? scale_ub) -> ()"
    ),
    (
        "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s,"
        " int group_size, float eps, float fp8_min, float fp8_max, bool scale_ue8m0,"
        " bool dummy_is_scale_transposed, bool dummy_is_tma_aligned) -> ()"
    ),
    "silu_and_mul(Tensor! result, Tensor input) -> ()",
    "silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
    (
        "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size,"
        " Tensor cos_sin_cache, bool is_neox, int rope_dim_offset=0, bool inverse=False) -> ()"
    ),
)

_AMDSMI = (
    "AmdSmiException",
    "AmdSmiMemoryType",
    "amdsmi_get_gpu_device_uuid",
    "amdsmi_get_gpu_memory_total",
    "amdsmi_topo_get_link_type",
    "amdsmi_topo_get_numa_node_number",
)

_libraries: list[torch.library.Library] = []


class _Absent(ModuleType):
    """A module that has any name, so that whether a kernel is installed is answered by yes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unusable()


class _Unusable:
    """A kernel, or a class of them: it is there, with all its methods, and never runs."""

    def __getattr__(self, name: str) -> _Unusable:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> None:
        raise RuntimeError("there is no GPU here")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "aiter" and name not in _KERNELS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _amdsmi(arch: str) -> ModuleType:
    module = ModuleType("amdsmi")
    functions: dict[str, object] = {
        "amdsmi_init": lambda: None,
        "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["gpu"],
        "amdsmi_get_gpu_asic_info": lambda _handle: {"target_graphics_version": arch},
        **dict.fromkeys(_AMDSMI, Exception),
    }
    for name, value in functions.items():
        setattr(module, name, value)
    return module


def _define_kernels() -> None:
    library = torch.library.Library("_C", "FRAGMENT")
    for schema in _C_OPS:
        library.define(schema)
        library._register_fake(schema.partition("(")[0], lambda *_args, **_kwargs: None)
    _libraries.append(library)


_FUSION = "vllm.compilation.passes.fusion"

CACHING = "QkNormRopeKvCacheFusionPass"
PASSES = {
    "RocmAiterAllReduceFusionPass": "allreduce_rms_fusion",
    "RocmAiterRMSNormQuantFusionPass": "rocm_aiter_fusion",
    "RocmAiterSiluMulFp8GroupQuantFusionPass": "rocm_aiter_fusion",
    "RocmAiterTritonAddRMSNormPadFusionPass": "rocm_aiter_fusion",
    "MLADualRMSNormFusionPass": "rocm_aiter_fusion",
    CACHING: "qk_norm_rope_kvcache_fusion",
}
"""The passes for AITER, each with its module."""

GATED_HEADS, GATED_WIDTH = 4, 128
"""A layer of the stand-in model that a pass asks for: linear attention, on one rank."""

HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64
"""The other one: attention with a cache of keys and values, on one rank."""

LAYER = "layers.0"
SECTIONS, INTERLEAVED = (8, 12, 12), True
"""How the model turns queries and keys of tokens that have three positions."""


class RocmVllm:
    """vLLM's passes for AITER in this process, for one architecture."""

    def __init__(self, arch: str) -> None:
        if "vllm" in sys.modules:
            raise RuntimeError("vLLM was imported before it was told which GPU it has")
        os.environ["VLLM_ROCM_USE_AITER"] = "1"
        logging.disable(logging.WARNING)
        sys.meta_path.insert(0, _Finder())
        sys.modules["amdsmi"] = _amdsmi(arch)
        _define_kernels()
        platform = import_module("vllm.platforms.rocm").RocmPlatform()
        vars(import_module("vllm.platforms"))["_current_platform"] = platform
        _join_ranks()
        for module in sorted(set(PASSES.values())):  # which registers vLLM's ops
            import_module(f"{_FUSION}.{module}")

    def build(self, name: str, custom_ops: Sequence[str]) -> Any:
        """The pass as vLLM builds it: with all its patterns registered."""
        module = import_module(f"{_FUSION}.{PASSES[name]}")
        # Native code slices, for which torch asks the driver of a GPU even of fake tensors.
        # And this pass compares a buffer with its example's before it traces on the graph's device.
        on_cpu = not custom_ops or name == CACHING
        device = _OnCpu() if on_cpu else nullcontext()
        # One of the passes makes its example inputs without a fake mode of its own.
        with self.settings(custom_ops) as config, FakeTensorMode(), device:
            return getattr(module, name)(config)

    @contextmanager
    def settings(self, custom_ops: Sequence[str]) -> Iterator[Any]:
        """VLLM's configuration, as its layers look it up."""
        config = self._config(custom_ops)
        with import_module("vllm.config").set_current_vllm_config(config):
            yield config

    def _config(self, custom_ops: Sequence[str]) -> Any:
        settings = import_module("vllm.config")
        config = settings.VllmConfig(
            compilation_config=settings.CompilationConfig(
                mode=settings.CompilationMode.VLLM_COMPILE
            )
        )
        # The platform adds ops of its own choice: those are the caller's here.
        config.compilation_config.custom_ops = ["none", *custom_ops]
        layers = {"gated": _linear_attention(), LAYER: _attention()}
        config.compilation_config.static_forward_context.update(layers)
        rope = {"mrope_section": list(SECTIONS), "mrope_interleaved": INTERLEAVED}
        config.model_config = SimpleNamespace(
            dtype=torch.bfloat16,
            get_hidden_size=lambda: HIDDEN,
            hf_text_config=SimpleNamespace(rope_parameters=rope),
        )
        return config

    def apply(self, fusion_pass: Any, module: fx.GraphModule) -> int:
        """Runs the pass and the clean-up that follows it in vLLM; how often a pattern fired."""
        fusion_pass(module.graph)
        self.clean_up(module)
        count: int = fusion_pass.matched_count
        return count

    def clean_up(self, module: fx.GraphModule) -> None:
        """What vLLM runs after its passes: they leave graphs unsorted, and calls nobody reads."""
        stable_topological_sort(module.graph)
        module.graph.eliminate_dead_code()


class _OnCpu(TorchFunctionMode):
    """Makes what is asked for on a GPU on the CPU: this torch may know no GPUs.

    The matcher traces a pattern again on the device of what it may replace.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if named.get("device") is not None:
            named["device"] = "cpu"
        return func(*args, **named)


def _join_ranks() -> None:
    """This process as a rank of two."""
    reduce = import_module("vllm.distributed.device_communicators.aiter_custom_all_reduce")
    communicator = object.__new__(reduce.AiterCustomAllreduce)
    communicator._impl = _Absent("all_reduce")

    def all_reduce(tensor: Tensor) -> Tensor:
        reduced: Tensor = torch.ops.vllm.all_reduce(tensor, group_name=TP_GROUP)
        return reduced

    vars(import_module("vllm.distributed.parallel_state"))["_TP"] = SimpleNamespace(
        world_size=TP_SIZE,
        rank_in_group=0,
        unique_name=TP_GROUP,
        all_reduce=all_reduce,
        device_communicator=SimpleNamespace(aiter_ar_comm=communicator),
    )


def _linear_attention() -> object:
    base = import_module("vllm.model_executor.layers.mamba.gdn.base").GatedDeltaNetAttention
    layer: Any = object.__new__(
        type("LinearAttention", (base,), dict.fromkeys(base.__abstractmethods__))
    )
    vars(layer).update(num_v_heads=GATED_HEADS * TP_SIZE, head_v_dim=GATED_WIDTH, tp_size=TP_SIZE)
    return layer


def _attention() -> object:
    """With a cache in a layout that AITER's kernels write, and from which it takes all keys."""
    base = import_module("vllm.model_executor.layers.attention.attention").Attention
    layer: Any = object.__new__(base)
    supported = {"fused_qk_norm_rope_kvcache_supported", "fused_qk_norm_mrope_kvcache_supported"}
    vars(layer).update(
        layer_name=LAYER,
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_size=HEAD_SIZE,
        head_size_v=HEAD_SIZE,
        query_quant=None,
        impl=SimpleNamespace(**dict.fromkeys(supported, lambda: True)),
    )
    return layer
