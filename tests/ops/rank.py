"""One rank of a real process group: what references of collectives make of it, printed as JSON.

`rank.py RANK STORE` joins two ranks through the file STORE.
"""

from __future__ import annotations

import json
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import distributed

import fusiondsl
from fusiondsl import ops
from fusiondsl.ops.errors import OpError

WORLD, EPS = 2, 1e-6


@dataclass
class Coordinator:
    """What vLLM calls a group: it holds the process groups of both kinds of device."""

    cpu_group: distributed.ProcessGroup
    device_group: None = None


def inputs(rank: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(3, 1024, generator=torch.Generator().manual_seed(rank)).to(dtype)


def reduced(group: str, dtype: torch.dtype, rank: int) -> bool:
    total = torch.stack([inputs(each, dtype).float() for each in range(WORLD)]).sum(0).to(dtype)
    found = torch.ops.fusiondsl.all_reduce(inputs(rank, dtype), group)
    return torch.equal(found, total)


def fused(group: str, rank: int) -> bool:
    """The fused op against its parts, on every rank."""
    x = inputs(rank, torch.bfloat16)
    residual, weight = inputs(7, torch.bfloat16), inputs(8, torch.bfloat16)[0]
    y, total = torch.ops.fusiondsl.aiter_fused_allreduce_rms_norm(x, residual, weight, EPS, group)
    wide = torch.ops.fusiondsl.all_reduce(x, group).float() + residual.float()
    norm = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight.float()
    return torch.equal(total, wide.bfloat16()) and torch.equal(y, norm.bfloat16())


def refusal(group: str) -> str:
    try:
        torch.ops.fusiondsl.all_reduce(torch.ones(2), group)
    except OpError as error:
        return str(error)
    return "it ran"


def run(rank: int, store: str) -> dict[str, Any]:
    ops.register(fusiondsl.load("fusiondsl:ops").program)
    before = torch.ops.fusiondsl.all_reduce(torch.ones(2), "tp:0").tolist()
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD
    )
    unknown = refusal("tp:0")
    group = distributed.new_group([0, 1])
    # As vLLM keeps its coordinators: by name, weakly.
    coordinator = Coordinator(group)
    host = ModuleType("vllm.distributed.parallel_state")
    host._groups = {"tp:0": weakref.ref(coordinator)}  # type: ignore[attr-defined]
    sys.modules[host.__name__] = host
    answer = {
        "before": before,
        "unknown": unknown,
        "host": reduced("tp:0", torch.bfloat16, rank) and reduced("tp:0", torch.float32, rank),
        "torch": reduced(group.group_name, torch.float16, rank),
        "fused": fused("tp:0", rank),
    }
    del coordinator
    answer["destroyed"] = refusal("tp:0")
    answer["still there"] = distributed.get_world_size(group)
    distributed.destroy_process_group()
    return answer


if __name__ == "__main__":
    assert "vllm" not in sys.modules
    print(json.dumps(run(int(sys.argv[1]), str(Path(sys.argv[2]).resolve()))))
