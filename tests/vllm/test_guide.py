"""The commands of docs/vllm.md print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vllm.cpu_engine.start import EVERY, PYTHON, ROOT, TIMEOUT, Engines

PAGE = ROOT / "docs" / "vllm.md"
MODEL = "llama"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed here")
@pytest.mark.skipif(not EVERY, reason="FUSIONDSL_ENGINES is not `all`")
def test_the_guide(tmp_path: Path) -> None:
    engines = Engines(tmp_path / "engines")
    work, programs = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    _program(programs / "python", f'exec {PYTHON} "$@"')
    _program(programs / "fusiondsl", f'exec {sys.executable} -m fusiondsl "$@"')
    environment = engines.variables({}, cache="guide")
    environment["MODEL"] = str(engines.model(MODEL))
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
    ran = 0
    for language, title, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if title:
            (work / title).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, expected in _COMMAND.findall(text):
                done = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", command],
                    cwd=work,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT,
                    check=False,
                )
                assert done.stdout.rstrip() == expected.rstrip(), (command, done.stderr[-4000:])
                ran += 1
    assert ran == 3


def _program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
