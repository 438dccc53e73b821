"""An edit that is named makes the rule fire, also when a person makes it; others are not named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run
from tests.why.test_threads import CASES, parts

__all__ = ["run"]


def why(run: Run, place: Path, case: str) -> tuple[list[str], str, list[str]]:
    """The words of the command, the rule, and the edits for its one site."""
    _, command, graph, _ = parts(CASES / f"{case}.txt")
    shutil.copy(CASES / "pack.fuse", place)
    Path("graph.txt").write_text(graph)
    done = run(*command.split(), "--format", "json")
    (rule,) = json.loads(done.out)["graphs"][0]["rules"]
    (site,) = rule["sites"]
    return command.split(), rule["rule"], [edit["text"] for edit in site["edits"]]


def fires(run: Run, words: list[str], rule: str, *more: str) -> bool:
    kept = [w for i, w in enumerate(words) if w != "--rule" and words[i - 1] != "--rule"]
    done = run("apply", *kept[1:], *more, "--format", "json")
    return rule in json.loads(done.out)["graphs"][0]["counts"]


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", ["fusion_turned_off", "ranks_unknown", "token_limit"])
def test_options(case: str, run: Run, tmp_path: Path) -> None:
    words, rule, edits = why(run, tmp_path, case)
    assert not fires(run, words, rule)
    options = [word for edit in edits for word in edit.strip("`").split()]
    assert fires(run, words, rule, *options)


def test_a_literal(run: Run, tmp_path: Path) -> None:
    words, rule, edits = why(run, tmp_path, "other_eps")
    assert edits == ["`eps = 1e-05` on both sides"]
    assert not fires(run, words, rule)
    pack = Path("pack.fuse")
    pack.write_text(pack.read_text().replace("1e-6", "1e-5"))
    assert fires(run, words, rule)


def test_what_is_kept(run: Run, tmp_path: Path) -> None:
    words, rule, edits = why(run, tmp_path, "extra_user")
    (edit,) = edits
    assert "near.rms" in edit
    pack = Path("pack.fuse")
    text = pack.read_text()
    head, body = text[: text.index("rule rms_gq(")], text[text.index("rule rms_gq(") :]
    body = body.replace(
        "q, scale = near.gq(near.rms(x, w, eps), 128)",
        "n = near.rms(x, w, eps); q, scale = near.gq(n, 128)",
        1,
    )
    body = re.sub(
        r"replace \{ (q, scale = near\.rms_gq\([^}]*\)) \}", r"replace { \1; n = n }", body
    )
    pack.write_text(head + body)
    assert fires(run, words, rule)


@pytest.mark.parametrize("case", ["default_argument", "scale_layout", "layer_name"])
def test_what_the_right_side_would_not_know_is_no_edit(case: str, run: Run, tmp_path: Path) -> None:
    assert why(run, tmp_path, case)[2] == []
