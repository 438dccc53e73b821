"""vLLM's CPU platform, with piecewise compilation and collectives as on a GPU."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

from tests.vllm.cpu_engine import gpu_ops
from tests.vllm.cpu_engine.plugins import VLLM_PASSES


class CpuEngine(CpuPlatform):
    @classmethod
    def import_kernels(cls) -> None:
        super().import_kernels()
        gpu_ops.define()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        from vllm.config import CompilationMode  # which itself asks for the platform

        compilation = vllm_config.compilation_config
        asked, wrap = compilation.mode, compilation.ir_enable_torch_wrap
        super().check_and_update_config(vllm_config)
        if asked != CompilationMode.VLLM_COMPILE:
            return
        compilation.mode, compilation.ir_enable_torch_wrap = asked, wrap
        compilation.compile_sizes = compilation.compile_sizes or []
        # The passes behind these switches are not imported on a CPU.
        for switch in dataclasses.fields(compilation.pass_config):
            if switch.name.startswith(("fuse_", "enable_")):
                setattr(compilation.pass_config, switch.name, False)

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        return True

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "tests.vllm.cpu_engine.communicator.Communicator"

    @classmethod
    def get_pass_manager_cls(cls) -> str:
        if not os.environ.get(VLLM_PASSES):
            return "tests.vllm.cpu_engine.managers.Manager"
        return "tests.vllm.cpu_engine.managers.ManagerWithFusions"
