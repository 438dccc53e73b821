"""Unreadable, hostile and huge input: a located diagnostic in bounded time, never an exception."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusiondsl.diagnostics import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.syntax import is_unreadable, limits, parse_file
from tests.syntax.support import CASES, read

MEGABYTE = 1_000_000
SECONDS = 60
"""Generous: the machines that run tests may be busy. Idle, each takes a second or two."""

HUGE = {
    "parentheses": "(" * MEGABYTE,
    "square": "[" * MEGABYTE,
    "braces": "{" * MEGABYTE,
    "nested_value": "let x = " + "[" * (MEGABYTE // 2) + "]" * (MEGABYTE // 2),
    "minus": "let x = " + "-" * MEGABYTE + "1",
    "sum": "let x = " + "a+" * (MEGABYTE // 2) + "a",
    "power": "let x = " + "a**" * (MEGABYTE // 3) + "a",
    "methods": "let x = a(1)" + ".b(1)" * (MEGABYTE // 5),
    "arguments": "let x = f(" + "a," * (MEGABYTE // 2) + ")",
    "case": "op f() { means { " + "case x { " * (MEGABYTE // 9),
    "quotes": '"' * MEGABYTE,
    "newlines": "\n" * MEGABYTE,
    "comment": "#" * MEGABYTE,
    "items": "rule\n" * (MEGABYTE // 5),
    "digits": "let x = " + "9" * MEGABYTE,
    "name": "let " + "a" * MEGABYTE + " == 1",
    "colons": ": " * (MEGABYTE // 2),
    "dashes": "- " * (MEGABYTE // 2),
    "spaces": " " * MEGABYTE,
}


@pytest.mark.parametrize("suffix", ["fuse", "yaml"])
@pytest.mark.parametrize("name", HUGE)
def test_a_megabyte_of(name: str, suffix: str) -> None:
    start = time.monotonic()
    _, diagnostics = read(HUGE[name], f"huge.{suffix}")
    text = render_all(diagnostics)
    assert time.monotonic() - start < SECONDS
    assert len(diagnostics)
    assert all(item.span is not None for item in diagnostics)
    assert len(text) < 100_000


@pytest.mark.parametrize("suffix", ["fuse", "yaml"])
@pytest.mark.parametrize("seed", range(4))
def test_random_characters(seed: int, suffix: str) -> None:
    characters = "abc(){}[]=,:;.\"'#\n \t123+-*/<>!&|%@~?\\é\u202e漢"
    text = "".join(random.Random(seed).choices(characters, k=10_000))
    start = time.monotonic()
    _, diagnostics = read(text, f"random.{suffix}")
    assert render_all(diagnostics)
    assert time.monotonic() - start < SECONDS


VALID = {
    suffix: (CASES / "syntax" / f"valid.{suffix}").read_text(encoding="utf-8")
    for suffix in ("fuse", "yaml")
}


@pytest.mark.parametrize("suffix", ["fuse", "yaml"])
@given(data=st.data())
def test_damaged_files(suffix: str, data: st.DataObject) -> None:
    text = VALID[suffix]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    inserted = data.draw(st.text(st.sampled_from("(){}[]=,:;.\"'#\n 1a-&*!|>\t"), max_size=4))
    _, diagnostics = read(text[:start] + inserted + text[start + length :], f"damaged.{suffix}")
    render_all(diagnostics)
    for item in diagnostics:
        assert item.span is not None
        assert 0 <= item.span.start <= item.span.end <= len(item.span.source.text)


def test_error_count_is_bounded() -> None:
    _, diagnostics = read("let = 3\n" * 1000)
    assert [item.code for item in diagnostics][-1] == "FD021"
    assert len(diagnostics) == limits.MAX_SYNTAX_ERRORS + 1


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.fuse", b"\xff\xfel\x00", "FD002"),
        ("a.fuse", b"let a = 1 # caf\xe9\n", "FD002"),
        ("a.yaml", b"rules: []\n# \x80\n", "FD002"),
        ("a.fuse", b"\x7fELF\x00\x01", "FD003"),
        ("a.txt", b"let a = 1\n", "FD005"),
    ],
)
def test_unreadable(tmp_path: Path, name: str, data: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    diagnostics = Diagnostics()
    assert parse_file(path, diagnostics) is None
    assert [item.code for item in diagnostics] == [code]
    assert is_unreadable(diagnostics)


@pytest.mark.parametrize("name", ["missing.fuse", "folder.fuse", "nul\0.fuse"])
def test_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.fuse").mkdir()
    diagnostics = Diagnostics()
    assert parse_file(str(tmp_path / name), diagnostics) is None
    assert [item.code for item in diagnostics] == ["FD001"]


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusiondsl.syntax.files.MAX_FILE_BYTES", 10)
    path = tmp_path / "a.fuse"
    path.write_text("let aaa = 1\n")
    diagnostics = Diagnostics()
    assert parse_file(path, diagnostics) is None
    assert [item.code for item in diagnostics] == ["FD004"]


@pytest.mark.parametrize("suffix", ["fuse", "yaml"])
def test_byte_order_mark_and_crlf_change_nothing(tmp_path: Path, suffix: str) -> None:
    from fusiondsl.syntax import structure

    plain, _ = read(VALID[suffix], f"a.{suffix}")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"\xef\xbb\xbf" + VALID[suffix].replace("\n", "\r\n").encode())
    diagnostics = Diagnostics()
    module = parse_file(path, diagnostics)
    assert module is not None
    assert not len(diagnostics)
    assert structure(module.items) == structure(plain.items)
