"""Runs the programs of a page and compares what they print with what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def run_programs(page: Path) -> int:
    """In one namespace and in the working directory, where titled blocks become files.

    A `text` block is what the program before it prints. Returns how many programs ran.
    """
    names: dict[str, Any] = {}
    printed, ran = "", 0
    for language, title, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python":
            assert printed == "", "the page does not show what was printed"
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(text, names)
            printed, ran = said.getvalue(), ran + 1
        elif language == "text":
            assert printed == text
            printed = ""
    assert printed == ""
    return ran
