"""Ops that this process does not know may write to what they are given."""

from __future__ import annotations

import pytest

from fusiondsl.engine import CompiledRules
from fusiondsl.graphs import read
from fusiondsl.rules import load_source
from fusiondsl.target import Target

RULE = """\
op unknown_ops.add_relu(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H]) {
  means { z = relu(x + y) }
}

rule add_relu(x: D[t.., H], y: D[t.., H]) {
  match { z = relu(x + y) }
  replace { z = unknown_ops.add_relu(x, y) }
}
"""
GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 8][8, 1]cpu", y: "f32[4, 8][8, 1]cpu", w: "f32[8][1]cpu"):
        add: "f32[4, 8][8, 1]cpu" = torch.ops.aten.add.Tensor(x, y)
        {line}
        relu: "f32[4, 8][8, 1]cpu" = torch.ops.aten.relu.default(add)
        return (relu,)
"""


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("other = torch.ops.nowhere.look.default(w)", True),
        ("other = torch.ops.nowhere.look.default(y)", False),
        ("other = torch.ops.nowhere.look.default(add)", False),
        ("other = torch.ops.nowhere.look.default(1, into = [add])", False),
        ("other = torch.ops.aten.neg.default(y)", True),
    ],
)
def test_what_an_unknown_op_is_given_may_change(line: str, fires: bool) -> None:
    program = load_source(RULE).program
    (graph,) = read(GRAPH.format(line=line), program=program)
    report = CompiledRules(program, Target()).apply(graph.gm)
    assert report.counts == ({"add_relu": 1} if fires else {})
    if "nowhere" in line:
        assert graph.opaque == ("torch.ops.nowhere.look.default",)
        assert "torch.ops.nowhere.look.default" in str(graph.gm.graph)
