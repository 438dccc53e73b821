"""The `fmt` subcommand: in place, checking, converting, and never half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusiondsl.cli.main import main

MESSY = 'import   "x.fuse"\nlet  A=1   # kept\n'
TIDY = 'import "x.fuse"\n\nlet A = 1  # kept\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.fuse"
    path.write_text(MESSY)
    return path


def test_in_place(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o640)
    assert main(["fmt", str(file)]) == 0
    assert file.read_text() == TIDY
    assert file.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert main(["fmt", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert list(file.parent.iterdir()) == [file]


def test_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", str(file.parent)]) == 1
    assert file.read_text() == MESSY
    assert capsys.readouterr().out == f"would change {file}\n"
    file.write_text(TIDY)
    assert main(["fmt", "--check", str(file)]) == 0


def test_stdout(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--stdout", str(file)]) == 0
    assert capsys.readouterr().out == TIDY
    assert file.read_text() == MESSY


def test_convert_both_ways(file: Path) -> None:
    assert main(["fmt", "--to", "yaml", str(file)]) == 0
    converted = file.with_suffix(".yaml")
    assert converted.read_text() == "imports:\n  - x.fuse\n\nlets:\n  A: 1  # kept\n"
    assert main(["fmt", "--to", "fuse", str(converted)]) == 2  # a.fuse exists
    assert file.read_text() == MESSY
    file.unlink()
    assert main(["fmt", "--to", "fuse", str(converted)]) == 0
    assert file.read_text() == TIDY


def test_nothing_is_written_where_one_file_is_broken(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = file.with_name("b.fuse")
    broken.write_text("let = 1\n")
    assert main(["fmt", str(file), str(broken)]) == 3
    assert file.read_text() == MESSY
    assert "FD010" in capsys.readouterr().err
    assert main(["fmt", str(file), str(file.with_name("missing.fuse"))]) == 2
    assert file.read_text() == MESSY


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link.fuse")
    link.symlink_to(file)
    assert main(["fmt", str(link)]) == 0
    assert link.is_symlink()
    assert file.read_text() == TIDY


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert main(["fmt", str(file)]) == 4
    assert file.read_text() == MESSY
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("name", ["missing.fuse", "x" * 5000 + ".fuse"], ids=["missing", "long"])
def test_unreadable(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", name]) == 2
    assert "error[FD001]: cannot read" in capsys.readouterr().err


LISTS = {
    "params": "op f(x: D[t..], x: D[t..])",
    "results": "op f(x: D[t..]) -> (y: D[t..], y: D[t..])",
    "lets": "let A = 1\nlet A = 2",
    "tables": "table t(a) {\n  (_) = 1\n}\ntable t(a) {\n  (_) = 1\n}",
    "predicates": "extern predicate p(a: int, a: int)",
    "examples": "fuse f(a, b = 1) {\n  example { T = 1, T = 2 } fires\n}",
    "rule lets": "rule r(x: D[t..]) {\n  let A = 1\n  let A = 2\n  match { y = f(x) }\n"
    "  replace { y = g(x) }\n}",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_a_name_given_twice_has_no_yaml(
    file: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text + "\n")
    assert main(["fmt", "--to", "yaml", str(file)]) == 3
    assert "error[FD032]: `" in capsys.readouterr().err
    assert list(file.parent.iterdir()) == [file]
    assert main(["fmt", str(file)]) == 0


def test_comments_with_characters_that_yaml_takes_for_the_end_of_a_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("# a\u2028b\x85c\x07d\n\nlet A = 1  # e\rf\n", newline="")
    assert main(["fmt", "--to", "yaml", "--stdout", str(file)]) == 0
    assert capsys.readouterr().out == (
        "# a<U+2028>b<U+0085>c<U+0007>d\nlets:\n  A: 1  # e<U+000D>f\n"
    )
