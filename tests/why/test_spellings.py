"""A norm that is written out, but not quite as any form of the op has it."""

from __future__ import annotations

import pytest

import fusiondsl
from fusiondsl.engine.why import Cause
from fusiondsl.graphs import read

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[7, 4096][4096, 1]cpu", w: "bf16[4096][1]cpu"):
        xf: "f32[7, 4096][4096, 1]cpu" = torch.ops.aten._to_copy.default(x, dtype = torch.float32)
        sq: "f32[7, 4096][4096, 1]cpu" = torch.ops.aten.pow.Tensor_Scalar(xf, 2)
        mean: "f32[7, 1][1, 1]cpu" = torch.ops.aten.mean.dim(sq, [-1], True)
        add: "f32[7, 1][1, 1]cpu" = torch.ops.aten.add.Tensor(mean, 1e-06)
        rs: "f32[7, 1][1, 1]cpu" = torch.ops.aten.rsqrt.default(add)
        m: "f32[7, 4096][4096, 1]cpu" = torch.ops.aten.mul.Tensor(xf, rs)
        c: "bf16[7, 4096][4096, 1]cpu" = torch.ops.aten._to_copy.default(m, dtype = torch.bfloat16)
        n: "bf16[7, 4096][4096, 1]cpu" = torch.ops.aten.mul.Tensor(c, w)
        g = torch.ops.vllm.rocm_aiter_group_fp8_quant.default(n, 128)
        q: "f8e4m3fn[7, 4096][4096, 1]cpu" = g[0]
        s: "f32[7, 32][32, 1]cpu" = g[1]
        return (q, s)
"""
RULE = "rms_norm_group_quant"


def causes(text: str) -> tuple[Cause, ...]:
    rule_set = fusiondsl.load(f"fusiondsl:rocm_aiter/{RULE}.yaml")
    (graph,) = read(text, program=rule_set.program)
    answer = rule_set.compile(fusiondsl.Target("gfx950")).why(graph.gm, rules=[RULE])
    (site,) = answer.of(RULE).sites
    assert (site.node, site.matched) == ("g", 2)
    return site.causes


def test_as_it_should_be() -> None:
    assert causes(GRAPH) == ()


@pytest.mark.parametrize(
    ("old", "new", "code", "node", "field"),
    [
        ("(xf, 2)", "(xf, 3)", "structure", "sq", "what square makes"),
        ("[-1], True", "[0], True", "constant", "mean", "dim"),
        ("aten.rsqrt", "aten.sqrt", "structure", "rs", "what rsqrt makes"),
        ("(c, w)", "(c, xf)", "shape", "n", "torch"),
    ],
)
def test_one_difference(old: str, new: str, code: str, node: str, field: str) -> None:
    first = causes(GRAPH.replace(old, new))[0]
    assert (first.code, first.node, first.field) == (code, node, field)
    assert "form torch of rms_norm" in first.message
