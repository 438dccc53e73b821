"""Every example of docs/json.md prints what the page shows, and every subcommand has one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fusiondsl.cli.main import COMMANDS, main
from fusiondsl.diagnostics.documents import JSON_VERSION

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w./]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = []
    for language, title, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text, encoding="utf-8")
            continue
        assert language == "console"
        command, _, expected = text.partition("\n")
        program, *words = command.removeprefix("$ ").split()
        assert program == "fusiondsl"
        main(words)
        ran.append(words[0])
        printed = capsys.readouterr()
        assert printed.err == "", command
        assert json.loads(printed.out) == json.loads(expected), command
    assert sorted({*ran, "schema"}) == sorted(COMMANDS)


def test_every_document_has_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["version", "diagnostics", "schema"]
    assert document["version"] == JSON_VERSION
    assert f"| `version` | number | {JSON_VERSION}, " in PAGE.read_text(encoding="utf-8")


def test_what_is_no_diagnostic_is_in_the_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "FD000", "--format", "json"]) == 2
    printed = capsys.readouterr()
    assert printed.err == ""
    document = json.loads(printed.out)
    assert document["diagnostics"] == []
    assert document["error"].startswith("no diagnostic has the code `FD000`")
