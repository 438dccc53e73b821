"""Every example of docs/graphs.md prints what the page shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from fusiondsl.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "graphs.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for _, title, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(text, encoding="utf-8")
            continue
        command, _, expected = text.partition("\n")
        program, *words = command.removeprefix("$ ").split()
        if program == "python":
            runpy.run_path(words[0])
        else:
            code = main(words)
            assert (code == 0) == ("error[" not in expected), command
        printed = capsys.readouterr()
        assert (printed.out + printed.err).rstrip() == expected.rstrip(), command
        ran += 1
    assert ran == 4
