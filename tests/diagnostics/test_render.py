"""How diagnostics are printed: marks under the right columns, whatever the text."""

from __future__ import annotations

from fusiondsl.diagnostics import Diagnostic, Diagnostics, Label, Severity, Source, Span
from fusiondsl.diagnostics.render import render, render_all, summary
from fusiondsl.diagnostics.suggest import did_you_mean


def _at(text: str, start: int, end: int, name: str = "a.fuse") -> Span:
    return Span(Source(name, text), start, end)


def _error(span: Span | None, message: str = "wrong", **extra: object) -> Diagnostic:
    return Diagnostic("FD010", Severity.ERROR, message, span, **extra)  # type: ignore[arg-type]


def test_one_line() -> None:
    assert render(_error(_at("let a = 1\n", 4, 5))) == (
        "error[FD010]: wrong\n --> a.fuse:1:5\n  |\n1 | let a = 1\n  |     ^"
    )


def test_without_location() -> None:
    assert render(_error(None, help="try")) == "error[FD010]: wrong\n  = help: try"


def test_notes_and_help_align() -> None:
    item = _error(_at("x", 0, 1), notes=("one\ntwo",), help="three")
    assert render(item).splitlines()[-4:] == [
        "  |",
        "  = note: one",
        "          two",
        "  = help: three",
    ]


def test_span_over_lines_marks_first_and_last() -> None:
    text = "aa bb\ncc\n  dd ee\n"
    assert render(_error(_at(text, 3, 13))).splitlines()[3:] == [
        "1 | aa bb",
        "  |    ^^",
        "...",
        "3 |   dd ee",
        "  |   ^^",
    ]


def test_span_that_ends_at_a_line_start() -> None:
    assert render(_error(_at("ab\ncd\n", 0, 3))).splitlines()[3:] == ["1 | ab", "  | ^^"]


def test_labels_in_the_same_and_another_source() -> None:
    source = Source("a.fuse", "one\ntwo\n")
    other = Source("b.fuse", "three\n")
    item = _error(
        Span(source, 4, 7),
        labels=(Label(Span(source, 0, 3), "first"), Label(Span(other, 0, 5), "second")),
    )
    assert render(item).splitlines()[1:] == [
        " --> a.fuse:2:1",
        "  |",
        "1 | one",
        "  | --- first",
        "2 | two",
        "  | ^^^",
        " ::: b.fuse:1:1",
        "  |",
        "1 | three",
        "  | ----- second",
    ]


def test_tabs_wide_and_control_characters() -> None:
    text = "\t漢x\x1b[31m\u202ey e\u0301z\r\n"
    lines = render(_error(_at(text, text.index("z"), text.index("z") + 1))).splitlines()
    assert lines[3] == "1 |     漢x<U+001B>[31m<U+202E>y e\u0301z"
    # Two columns for the wide character, none for the combining accent.
    assert lines[4] == "  | " + " " * (4 + 2 + 1 + 8 + 4 + 8 + 3) + "^"


def test_long_lines_are_cut() -> None:
    text = "a" * 500 + "b" + "c" * 500_000
    lines = render(_error(_at(text, 500, 501))).splitlines()
    assert max(map(len, lines)) < 160
    assert lines[3][lines[4].index("^")] == "b"


def test_escaped_messages_and_names() -> None:
    text = render(_error(_at("x", 0, 1, "bad\x1bname"), "mess\nage \x07"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.splitlines()[0] == "error[FD010]: mess<U+000A>age <U+0007>"


def test_colour_is_only_added() -> None:
    import re

    item = _error(_at("let a\n", 4, 5), notes=("n",), help="h")
    coloured = render(item, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(item)


def test_summary() -> None:
    diagnostics = Diagnostics()
    assert render_all(diagnostics) == ""
    for number in range(2):
        diagnostics.error("FD010", f"wrong {number}", None)
    diagnostics.warning("FD006", "odd", None)
    assert summary(diagnostics) == "2 errors, 1 warning"
    assert render_all(diagnostics).endswith("\n\n2 errors, 1 warning\n")


def test_the_same_diagnostic_once() -> None:
    diagnostics = Diagnostics()
    span = _at("x", 0, 1)
    for _ in range(2):
        diagnostics.error("FD010", "wrong", span)
    assert len(diagnostics) == 1


def test_did_you_mean() -> None:
    assert did_you_mean("mtch", ["match", "replace"]) == "did you mean `match`?"
    assert did_you_mean("zzz", ["match", "replace"]) is None
