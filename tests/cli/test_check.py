"""`fusiondsl check`: an overlap comes with a graph, and `apply` reads it from the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

OVERLAP = """\
op cli_overlap.act_norm(x: D[t.., H]) -> (y: D[t.., H], a: D[t.., H]) {
  means {
    a = relu(x)
    y = sigmoid(a)
  }
}
op cli_overlap.act_exp(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = exp(sigmoid(x)) }
}

rule first(x: D[t.., H]) {
  match {
    a = relu(x)
    y = sigmoid(a)
  }
  replace { y, a = cli_overlap.act_norm(x) }
  where { env.arch in ("gfx942", "gfx950") }
}

rule second(x: D[t.., H]) {
  match { y = exp(sigmoid(x)) }
  replace { y = cli_overlap.act_exp(x) }
  where { D in (bf16, f16) }
}
"""


@pytest.fixture
def overlap(place: Path) -> Path:
    path = place / "overlap.fuse"
    path.write_text(OVERLAP)
    return path


def test_the_graph_of_an_overlap(run: Run, overlap: Path) -> None:
    done = run("check", "overlap.fuse", "--format", "json")
    assert done.code == 0
    (diagnostic,) = json.loads(done.out)["diagnostics"]
    assert diagnostic["code"] == "FD405"
    witness = diagnostic["witness"]
    assert witness["target"] == {"env.arch": "gfx950"}
    (overlap.parent / "witness.txt").write_text(witness["graph"])
    words = ("--graph", "witness.txt", "--target", "gfx950", "--format", "json")
    (graph,) = json.loads(run("apply", "overlap.fuse", *words).out)["graphs"]
    (winner,) = graph["counts"]
    (refusal,) = graph["refused"]
    assert (refusal["kind"], refusal["message"]) == ("lost to rule", winner)
    assert {winner, refusal["rule"]} == {"first", "second"}


def test_the_report_is_a_file_of_graphs(run: Run, overlap: Path) -> None:
    done = run("check", "overlap.fuse")
    assert 'example: where env.arch = "gfx950":' in done.err
    (overlap.parent / "report.txt").write_text(done.err)
    again = run("apply", "overlap.fuse", "--graph", "report.txt", "--target", "gfx950")
    assert again.code == 0
    assert "lost to rule" in again.out


def test_a_stated_order_is_enough(run: Run, overlap: Path) -> None:
    overlap.write_text(OVERLAP.replace("  where { D in", "  after first\n  where { D in"))
    done = run("check", "overlap.fuse", "--strict")
    assert (done.code, done.err) == (0, "")
