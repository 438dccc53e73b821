"""Every file in `tests/cases/check` gives exactly the diagnostics that lie next to it.

`FUSIONDSL_UPDATE_CASES=1` writes the expected texts anew; read the difference before committing it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fusiondsl.diagnostics.codes import lints, names, order, types
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.resources import patterns_root
from fusiondsl.rules import check, in_text_order

CASES = Path(__file__).parent.parent / "cases" / "check"
FILES = sorted(p for p in CASES.iterdir() if p.suffix in (".fuse", ".yaml"))
CODES = {**names.CODES, **types.CODES, **lints.CODES, **order.CODES}


def rendered(path: Path) -> str:
    diagnostics = Diagnostics()
    check([path.name], diagnostics)
    return render_all(in_text_order(diagnostics)).replace(str(patterns_root()), "patterns")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_case(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    text = rendered(path)
    expected = path.with_suffix(path.suffix + ".expected")
    if os.environ.get("FUSIONDSL_UPDATE_CASES") == "1":
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_code_has_a_case() -> None:
    text = "".join(p.read_text() for p in CASES.glob("*.expected"))
    shown = set(re.findall(r"\[(FD[1-4]\d\d)\]", text))
    assert shown == CODES.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_name_says_the_code(path: Path) -> None:
    match = re.match(r"fd(\d{3})_", path.name)
    if match and path.stem != "fd401_orders":
        expected = path.with_suffix(path.suffix + ".expected").read_text()
        assert f"[FD{match[1]}]" in expected
    if path.name.startswith("good_"):
        assert path.with_suffix(path.suffix + ".expected").read_text() == ""
