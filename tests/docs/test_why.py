"""Every example of docs/why.md prints what the page shows, and every code is listed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fusiondsl.cli.main import main
from fusiondsl.engine.why.answer import CODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for language, title, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(text, encoding="utf-8")
            continue
        assert language == "console"
        for command, expected in _COMMAND.findall(text):
            broken = re.search(r"not hold$|^  FAILED ", expected, re.MULTILINE) is not None
            assert _run(command.split(), monkeypatch) == broken, command
            printed = capsys.readouterr()
            assert printed.err == "", command
            assert printed.out.rstrip() == expected.rstrip(), command
            ran += 1
    assert ran == 13


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    program, *rest = words
    if program == "python":
        monkeypatch.setattr(sys, "argv", rest)
        exec(compile(Path(rest[0]).read_text(), rest[0], "exec"), {})
        return 0
    assert program == "fusiondsl"
    return main(rest)


def test_codes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", text, re.MULTILINE))
    assert listed == CODES
