"""`graphs`: what a text holds; and graphs that are chosen by their number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusiondsl.graphs import progress
from tests.cli.conftest import GRAPH, Run

FAULTY = GRAPH.replace("mul_1, w_1)", "mul_1, nowhere)").replace("GraphModule", "Second")


@pytest.fixture
def several(place: Path) -> Path:
    path = place / "several.txt"
    path.write_text(f"before\n{GRAPH}\nthen\n{FAULTY}\n")
    return path


def test_the_list(run: Run, several: Path) -> None:
    done = run("graphs", "several.txt")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "#  graph        lines  printed as\n"
        "1  GraphModule  3-9    module\n"
        "2  Second       13-19  module\n"
    )


def test_one_of_them(run: Run, several: Path) -> None:
    done = run("graphs", "several.txt#1")
    assert done.code == 0
    assert done.out.startswith("GraphModule: lines 3-9, 9 nodes\n  inputs      x_1, y_1, w_1\n")
    assert "          2 x aten.mul.Tensor\n" in done.out
    done = run("graphs", "several.txt#2")
    assert done.code == 2
    assert (
        "error[FD611]: `nowhere` is used but not defined before\n  --> several.txt:18:" in done.err
    )


def test_as_json(run: Run, several: Path) -> None:
    document = json.loads(run("graphs", "several.txt", "--format", "json").out)
    assert [graph["first_line"] for graph in document["graphs"]] == [3, 13]
    assert {graph["complete"] for graph in document["graphs"]} == {True}


@pytest.mark.parametrize("number", ["0", "3", "999999999"])
def test_a_number_too_many(run: Run, several: Path, number: str) -> None:
    done = run("graphs", f"several.txt#{number}")
    assert done.code == 2
    assert done.err.startswith(f"error[FD618]: several.txt has no graph #{number}\n")
    assert "the last of its 2 graphs is #2" in done.err


def test_a_file_with_such_a_name(run: Run, several: Path) -> None:
    several.rename("graph#7")
    assert run("graphs", "graph#7").out.count("\n") == 3


def test_apply_takes_the_others_where_one_is_faulty(run: Run, several: Path) -> None:
    words = ("--target", "gfx950")
    done = run("apply", "pack.fuse", "--graph", "several.txt", *words, "-o", "out.txt")
    assert done.code == 2
    assert "error[FD611]" in done.err
    assert not Path("out.txt").exists()
    done = run("apply", "pack.fuse", "--graph", "several.txt", *words)
    assert done.code == 2
    assert "fired       1 x scale_add" in done.out
    done = run("apply", "pack.fuse", "--graph", "several.txt#1", *words, "-o", "out.txt")
    assert done.code == 0
    assert "scale_add" in Path("out.txt").read_text()


def test_no_input_is_written_over_under_its_number(run: Run, several: Path) -> None:
    done = run("apply", "pack.fuse", "--graph", "several.txt#1", "-o", "several.txt")
    assert done.code == 2
    assert "error[FD650]: `several.txt` is an input" in done.err


def test_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.shown("big.log", 30 << 20) as draw:
        assert draw is None, "no terminal"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.shown("small.log", 1000) as draw:
        assert draw is None
    with progress.shown("big.log", 30 << 20) as draw:
        assert draw is not None
        draw(0.5)
    assert capsys.readouterr().err == f"\rbig.log [{'#' * 15}{'-' * 15}]  50%\r\x1b[K"
