"""Namespaces of ops that people write without `torch.ops.`."""

from __future__ import annotations

_NAMESPACES = frozenset(
    {
        *("_C", "_C_cache_ops", "_C_custom_ar", "_moe_C", "_c10d_functional", "aiter", "aten"),
        *("c10d", "flashinfer", "fusiondsl", "higher_order", "prims", "quantized", "sgl_kernel"),
        *("torchao", "vllm", "vllm_aiter", "vllm_ir"),
    }
)


def is_namespace(name: str) -> bool:
    """Is `name.op` an op rather than a method of a value?"""
    return name in _NAMESPACES
