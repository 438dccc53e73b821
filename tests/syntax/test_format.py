"""Layout and comments: every file in `cases/format` prints as stored, in both spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusiondsl.resources import patterns_root
from fusiondsl.syntax import print_module, structure
from fusiondsl.syntax.comments import Comments
from fusiondsl.syntax.printer import Style
from tests.syntax.support import CASES, check_expected, read, read_case

PRINTED = ("comments.fuse", "comments.yaml", "fuse.fuse", "expect.fuse")
FILES = [CASES / "format" / name for name in PRINTED]
SHIPPED = sorted(p for p in patterns_root().rglob("*") if p.suffix in (".fuse", ".yaml"))
STYLES: list[Style] = ["fuse", "yaml"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_printed_as_stored(path: Path, style: Style) -> None:
    module, diagnostics = read_case(path)
    assert not len(diagnostics)
    check_expected(path.with_name(f"{path.name}.as.{style}"), print_module(module, style))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("path", [*FILES, *SHIPPED], ids=lambda path: path.name)
def test_nothing_is_lost(path: Path, style: Style) -> None:
    module, _ = read_case(path)
    printed = print_module(module, style)
    again, diagnostics = read(printed, f"again.{style}")
    assert not len(diagnostics)
    assert sorted(map(repr, map(structure, again.items))) == sorted(
        map(repr, map(structure, module.items))
    )
    assert print_module(again, style) == printed
    assert sorted(Comments(module).rest()) == sorted(Comments(again).rest())


def test_numbers_keep_their_spelling() -> None:
    module, _ = read("let A = 0x1F\nlet B = 64 MiB\nlet C = 1_000\nlet D = 1e-6\nlet E = 2.50\n")
    assert print_module(module, "fuse") == module.source.text


@pytest.mark.parametrize("style", STYLES)
def test_blanks_in_a_number_are_one_space(style: Style) -> None:
    module, _ = read("let A = 64 \t MiB\n")
    assert "64 MiB" in print_module(module, style)


def test_parentheses_only_where_needed() -> None:
    text = "let A = ((a + (b * c)) - (d - e)) ** (-f) ** g"
    module, _ = read(text)
    assert print_module(module, "fuse") == "let A = (a + b * c - (d - e)) ** (-f) ** g\n"


def test_empty_module() -> None:
    for style in STYLES:
        module, _ = read("")
        assert print_module(module, style) == ""
        module, _ = read("# only this\n")
        assert print_module(module, style) == "# only this\n"


def test_long_examples_wrap_between_bindings() -> None:
    facts = ", ".join(f"env.fact_number_{i} = {i}" for i in range(3))
    text = f"""rule r(x: f32[n]) {{
  match {{ y = x + x }}
  replace {{ y = x * 2 }}
  example {{ n = 1, {facts} }} refused because something_rather_long
  example {{ n = 1, {facts}, {facts} }} fires
  example {{ n = 1, {facts}, {facts[:-4]}_and_a_long_tail = 12345678 }} refused because thing
}}
"""
    module, _ = read(text)
    printed = print_module(module, "fuse")
    assert [line for line in printed.splitlines() if line != line.rstrip() or len(line) > 100] == []
    assert printed.splitlines()[3:] == [
        "  example { n = 1, env.fact_number_0 = 0, env.fact_number_1 = 1, env.fact_number_2 = 2 }",
        "    refused because something_rather_long",
        "  example { n = 1, env.fact_number_0 = 0, env.fact_number_1 = 1, env.fact_number_2 = 2,",
        "            env.fact_number_0 = 0, env.fact_number_1 = 1, env.fact_number_2 = 2 } fires",
        "  example { n = 1, env.fact_number_0 = 0, env.fact_number_1 = 1, env.fact_number_2 = 2,",
        "            env.fact_number_0 = 0, env.fact_number_1 = 1,",
        "            env.fact_number_2_and_a_long_tail = 12345678 } refused because thing",
        "}",
    ]


def test_long_orders_are_several_statements() -> None:
    names = [f"a_rule_with_a_long_name_{number}" for number in range(7)]
    text = "rule r(x: D[T]) {\n  match   { y = relu(x) }\n  replace { y = abs(x) }\n  before "
    module, _ = read(text + ", ".join(names) + "\n}\n")
    printed = print_module(module, "fuse")
    orders = [line for line in printed.splitlines() if line.startswith("  before ")]
    assert len(orders) > 1
    assert max(map(len, orders)) <= 100
    again, diagnostics = read(printed)
    assert not len(diagnostics)
    assert structure(again.items[0]) == structure(module.items[0])


def test_yaml_rules_stand_apart_and_facts_are_bare_words() -> None:
    text = """# About this file.
rules:
  - name: first
    inputs:
      x: f32[n]
    match: |
      y = x + x
    replace: |
      y = x * 2
    examples:
      - {n: 1, env.arch: gfx950, fires: true}
      - {n: 1, env.arch: "true", fires: true}

  # About the second.
  - name: second
    inputs:
      x: f32[n]
    match: |
      y = x + x
    replace: |
      y = x * 2
"""
    module, diagnostics = read(text, "rules.yaml")
    assert not len(diagnostics)
    assert print_module(module, "yaml") == text


def test_shipped_files_are_formatted() -> None:
    for path in SHIPPED:
        module, _ = read_case(path)
        style: Style = "yaml" if path.suffix == ".yaml" else "fuse"
        assert print_module(module, style) == module.source.text, path.name
