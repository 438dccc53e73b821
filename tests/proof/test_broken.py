"""Broken variants of shipped rules: check and proof refuse each, with the right first cause.

Every file in `tests/cases/proof` is a shipped rule with one mistake in it, and its text says which.
`FUSIONDSL_UPDATE_CASES=1` writes the expected texts anew; read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.proof import Level, Prover
from fusiondsl.resources import patterns_root
from fusiondsl.rules import check, in_text_order

CASES = Path(__file__).parent.parent / "cases" / "proof"
FILES = sorted(CASES.glob("*.fuse"))
LEAST = 40


def test_there_are_enough() -> None:
    assert len(FILES) >= LEAST


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    diagnostics = Diagnostics()
    program = check([path.name], diagnostics)
    (rule,) = program.rules
    text = render_all(in_text_order(diagnostics))
    verdict = Prover(program).rule(rule)
    text = text.replace(str(patterns_root()), "patterns") + f"\nproof: {verdict}\n"
    expected = path.with_suffix(".expected")
    if os.environ.get("FUSIONDSL_UPDATE_CASES") == "1":
        expected.write_text(text)
    assert diagnostics.has_errors or verdict.level is Level.UNPROVED
    assert text == expected.read_text()
