"""Shared by the tests of this folder."""

from __future__ import annotations

import os
from pathlib import Path

from fusiondsl.diagnostics import Diagnostics, Source
from fusiondsl.syntax import ast, parse
from fusiondsl.syntax.files import decode_source

CASES = Path(__file__).parent.parent / "cases"
_UPDATE = os.environ.get("FUSIONDSL_UPDATE_CASES") == "1"


def read(text: str, name: str = "case.fuse") -> tuple[ast.Module, Diagnostics]:
    diagnostics = Diagnostics()
    return parse(Source(name, text), diagnostics), diagnostics


def read_case(path: Path) -> tuple[ast.Module, Diagnostics]:
    """As from disk, but named by the file alone, so that messages do not depend on folders."""
    diagnostics = Diagnostics()
    source = decode_source(path.name, path.read_bytes(), diagnostics)
    assert source is not None
    return parse(source, diagnostics), diagnostics


def check_expected(path: Path, actual: str) -> None:
    """Compares with the text stored beside the case; FUSIONDSL_UPDATE_CASES=1 stores it anew."""
    if _UPDATE:
        path.write_text(actual, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == actual
