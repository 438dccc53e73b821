"""`apply`: the report, and the graph it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import GRAPH, PACK, Run

REPORT = """\
GraphModule: 9 -> 8 nodes
  fired       1 x scale_add
              at add
              proof: exact
  refused     scale_add at add_1: predicate false [dtypes]: D is f32, not in (bf16, f16) (2 of 2 ops)

"""  # noqa: E501


def test_the_report(run: Run, place: Path) -> None:
    done = run("apply", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950")
    assert (done.code, done.out, done.err) == (0, REPORT, "")
    assert (place / "graph.txt").read_text() == GRAPH


def test_the_rewritten_graph(run: Run, place: Path) -> None:
    words = ("apply", "pack.fuse", "--target", "gfx950")
    done = run(*words, "--graph", "graph.txt", "-o", "out.txt")
    assert (done.code, done.out) == (0, REPORT + "wrote out.txt\n")
    text = (place / "out.txt").read_text()
    assert "torch.ops.fusiondsl.cli_demo_scale_add.default(x_1, y_1)" in text
    assert text.count("torch.ops.aten.add.Tensor") == 1
    again = run(*words, "--graph", "out.txt")
    assert again.code == 0
    assert again.out.startswith("GraphModule: 8 -> 8 nodes\n  refused     scale_add at add_1: ")


def test_token_ranges(run: Run, place: Path) -> None:
    symbolic = GRAPH.replace("[7, 64]", "[s0, 64]").replace(
        'forward(self, x_1: "', 'forward(self, s0: "Sym(s0)", x_1: "'
    )
    (place / "graph.txt").write_text(symbolic)
    words = ("apply", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950", "--tokens")
    assert "fired       1 x scale_add\n" in run(*words, "1:512").out
    assert (
        "predicate unknown [limit]: tokens * H * itemsize(D) is 256..131072, over the limit 65536 "
        "for part of the range (2 of 2 ops)\n"
    ) in run(*words, "1:1024").out


def test_ineligible_rules_are_listed(run: Run) -> None:
    done = run("apply", "pack.fuse", "--graph", "graph.txt")
    assert done.code == 0
    assert done.out == (
        "GraphModule: 9 -> 9 nodes\n"
        "  ineligible  scale_add: cli_demo.scale_add is not available: env.arch is not known\n"
        "\n"
    )


def test_an_artifact(run: Run) -> None:
    run("compile", "pack.fuse", "--target", "gfx950", "-o", "pack.fused")
    done = run("apply", "pack.fused", "--graph", "graph.txt")
    assert (done.code, done.out) == (0, REPORT)


def test_json(run: Run) -> None:
    words = ("--graph", "graph.txt", "--target", "gfx950", "--format", "json")
    document = json.loads(run("apply", "pack.fuse", *words).out)
    (graph,) = document["graphs"]
    assert graph["name"] == "GraphModule"
    assert graph["counts"] == {"scale_add": 1}
    assert graph["proofs"] == {"scale_add": "exact"}
    assert (graph["nodes_before"], graph["nodes_after"]) == (9, 8)
    (refusal,) = graph["refused"]
    assert refusal["kind"] == "predicate false"
    assert refusal["label"] == "dtypes"


def test_graphs_that_cannot_be_read(run: Run, place: Path) -> None:
    done = run("apply", "pack.fuse", "--graph", "nowhere.txt", "-o", "out.txt")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error[FD600]: cannot read nowhere.txt: No such file or directory\n")
    (place / "graph.txt").write_text("no graph\n")
    done = run("apply", "pack.fuse", "--graph", "graph.txt", "-o", "out.txt")
    assert done.code == 2
    assert done.err.startswith("error[FD604]: no FX graph in graph.txt\n")
    assert not (place / "out.txt").exists()


@pytest.mark.parametrize("output", ["pack.fuse", "graph.txt", "link.txt"])
def test_an_input_is_not_written_over(run: Run, output: str) -> None:
    Path("link.txt").symlink_to("graph.txt")
    ran = run("apply", "pack.fuse", "--graph", "graph.txt", "-o", output)
    assert ran.code == 2
    assert f"error[FD650]: `{output}` is an input" in ran.err
    assert Path("pack.fuse").read_text() == PACK
    assert Path("graph.txt").read_text() == GRAPH
