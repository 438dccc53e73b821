"""`FUSIONDSL_WHY`: what the pass is given is explained in a file, and compiled all the same."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import fx

import fusiondsl
from fusiondsl.engine.graph_pass import WHY
from fusiondsl.graphs import read
from fusiondsl.rules import load_source
from fusiondsl.target import Target
from tests.cli.conftest import GRAPH, PACK, Run, place, run

__all__ = ["place", "run"]

ROOT = str(Path(fusiondsl.__file__).parents[1])


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


def test_documents_as_lines(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Each is what the command prints, but for the name of the graph."""
    monkeypatch.setenv(WHY, "why.json")
    assert ask()[1] == ask()[1] == {"scale_add": 1}
    lines = [json.loads(line) for line in Path("why.json").read_text().splitlines()]
    assert [line["graphs"][0]["name"] for line in lines] == ["graph of 9 nodes"] * 2
    words = ("why", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950", "--format", "json")
    printed = json.loads(run(*words).out)
    printed["graphs"][0]["name"] = "graph of 9 nodes"
    for line in lines:
        assert without_places(line) == without_places(printed)


def without_places(document: Any) -> Any:
    """The rules of a run come from a text, those of the command from a file."""
    return json.loads(re.sub(r'"[^"]*\.fuse:', '"FILE:', json.dumps(document)))


def test_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHY, "why.html")
    assert ask()[1] == ask()[1] == {"scale_add": 1}
    page = Path("why.html").read_text()
    data = data_of(page)
    texts, graphs = data["texts"], data["graphs"]
    names = [texts[graph["name"]] for graph in graphs]
    assert names == ["1. graph of 9 nodes", "2. graph of 9 nodes"]
    assert {**graphs[0], "name": 0} == {**graphs[1], "name": 0}
    sites = [site["verdict"] for rule in graphs[0]["rules"] for site in rule["sites"]]
    assert sites == ["fires", "close"]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("name", ["why.json", "why.html"])
@pytest.mark.parametrize("text", ["notes\n", "{}\n", '{"version": 1}', "<html></html>", "\xff"])
def test_a_file_of_somebody_else(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(WHY, name)
    Path(name).write_text(text, encoding="latin-1")
    assert ask()[1] == {"scale_add": 1}
    assert Path(name).read_text(encoding="latin-1") == text
    (message,) = [r.getMessage() for r in caplog.records if r.name == "fusiondsl"]
    assert message.startswith(f"{name}, which FUSIONDSL_WHY names, is left as it is: it ")


def test_a_page_that_a_command_wrote(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    """It has another title, and may be about other rules."""
    run("why", "pack.fuse", "--graph", "graph.txt", "--target", "gfx950", "--html", "why.html")
    page = Path("why.html").read_bytes()
    monkeypatch.setenv(WHY, "why.html")
    ask()
    assert Path("why.html").read_bytes() == page
    assert "is left as it is" in caplog.text


@pytest.mark.parametrize("name", ["nowhere/why.json", "nowhere/why.html", "."])
def test_documents_that_cannot_be_written(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(WHY, name)
    assert ask()[1] == {"scale_add": 1}
    assert f"cannot write {name}, which FUSIONDSL_WHY names: " in caplog.text


@pytest.mark.parametrize("name", ["why.json", "why.html"])
def test_never_half_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong while the file is written leaves the one that was there, and no other."""
    monkeypatch.setenv(WHY, name)
    ask()
    before, beside = Path(name).read_bytes(), set(Path().iterdir())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        assert ask()[1] == {"scale_add": 1}
    assert Path(name).read_bytes() == before
    assert set(Path().iterdir()) == beside
    ask()
    assert len(Path(name).read_bytes()) > len(before)


_RUN = """
import sys
from fusiondsl.graphs import read
from fusiondsl.rules import load
from fusiondsl.target import Target

rules = load("pack.fuse").compile(Target("gfx950"))
for _ in range(4):
    (graph,) = read("graph.txt", program=rules.program)
    rules.graph_pass()(graph.gm.graph)
"""


@pytest.mark.parametrize("name", ["why.json", "why.html"])
def test_several_processes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ranks of a server: none undoes what another has added."""
    environment = {**os.environ, WHY: name, "FUSIONDSL_REFERENCE_OPS": "1", "PYTHONPATH": ROOT}
    started = [
        subprocess.Popen([sys.executable, "-c", _RUN], env=environment, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in started:
        said = process.communicate()[1]
        assert (process.returncode, said) == (0, b"")
    text = Path(name).read_text()
    found = text.splitlines() if name == "why.json" else data_of(text)["graphs"]
    assert len(found) == 8


def test_without_it_nothing_is_written() -> None:
    ask()
    assert not Path("why.txt").exists()
