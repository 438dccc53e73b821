"""Entry points for vLLM's plugin groups; both do nothing unless `CPU_ENGINE` is set."""

from __future__ import annotations

import os

SWITCH = "CPU_ENGINE"
GPU_OPS = "CPU_ENGINE_GPU_OPS"
"""Quantisation and activation are calls of custom ops, as in a build for GPUs."""
VLLM_PASSES = "CPU_ENGINE_VLLM_PASSES"
"""vLLM's own norm and activation fusions run."""
ONEDNN = "CPU_ENGINE_ONEDNN"
"""Linear layers call oneDNN, without which int8 has no kernel."""
PATTERNS = "CPU_ENGINE_PATTERNS"
"""Rule files whose rules a pass of vLLM registers beside a pattern of its own."""
F32 = "CPU_ENGINE_F32"
"""FP8 models may have f32 activations."""


def platform() -> str | None:
    return f"{__package__}.platform.CpuEngine" if os.environ.get(SWITCH) else None


def general() -> None:
    if not os.environ.get(SWITCH):
        return
    import torch
    import vllm._custom_ops as custom_ops
    import vllm.model_executor.models.registry as registry

    # Classes of models are asked in processes of their own for the sake of devices: there are none.
    registry._run_in_subprocess = lambda ask: ask()
    # A linear layer is aten.mm, not a call of a CPU library.
    custom_ops._supports_onednn = bool(os.environ.get(ONEDNN))
    if os.environ.get(GPU_OPS):
        from vllm.model_executor.layers.activation import SiluAndMul
        from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8

        SiluAndMul.op = torch.ops._C.silu_and_mul.gpu
        SiluAndMul.forward_cpu = SiluAndMul.forward_cuda
        QuantFP8.forward_cpu = QuantFP8.forward_cuda
    if os.environ.get(F32):
        from vllm.model_executor.layers.quantization.fp8 import Fp8Config

        dtypes = [torch.bfloat16, torch.half, torch.float32]
        Fp8Config.get_supported_act_dtypes = classmethod(lambda cls: dtypes)
