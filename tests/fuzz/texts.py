"""Rule files as text, in both spellings: read, reported, printed and read again."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Literal

from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.diagnostics.source import Source
from fusiondsl.resources import grammar_file, patterns_root
from fusiondsl.syntax import UNREADABLE, ast, parse, print_module, structure
from fusiondsl.syntax.files import decode_source
from fusiondsl.syntax.yaml_keys import check_keys
from tests.fuzz.case import Case, Target
from tests.fuzz.mutate import LARGEST, changed, encoded, noise, words

Style = Literal["fuse", "yaml"]

CASES = Path(__file__).parents[1] / "cases"
OUTCOMES = frozenset({"read", "refused", "unreadable"})


@cache
def seeds(style: Style) -> tuple[str, ...]:
    """Texts to start from: the shipped files and the cases of the tests, in this spelling."""
    folders = (patterns_root(), CASES / "syntax", CASES / "check", CASES / "format")
    files = sorted(file for folder in folders for file in folder.rglob("*.*"))
    texts = [f.read_text(errors="replace") for f in files if f.suffix in (".fuse", ".yaml")]
    names = [f.name for f in files if f.suffix in (".fuse", ".yaml")]
    found = [_spelt(name, text, style) for name, text in zip(names, texts, strict=True)]
    return tuple(text for text in found if text and len(text) <= LARGEST)


def _spelt(name: str, text: str, style: Style) -> str | None:
    if name.endswith(style):
        return text
    diagnostics = Diagnostics()
    module = parse(Source(name, text), diagnostics)
    return None if diagnostics.has_errors else print_module(module, style)


def _text(style: Style, rng: Random) -> Case:
    texts = seeds(style)
    text = rng.choice(texts)
    kind = rng.randrange(10)
    if kind == 0:
        return Case(noise(encoded(text), rng), f".{style}")
    if kind == 1:
        return Case(encoded(_soup(rng, _vocabulary(style))), f".{style}")
    nasty = _YAML if style == "yaml" and rng.random() < 0.5 else None
    text = changed(text, rng, texts) if nasty is None else changed(text, rng, texts, nasty)
    data = encoded(text)
    if kind == 2:
        data = b"\xef\xbb\xbf" * rng.choice((1, 2)) + data.replace(b"\n", b"\r\n")
    return Case(data[: 2 * LARGEST], f".{style}")


def _soup(rng: Random, vocabulary: tuple[str, ...]) -> str:
    return "".join(rng.choice(vocabulary) for _ in range(rng.choice((3, 30, 300, 2_000))))


@cache
def _vocabulary(style: Style) -> tuple[str, ...]:
    text = "\n".join(seeds(style)) + grammar_file().read_text()
    extra = _YAML if style == "yaml" else ()
    return tuple(sorted(set(words(text)))) + extra + (" ", "\n", "\n  ") * 20


_YAML = (
    "&a ", "*a", "*a\n", "&a [*a]", "!!python/object/apply:os.system [ls]", "!!binary ", "!x ",
    "!!int ", "!!str ", "!!set ", "!!timestamp ", "|", "|\n", "|-", "|+2\n", ">", ">-\n", "? ",
    ": ", "- ", "---\n", "...\n", "%YAML 9.9\n---\n", "%TAG ! x\n", "<<: ", "<<: *a\n", "{", "}",
    "[", "]", ", ", "'", "''", '"', "\\n", "\\x41", "\\u12", "\\U00110000", "~", "null", "yes",
    "0o17", "0x1F", "1_000", "1:30", ".inf", ".nan", "2001-01-01", "=", "#", " #", "\t", "\r",
    "\x85", "\ufeff", "rules:", "rules: ", "ops:", "match: |\n", "{a: 1, a: 2}", "[[[[[[[[[[",
    "{{{{{{{{", "\x07", "@", "`", "? [a, b]\n: c\n", "- - - - - - - - ", "name: name: name",
    "\n\n\n", "  ", "        ",
)  # fmt: skip


# --- what must hold ------------------------------------------------------------------------------


def check_text(case: Case) -> str:
    diagnostics = Diagnostics()
    source = decode_source(f"fuzzed{case.suffix}", case.data, diagnostics)
    if source is None:
        (only,) = diagnostics
        assert only.code in UNREADABLE
        return "unreadable"
    module = parse(source, diagnostics)
    check_diagnostics(diagnostics, source)
    if diagnostics.has_errors:
        return "refused"
    _check_printed(module, "fuse")
    if in_yaml(module):
        _check_printed(module, "yaml")
    return "read"


def in_yaml(module: ast.Module) -> bool:
    """Can YAML say it?"""
    found = Diagnostics()
    check_keys(module, found)
    return not found.has_errors


def check_diagnostics(diagnostics: Diagnostics, source: Source) -> None:
    """Each is known, and stands in its text."""
    for item in diagnostics:
        assert item.code in CODES, item
        assert item.span is not None, item
        for span in (item.span, *(label.span for label in item.labels)):
            assert 0 <= span.start <= span.end <= len(span.source.text), item
        assert item.span.source is source or item.span.source.name != source.name, item
    assert bool(render_all(diagnostics)) == bool(len(diagnostics))


def _check_printed(module: ast.Module, style: Style) -> None:
    """What is printed reads back as the same tree, and prints the same again."""
    printed = print_module(module, style)
    diagnostics = Diagnostics()
    again = parse(Source(f"printed.{style}", printed), diagnostics)
    assert not diagnostics.has_errors, render_all(diagnostics)
    assert in_any_order(again) == in_any_order(module), printed
    assert print_module(again, style) == printed, printed


def in_any_order(module: ast.Module) -> list[str]:
    """YAML keeps items by kind."""
    return sorted(repr(structure(item)) for item in module.items)


PARSER = Target("parser", lambda rng: _text("fuse", rng), check_text, 3, OUTCOMES)
YAML = Target("yaml", lambda rng: _text("yaml", rng), check_text, 3, OUTCOMES)
