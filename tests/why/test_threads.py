"""What public threads complain about, as graphs, with all that `why` prints.

Each file says where the complaint comes from, the command, the graph and the output.
`FUSIONDSL_UPDATE_CASES=1` writes the outputs anew.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]

CASES = Path(__file__).parents[1] / "cases" / "why"
FILES = sorted(CASES.glob("*.txt"))
_CASE = re.compile(r"(# .*\n\$ fusiondsl (.*)\n--- graph\n(.*)--- output\n)(.*)", re.DOTALL)


def parts(file: Path) -> tuple[str, str, str, str]:
    """What stands before the output, the command, the graph, the output."""
    found = _CASE.fullmatch(file.read_text(encoding="utf-8"))
    assert found is not None
    return found[1], found[2], found[3], found[4]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_output(file: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, command, graph, expected = parts(file)
    monkeypatch.chdir(tmp_path)
    shutil.copy(CASES / "pack.fuse", tmp_path)
    Path("graph.txt").write_text(graph, encoding="utf-8")
    done = run(*command.split())
    assert (done.code, done.err) == (0, "")
    if os.environ.get("FUSIONDSL_UPDATE_CASES") == "1":
        file.write_text(head + done.out, encoding="utf-8")
        return
    assert done.out == expected


def test_there_are_enough() -> None:
    assert len(FILES) >= 30
