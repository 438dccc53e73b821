"""`FUSIONDSL_WHY`: what the pass is given is explained in a file, and compiled all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import fx

from fusiondsl.engine.graph_pass import WHY
from fusiondsl.graphs import read
from fusiondsl.rules import load_source
from fusiondsl.target import Target
from tests.cli.conftest import GRAPH, PACK, place

__all__ = ["place"]


def ask() -> tuple[fx.GraphModule, dict[str, int]]:
    rules = load_source(PACK)
    (graph,) = read(GRAPH, program=rules.program)
    graph_pass = rules.compile(Target("gfx950")).graph_pass()
    graph_pass(graph.gm.graph)
    return graph.gm, graph_pass.reports[0].counts


def test_every_graph_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHY, "why.txt")
    assert ask()[1] == ask()[1] == {"scale_add": 1}
    text = Path("why.txt").read_text()
    assert text.count("graph of 9 nodes\nscale_add: fires at 1 site, comes close at 1 site\n") == 2
    assert "predicate-false [dtypes]: D is f32, not in (bf16, f16)" in text


def test_a_file_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(WHY, "nowhere/why.txt")
    assert ask()[1] == {"scale_add": 1}
    assert [record.getMessage() for record in caplog.records if record.name == "fusiondsl"] == [
        "cannot write nowhere/why.txt, which FUSIONDSL_WHY names: No such file or directory"
    ]


def test_without_it_nothing_is_written() -> None:
    ask()
    assert not Path("why.txt").exists()
