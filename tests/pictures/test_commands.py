"""`--html FILE` and `--format html`: one page, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fusiondsl.cli.main import main
from fusiondsl.graphs import read
from fusiondsl.pictures import draw, page
from fusiondsl.pictures.page import HERE
from tests.pictures.samples import LAYERS, RULES, held, rules

WHY = ("why", "norm.fuse", "--graph", "graph.txt")
APPLY = ("apply", "norm.fuse", "--graph", "graph.txt")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "norm.fuse").write_text(RULES)
    (tmp_path / "graph.txt").write_text(LAYERS)
    return tmp_path


def test_both_spellings_and_python_give_the_same_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*WHY, "--html", "page.html"]) == 0
    told = capsys.readouterr().out
    assert main(WHY) == 0
    assert told == capsys.readouterr().out + "wrote page.html\n"
    text = Path("page.html").read_text("ascii")
    assert main([*WHY, "--format", "html"]) == 0
    assert capsys.readouterr() == (text, "")
    assert main(["--format", "html", *WHY]) == 0
    assert capsys.readouterr() == (text, "")
    compiled = rules()
    (graph,) = read("graph.txt", program=compiled.program)
    drawn = draw(compiled, graph.gm, name=graph.name)
    assert page([drawn], title="norm.fuse on graph.txt") == text


def test_apply_draws_what_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(APPLY) == 0
    told = capsys.readouterr().out
    assert main([*APPLY, "--html", "page.html", "-o", "fused.txt"]) == 0
    assert capsys.readouterr().out == f"{told}wrote fused.txt\nwrote page.html\n"
    data = held(Path("page.html").read_text())
    (graph,) = data["graphs"]
    names = [data["texts"][graph["nodes"][i][0]] for i in graph["after"]]
    (fused,) = read("fused.txt")
    assert sorted(names) == sorted(node.name for node in fused.gm.graph.nodes)
    assert main([*APPLY, "--format", "html"]) == 0
    assert capsys.readouterr() == (Path("page.html").read_text(), "")


def test_what_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WHY, "--site", "quant_1", "--html", "page.html"]) == 0
    data = held(Path("page.html").read_text())
    (rule,) = data["graphs"][0]["rules"]
    assert capsys.readouterr().out.endswith("wrote page.html\n")
    shown = {data["texts"][site["node"]]: site["verdict"] for site in rule["sites"]}
    # The other site changes the graph afterwards, so it is there as well.
    assert shown == {"quant_1": "close", "quant": "fires"}
    assert main([*WHY, "--html", "page.html", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == "page.html"


def test_a_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WHY, "--html", "none/page.html"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[FD644]: cannot write `none/page.html`: No such file")
    assert "Traceback" not in said
    assert main([*APPLY, "--html", "."]) == 2
    assert "error[FD644]: cannot write `.`" in capsys.readouterr().err


@pytest.mark.parametrize("command", [WHY, APPLY])
def test_inputs_and_other_outputs_are_not_replaced(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("norm.fuse", "graph.txt"):
        assert main([*command, "--html", name]) == 2
        assert f"`{name}` is an input" in capsys.readouterr().err
    other = "--repro" if command is WHY else "-o"
    assert main([*command, "--html", "both", other, "both"]) == 2
    assert "the page and the other output cannot both be `both`" in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["graph.txt", "norm.fuse"]
    assert Path("norm.fuse").read_text() == RULES


def test_files_of_a_directory_are_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules").mkdir()
    Path("norm.fuse").rename("rules/norm.fuse")
    words = ["--graph", "graph.txt", "--html", "rules/norm.fuse"]
    for command in ("why", "apply"):
        assert main([command, "rules", *words]) == 2
        assert "is an input" in capsys.readouterr().err


@pytest.mark.parametrize("command", [WHY, APPLY])
def test_no_page_of_a_file_with_a_faulty_graph(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("page.html").write_text("as it was")
    faulty = LAYERS.replace('"f32[7, 4][4, 1]cpu" = quant[1]', '"f33[7, 4][4, 1]cpu" = quant[1]')
    Path("graph.txt").write_text(f"{LAYERS}\n\n{faulty}")
    assert main([*command, "--html", "page.html"]) == 2
    assert "error[FD" in capsys.readouterr().err
    assert Path("page.html").read_text() == "as it was"
    assert main([*command, "--format", "html"]) == 2
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in Path().iterdir()) == [
        "graph.txt",
        "norm.fuse",
        "page.html",
    ]


def test_several_graphs_on_one_page() -> None:
    Path("graph.txt").write_text(f"{LAYERS}\n\n{LAYERS}")
    assert main([*WHY, "--html", "page.html"]) == 0
    assert len(held(Path("page.html").read_text())["graphs"]) == 2


def test_commands_that_draw_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--format", "html", "check", "norm.fuse"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "`fusiondsl check` draws no page: --format is pretty or json" in said.err
    assert main(["check", "norm.fuse", "--format", "html"]) == 2


def test_a_terminal_without_unicode() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fusiondsl", *WHY, "--format", "html"],
        env={"PYTHONPATH": str(HERE.parents[1]), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert held(done.stdout.decode("ascii"))["graphs"]
