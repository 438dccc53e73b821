"""Every file in `cases/syntax` yields exactly the diagnostics stored beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.render import render_all
from tests.syntax.support import CASES, check_expected, read_case

FILES = sorted(p for p in (CASES / "syntax").iterdir() if p.suffix in (".fuse", ".yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_case(path: Path) -> None:
    _, diagnostics = read_case(path)
    assert all(item.code in CODES for item in diagnostics)
    check_expected(path.with_name(path.name + ".expected"), render_all(diagnostics))
