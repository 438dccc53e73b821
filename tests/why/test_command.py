"""`fusiondsl why` end to end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import PACK, Run, place, run

__all__ = ["place", "run"]

TWICE = """\
class GraphModule(torch.nn.Module):
    def forward(self, x_1: "bf16[7, 64][64, 1]cpu", y_1: "bf16[7, 64][64, 1]cpu"):
        # File: /model.py:12 in forward, code: z = x * 3.0 + y
        mul: "bf16[7, 64][64, 1]cpu" = torch.ops.aten.mul.Tensor(x_1, 3.0);  x_1 = None
        add: "bf16[7, 64][64, 1]cpu" = torch.ops.aten.add.Tensor(mul, y_1);  mul = y_1 = None
        return (add,)
"""
ON = ("--target", "gfx950")


def test_a_literal(run: Run) -> None:
    Path("twice.txt").write_text(TWICE)
    done = run("why", "pack.fuse", "--graph", "twice.txt", *ON)
    line = next(number for number, text in enumerate(PACK.splitlines(), 1) if "match" in text)
    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == f"""\
GraphModule: 5 nodes
scale_add: does not fire, comes close at 1 site
  at add (2 of 2 ops), /model.py:12 in forward: z = x * 3.0 + y
    constant: y of mul is 3.0, the rule wants 2.0
      mul is from /model.py:12 in forward: z = x * 3.0 + y
        --> pack.fuse:{line}:15
         |
      {line} |   match {{ z = x * 2.0 + y }}
         |               ^^^^^^^

"""
    )


def test_a_rule_and_a_site(run: Run) -> None:
    done = run(
        "why", "pack.fuse", "--graph", "graph.txt", "--site", "add_1", "--format", "json", *ON
    )
    (rule,) = json.loads(done.out)["graphs"][0]["rules"]
    (site,) = rule["sites"]
    assert (site["node"], site["fired"]) == ("add_1", False)
    assert [cause["code"] for cause in site["causes"]] == ["predicate-false"]
    assert site["causes"][0]["field"] == "dtypes"


def test_names_that_are_not_there(run: Run) -> None:
    done = run("why", "pack.fuse", "--graph", "graph.txt", "--rule", "scaled_add")
    assert (done.code, done.out) == (2, "")
    assert done.err == "fusiondsl: no rule is called `scaled_add`; did you mean `scale_add`?\n"
    done = run("why", "pack.fuse", "--graph", "graph.txt", "--site", "add_2")
    assert (done.code, done.out) == (2, "")
    assert done.err == "fusiondsl: no graph has a node `add_2`; did you mean `add_1`?\n"


EARLY = """\
class GraphModule(torch.nn.Module):
    def forward(self, x_1: "bf16[7, 64][64, 1]cpu"):
        y: "f32[7, 64][64, 1]cpu" = x_1.float()
        return (y,)
"""


def test_a_graph_before_aten(run: Run) -> None:
    """Said once, not for every rule."""
    Path("early.txt").write_text(EARLY)
    done = run("why", "pack.fuse", "--graph", "early.txt", *ON)
    message = "no half of the source stands anywhere in the graph, which is not lowered to aten"
    assert done.out.count(message) == 1
    assert done.out.rstrip().endswith("operations, such as y")
