"""`explain`: every code has its text, and near misses are named."""

from __future__ import annotations

import json

import pytest

from fusiondsl.diagnostics.codes import CODES
from tests.cli.conftest import Run


def test_one_code(run: Run) -> None:
    done = run("explain", "FD643")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "FD643: artifact of another version\n"
        "\n"
        "Artifacts carry the version of their format and a digest of the layout of programs, and\n"
        "only these are read: a guess at others could rewrite a graph wrongly. Compile the rules\n"
        "again with the installed version. The version of torch does not matter: nothing in an\n"
        "artifact is traced.\n"
    )
    assert run("explain", " fd643 ").out == done.out


@pytest.mark.parametrize("code", CODES)
def test_every_code(run: Run, code: str) -> None:
    done = run("explain", code)
    assert done.code == 0
    assert done.out.startswith(f"{code}: {CODES[code].title}\n\n")
    assert all(len(line) <= 100 for line in done.out.splitlines())


def test_the_list(run: Run) -> None:
    lines = run("explain").out.splitlines()
    assert lines[0] == "code   meaning"
    assert lines[1:] == [f"{code}  {info.title}" for code, info in CODES.items()]
    codes = json.loads(run("explain", "--format", "json").out)["codes"]
    assert codes == {code: info.title for code, info in CODES.items()}


def test_json(run: Run) -> None:
    document = json.loads(run("explain", "FD640", "--format", "json").out)
    info = CODES["FD640"]
    assert document == {
        "version": 1,
        "diagnostics": [],
        "code": "FD640",
        "title": info.title,
        "explanation": info.explanation,
        "example": info.example,
    }


def test_an_unknown_code(run: Run) -> None:
    done = run("explain", "FD6433")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("fusiondsl: no diagnostic has the code `FD6433`; did you mean `FD643`?\n")
    done = run("explain", "zebra")
    assert done.err == (
        "fusiondsl: no diagnostic has the code `zebra`; `fusiondsl explain` lists all\n"
    )
