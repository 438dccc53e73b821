"""Rules and graphs to draw, and what a page holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fusiondsl
from fusiondsl.engine import CompiledRules
from fusiondsl.graphs import read
from fusiondsl.pictures import Picture, draw

RULES = """\
extern op drawn.norm(x: D[t.., H], w: W[H], eps: float) -> D[t.., H]
extern op drawn.quant(x: D[t.., H], group: int, exact: bool = false)
    -> (q: f8e4m3fn[t.., H], scale: f32[t.., ceil_div(H, group)])
extern op drawn.norm_quant(x: D[t.., H], w: D[H], eps: float, group: int)
    -> (q: f8e4m3fn[t.., H], scale: f32[t.., ceil_div(H, group)])

rule norm_quant(x: D[tokens.., H], w: D[H], eps: float) {
  match { q, scale = drawn.quant(drawn.norm(x, w, eps), 128) }
  replace { q, scale = drawn.norm_quant(x, w, eps, 128) }
  where { dtypes: D in (bf16, f16) }
}
"""

CHAIN = """\
extern op drawn.one(x: D[t.., H]) -> D[t.., H]
extern op drawn.two(x: D[t.., H]) -> D[t.., H]
extern op drawn.three(x: D[t.., H]) -> D[t.., H]
extern op drawn.one_two(x: D[t.., H]) -> D[t.., H]
extern op drawn.all_three(x: D[t.., H]) -> D[t.., H]

rule first(x: D[t.., H]) {
  match { y = drawn.two(drawn.one(x)) }
  replace { y = drawn.one_two(x) }
}
rule second(x: D[t.., H]) {
  match { y = drawn.three(drawn.one_two(x)) }
  replace { y = drawn.all_three(x) }
}
"""

LAYERS = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[7, 512][512, 1]cpu", w: "bf16[512][1]cpu"):
        # File: /model/block.py:31 in forward, code: h = self.norm(x)
        norm: "bf16[7, 512][512, 1]cpu" = torch.ops.drawn.norm.default(x, w, 1e-06)
        # File: /model/block.py:32 in forward, code: q, s = self.quant(h)
        quant = torch.ops.drawn.quant.default(norm, 128)
        q: "f8e4m3fn[7, 512][512, 1]cpu" = quant[0]
        s: "f32[7, 4][4, 1]cpu" = quant[1]
        fused = torch.ops.drawn.norm_quant.default(x, w, 1e-06, 128)
        q_1: "f8e4m3fn[7, 512][512, 1]cpu" = fused[0]
        s_1: "f32[7, 4][4, 1]cpu" = fused[1]
        norm_1: "bf16[7, 512][512, 1]cpu" = torch.ops.drawn.norm.default(x, w, 1e-05)
        quant_1 = torch.ops.drawn.quant.default(norm_1, 128, True)
        q_2: "f8e4m3fn[7, 512][512, 1]cpu" = quant_1[0]
        s_2: "f32[7, 4][4, 1]cpu" = quant_1[1]
        router: "bf16[7, 512][512, 1]cpu" = torch.ops.aten.neg.default(norm_1)
        return (q, s, q_1, s_1, q_2, s_2, router)
"""
"""Three layers: one to fuse, one fused already, one with exact scales and another reader."""

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\u2028\u202e"
HOSTILE = f"""\
class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[7, 512][512, 1]cpu", w: "bf16[512][1]cpu"):
        # File: /model/{EVIL}.py:31 in forward, code: h = self.norm("{EVIL}")
        norm: "bf16[7, 512][512, 1]cpu" = torch.ops.drawn.norm.default(x, w, 1e-05)
        layer: "bf16[7, 512][512, 1]cpu" = torch.ops.drawn.layer.default(norm, "{EVIL}")
        quant = torch.ops.drawn.quant.default(norm, 128, True)
        q: "f8e4m3fn[7, 512][512, 1]cpu" = quant[0]
        s: "f32[7, 4][4, 1]cpu" = quant[1]
        return (q, s, layer)
"""


def rules(text: str = RULES, name: str = "norm.fuse") -> CompiledRules:
    return fusiondsl.load_source(text, name).compile()


def layers() -> Picture:
    return picture(LAYERS)


def picture(text: str, source: str = RULES, **asked: Any) -> Picture:
    compiled = rules(source)
    (graph,) = read(text, program=compiled.program)
    return draw(compiled, graph.gm, name=graph.name, **asked)


def decoder(nodes: int) -> Picture:
    """A decoder with at least so many nodes."""
    from benchmarks import rule_sets
    from benchmarks.model_graph import Shape, decoder_graph

    few, more = (len(decoder_graph(Shape(layers=n)).graph.nodes) for n in (1, 2))
    count = -(-(nodes - few) // (more - few)) + 1
    compiled = fusiondsl.load(*map(str, rule_sets.seven().files)).compile()
    return draw(compiled, decoder_graph(Shape(layers=count)), name="decoder")


_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def held(page: str) -> dict[str, Any]:
    """What the page's script reads."""
    (found,) = _DATA.findall(page)
    data: dict[str, Any] = json.loads(found)
    return data


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="ascii")
    return path
