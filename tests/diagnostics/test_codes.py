"""Codes are well-formed, explained, and the examples of explanations provoke them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fusiondsl.diagnostics
from fusiondsl.diagnostics import Diagnostics, Source
from fusiondsl.diagnostics.codes import CODES, UNREADABLE, syntax
from fusiondsl.syntax import parse

PACKAGE = Path(fusiondsl.diagnostics.__file__).parent.parent
EXAMPLES = {code: info.example for code, info in syntax.CODES.items() if info.example}


@pytest.mark.parametrize("code", CODES)
def test_well_formed(code: str) -> None:
    info = CODES[code]
    assert re.fullmatch(r"FD\d{3}", code)
    assert info.title
    assert info.title[0].islower() or info.title.split()[0].isupper() or info.title[0] == "`"
    assert not info.title.endswith(".")
    assert info.explanation.endswith((".", "?", "`"))


def test_every_code_in_the_sources_is_explained() -> None:
    used = {
        code
        for path in PACKAGE.rglob("*.py")
        for code in re.findall(r'"(FD\d{3})"', path.read_text(encoding="utf-8"))
    }
    assert used <= set(CODES)
    assert set(CODES) >= UNREADABLE


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_provokes_the_code(code: str) -> None:
    text = EXAMPLES[code]
    assert text is not None
    found: set[str] = set()
    for suffix in ("fuse", "yaml"):
        diagnostics = Diagnostics()
        parse(Source(f"example.{suffix}", text), diagnostics)
        found |= {item.code for item in diagnostics}
    assert code in found
