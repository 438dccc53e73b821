"""docs/aiter.md: its programs print what the page shows, and its counts are right."""

from __future__ import annotations

import re

import pytest

import fusiondsl
from fusiondsl.aiter.tree import PACKAGE
from fusiondsl.ops.dispatch import SWITCH
from tests.docs.pages import DOCS, run_programs

PAGE = DOCS / "aiter.md"


def test_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH)
    assert run_programs(PAGE) == 2


def test_every_call_is_counted() -> None:
    ops = fusiondsl.load("fusiondsl:ops").program.ops.values()
    calls = [impl for op in ops for impl in op.impls if impl.location.startswith(f"{PACKAGE}.")]
    text = PAGE.read_text(encoding="utf-8")
    assert f"make {len(calls)} such calls" in text
    for row in re.findall(r"^\| .* \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE):
        assert sum(map(int, row)) == len(calls)
