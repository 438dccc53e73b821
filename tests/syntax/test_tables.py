"""Prebuilt tables read like the grammar they are made from, and only that grammar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusiondsl.diagnostics import Diagnostics, Source
from fusiondsl.resources import patterns_root
from fusiondsl.syntax import fuse, structure, tables
from fusiondsl.syntax.build import Builder
from fusiondsl.syntax.grammar import Brackets, compile_grammar


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "grammar" / "tables.json"
    place.parent.mkdir()
    monkeypatch.setattr(tables, "tables_file", lambda: place)
    return place


def _read_all(monkeypatch: pytest.MonkeyPatch, *, prebuilt: bool) -> list[object]:
    builder, brackets = Builder(), Brackets()
    parser = tables.read(builder, brackets) if prebuilt else compile_grammar(builder, brackets)
    assert parser is not None
    monkeypatch.setattr(fuse, "_tools", lambda: fuse._Tools(parser, builder, brackets))
    cases = Path(__file__).parents[1] / "cases" / "syntax"
    files = sorted([*patterns_root().rglob("*.fuse"), *cases.glob("*.fuse")])
    assert len(files) > 30
    read: list[object] = []
    for file in files:
        found = Diagnostics()
        module = fuse.parse_module(Source(file.name, file.read_text("utf-8", "replace")), found)
        read.append((file.name, structure(module.items), [str(item) for item in found]))
    return read


def test_they_read_every_text_as_the_grammar_does(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tables.write() == place
    first = place.read_bytes()
    tables.write()
    assert place.read_bytes() == first
    files = [path for path in place.parents[1].rglob("*") if path.is_file()]
    assert files == [place]
    compiled = _read_all(monkeypatch, prebuilt=False)
    assert _read_all(monkeypatch, prebuilt=True) == compiled


def test_tables_of_anything_else_are_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.read(Builder(), Brackets()) is None
    tables.write()
    assert tables.read(Builder(), Brackets()) is not None
    whole = place.read_text()
    for text in ("", "[]", "{}", whole[:-1], json.dumps({"key": "another"})):
        place.write_text(text)
        assert tables.read(Builder(), Brackets()) is None
    place.write_text(whole)
    monkeypatch.setattr("lark.__version__", "0.1")
    assert tables.read(Builder(), Brackets()) is None
