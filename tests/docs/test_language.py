"""Every block of docs/language.md is checked, and refused where it says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusiondsl.analysis.modules import Loader
from fusiondsl.cli.main import main
from fusiondsl.diagnostics.diagnostic import Diagnostics, Severity
from fusiondsl.diagnostics.source import Source
from fusiondsl.rules import analyse_loaded, load_source
from tests.support.rules import canonical

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
_FENCE = re.compile(r"^```(fuse|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLED = re.compile(r'^```text title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_REFUSED = re.compile(r"^# refused: (FD\d{3})$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    name: str
    text: str

    @property
    def refused(self) -> str | None:
        found = _REFUSED.search(self.text)
        return found[1] if found else None


def blocks() -> list[Block]:
    page = PAGE.read_text(encoding="utf-8")
    return [
        Block(f"line{page.count(chr(10), 0, found.start()) + 1}.{found[1]}", found[2])
        for found in _FENCE.finditer(page)
    ]


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.name)
def test_block(block: Block) -> None:
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    loader.add_source(Source(block.name, block.text))
    analyse_loaded(loader, diagnostics)
    errors = [(d.code, d.message) for d in diagnostics if d.severity is Severity.ERROR]
    if block.refused is None:
        assert errors == []
    else:
        assert block.refused in [code for code, _ in errors], errors


def test_the_derived_rule_is_the_written_one() -> None:
    fuse, rule = (b for b in blocks() if "norm_quant" in b.text and "fused.norm_quant(\n" in b.text)
    derived, written = (load_source(b.text, b.name).program.rules for b in (fuse, rule))
    assert "fuse " not in rule.text
    assert list(map(canonical, derived)) == list(map(canonical, written))


@pytest.mark.parametrize(
    "block", [b for b in blocks() if b.refused is None], ids=lambda block: block.name
)
def test_rules_match_their_own_source_and_examples_hold(block: Block, tmp_path: Path) -> None:
    for title, text in _TITLED.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / title).parent.mkdir(exist_ok=True)
        (tmp_path / title).write_text(text, encoding="utf-8")
    path = tmp_path / block.name
    path.write_text(block.text, encoding="utf-8")
    assert main(["test", str(path)]) == 0
