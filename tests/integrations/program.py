"""A program with a compiled function, in a process of its own: what it computed, and how.

Installs the rules that its words name, of which there may be none, and prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch._inductor.codegen.cpp
import torch._inductor.codegen.cpp_wrapper_cpu
import torch._inductor.compile_fx
import torch._inductor.fx_passes.joint_graph
import torch._inductor.fx_passes.post_grad
from torch import Tensor
from torch._dynamo.utils import counters

from fusiondsl.integrations import torch_compile


def function(x: Tensor) -> Tensor:
    return x[..., :64] * torch.sigmoid(x[..., 64:]) + 1


def sums(x: Tensor) -> Tensor:
    return x + x


def main(paths: list[str]) -> dict[str, Any]:
    passes = [torch_compile.install(path) for path in paths]
    x = torch.randn(7, 128, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for each in (function, sums):
            torch.testing.assert_close(torch.compile(each, fullgraph=True)(x), each(x))
    return {
        "counts": [report.counts for fusion in passes for report in fusion.reports],
        "hits": counters["inductor"]["fxgraph_cache_hit"],
        "misses": counters["inductor"]["fxgraph_cache_miss"],
        "bypassed": counters["inductor"]["fxgraph_cache_bypass"],
        "rules were compiled": any("compiled" in vars(fusion.rules) for fusion in passes),
        "keys": [fusion.identity().hex() for fusion in passes],
        "seed": os.environ["PYTHONHASHSEED"],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
