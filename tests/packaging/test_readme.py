"""The README's tutorial, run against the installed wheel in an empty directory.

A block with a title is a file; in a `console` block, lines after `$ ` are commands and the rest is
what they print.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.packaging.conftest import CHECKOUT, Installed

_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_tutorial(installed: Installed, tmp_path: Path) -> None:
    ran = 0
    for language, title, text in _BLOCK.findall((CHECKOUT / "README.md").read_text()):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "console":
            for command, expected in _COMMAND.findall(text):
                ran += 1
                result = installed.run(command, tmp_path)
                assert result.stdout.rstrip() == expected.rstrip(), command
                assert (result.returncode == 0) == ("error[" not in expected), command
    assert ran >= 8


def test_every_block_is_a_file_or_a_console_or_set_up() -> None:
    blocks = _BLOCK.findall((CHECKOUT / "README.md").read_text())
    assert {language for language, title, _ in blocks if not title} == {"console", "sh"}
