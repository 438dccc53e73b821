"""Rules that were read before: the same while no file of them changes, and never longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.kept import load_once
from fusiondsl.rules import RuleSet

OP = "op kept.twice(x: D[t..]) -> (y: D[t..]) { means { y = x + x } }\n"
RULE = """\
import "ops.fuse"
rule twice(x: D[t..]) {
  match   { y = x + x }
  replace { y = kept.twice(x) }
  where   { D in (f16, f32) }
}
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ops.fuse").write_text(OP)
    Path("rules.fuse").write_text(RULE)
    return tmp_path / "rules.fuse"


def rewrite(path: str | Path, old: str, new: str) -> None:
    """So that size and time of the file stay as they were."""
    file = Path(path)
    before = file.stat()
    text = file.read_text()
    assert len(old) == len(new)
    assert old in text
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def dtypes(loaded: RuleSet) -> str:
    return str(loaded.program.rules[0].where)


def test_they_are_read_once(rules: Path) -> None:
    assert load_once(rules) is load_once(rules)
    assert load_once("fusiondsl:ops/norms.fuse") is load_once("fusiondsl:ops/norms.fuse")


def test_another_text_is_read_again(rules: Path) -> None:
    first = load_once(rules)
    rewrite(rules, "f16", "f64")
    second = load_once(rules)
    assert dtypes(first) != dtypes(second)
    assert load_once(rules) is second


def test_what_is_imported_counts(rules: Path) -> None:
    first = load_once(rules)
    rewrite("ops.fuse", "x + x", "x * x")
    with pytest.raises(FusionError, match="FD318"):
        load_once(rules)
    rewrite("ops.fuse", "x * x", "x + x")
    # The text that was read is there again.
    assert load_once(rules) is first


def test_errors_are_not_kept(rules: Path) -> None:
    rules.write_text("rule")
    for _ in range(2):
        with pytest.raises(FusionError):
            load_once(rules)
    rules.write_text(RULE)
    assert load_once(rules).program.rules


def test_a_file_that_comes_into_a_directory(rules: Path, tmp_path: Path) -> None:
    first = load_once(tmp_path)
    (tmp_path / "more").mkdir()
    assert load_once(tmp_path) is first
    (tmp_path / "more" / "third.fuse").write_text(OP.replace("twice", "thrice"))
    assert "kept.thrice" in load_once(tmp_path).program.ops
    (tmp_path / "more" / "third.fuse").unlink()
    assert "kept.thrice" not in load_once(tmp_path).program.ops


def test_a_file_that_comes_into_an_imported_directory(rules: Path, tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops.fuse").rename("ops/ops.fuse")
    rules.write_text(RULE.replace("ops.fuse", "ops"))
    first = load_once(rules)
    Path("ops/third.fuse").write_text(OP.replace("twice", "thrice"))
    assert "kept.thrice" in load_once(rules).program.ops
    assert "kept.thrice" not in first.program.ops


def test_a_name_that_stands_for_another_file(rules: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.fuse"
    link.symlink_to(rules)
    first = load_once(link)
    link.unlink()
    other = tmp_path / "other.fuse"
    other.write_text(RULE.replace("f16", "f64"))
    link.symlink_to(other)
    assert dtypes(load_once(link)) != dtypes(first)


def test_a_relative_name_in_another_directory(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_once("rules.fuse")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    Path("ops.fuse").write_text(OP)
    Path("rules.fuse").write_text(RULE.replace("f16", "f64"))
    assert dtypes(load_once("rules.fuse")) != dtypes(first)


def test_a_file_that_goes(rules: Path) -> None:
    load_once(rules)
    rules.unlink()
    with pytest.raises(FusionError, match="cannot read"):
        load_once(rules)
