"""Rules that another process has checked: found while nothing has changed, and never longer."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl import artifact, kept, stored
from fusiondsl.cli.main import main
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.ir.program import Program
from fusiondsl.stored import place, store
from fusiondsl.target import Target

ROOT = Path(fusiondsl.__file__).parents[1]
OP = "op stored.twice(x: D[t..]) -> (y: D[t..]) { means { y = x + x } }\n"
RULE = """\
import "ops.fuse"
rule twice(x: D[t..]) {
  match   { y = x + x }
  replace { y = stored.twice(x) }
  where   { D in (f16, f32) }
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory has rules, and there is an empty cache."""
    monkeypatch.setenv("FUSIONDSL_CACHE", "1")
    monkeypatch.setenv("FUSIONDSL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("ops.fuse").write_text(OP)
    Path("rules.fuse").write_text(RULE)
    return tmp_path / "cache" / "rules"


class Start:
    """What a process does that has read nothing yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checked = 0
        theirs = fusiondsl.rules.analyse_loaded  # type: ignore[attr-defined]

        def counted(*args: object) -> Program:
            self.checked += 1
            program: Program = theirs(*args)
            return program

        monkeypatch.setattr("fusiondsl.rules.analyse_loaded", counted)

    def __call__(self, *paths: str) -> tuple[Program, bool]:
        """The rules, and whether they were checked for that."""
        before = self.checked
        kept._kept.clear()
        program = kept.load_once(*(paths or ("rules.fuse",))).program
        return program, self.checked > before


@pytest.fixture
def start(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(monkeypatch)


def test_the_second_start_checks_nothing(start: Start, cache: Path) -> None:
    first, checked = start()
    assert checked
    second, checked = start()
    assert not checked
    assert first == second
    assert artifact.identity(first, Target()) == artifact.identity(second, Target())
    assert [str(rule.span) for rule in first.rules] == [str(rule.span) for rule in second.rules]
    assert first.files == second.files
    assert len(list(cache.iterdir())) == 2


def test_the_shipped_rules(start: Start) -> None:
    first, _ = start("fusiondsl:rocm_aiter")
    second, checked = start("fusiondsl:rocm_aiter")
    assert not checked
    assert first == second
    assert artifact.program_identity(first) == artifact.program_identity(second)
    assert [str(op.span) for op in first.ops.values()] == [str(o.span) for o in second.ops.values()]


def test_names_in_messages_are_those_that_were_given(start: Start, cache: Path) -> None:
    path = str(Path("rules.fuse").absolute())
    for _ in range(2):
        (rule,) = start(path)[0].rules
        assert str(rule.span).startswith(path)


def _literal() -> None:
    Path("rules.fuse").write_text(RULE.replace("f16", "f64"))


def _same_size_and_time() -> None:
    before = Path("ops.fuse").stat()
    Path("ops.fuse").write_text(OP.replace("x", "z"))
    os.utime("ops.fuse", ns=(before.st_atime_ns, before.st_mtime_ns))


def _import() -> None:
    Path("more.fuse").write_text(OP.replace("twice", "thrice"))
    Path("ops.fuse").write_text('import "more.fuse"\n' + OP)


@pytest.mark.parametrize("change", [_literal, _same_size_and_time, _import])
def test_a_changed_text_is_checked(start: Start, change: Callable[[], None]) -> None:
    first, _ = start()
    texts = {path: path.read_text() for path in Path().glob("*.fuse")}
    change()
    second, checked = start()
    assert checked
    assert first != second
    assert start() == (second, False)
    for path, text in texts.items():
        path.write_text(text)
    # Whether the old state is still found depends on the list of files, not on what is right.
    assert start()[0] == first


def test_an_earlier_text_of_the_same_files_is_found_again(start: Start) -> None:
    first, _ = start()
    _literal()
    start()
    Path("rules.fuse").write_text(RULE)
    assert start() == (first, False)


def test_an_error_is_found_whatever_was_stored(start: Start) -> None:
    start()
    Path("ops.fuse").write_text(OP.replace("x + x", "x * x"))
    for _ in range(2):
        with pytest.raises(FusionError, match="FD318"):
            start()


def test_a_file_that_comes_or_goes(start: Start) -> None:
    Path("ops").mkdir()
    Path("ops.fuse").rename("ops/ops.fuse")
    Path("rules.fuse").write_text(RULE.replace('"ops.fuse"', '"ops"'))
    first, _ = start()
    Path("ops/deep").mkdir()
    Path("ops/notes.txt").write_text("no rules")
    assert not start()[1]
    more = Path("ops/deep/more.fuse")
    more.write_text(OP.replace("twice", "thrice"))
    second, checked = start()
    assert checked
    assert "stored.thrice" in second.ops
    more.unlink()
    assert start()[0] == first
    Path("ops/ops.fuse").unlink()
    with pytest.raises(FusionError):
        start()


def test_a_file_in_the_place_of_an_empty_directory(start: Start) -> None:
    Path("more.fuse").mkdir()
    Path("rules.fuse").write_text('import "more.fuse"\n' + RULE)
    first, _ = start()
    assert start() == (first, False)
    Path("more.fuse").rmdir()
    Path("more.fuse").write_text(OP.replace("twice", "thrice"))
    second, checked = start()
    assert checked
    assert "stored.thrice" in second.ops


def test_a_link_that_leads_elsewhere(start: Start) -> None:
    Path("one.fuse").write_text(OP)
    Path("two.fuse").write_text(OP)
    for name in ("a.fuse", "b.fuse"):
        Path(name).symlink_to("one.fuse")
    Path("rules.fuse").write_text(RULE.replace('"ops.fuse"', '"a.fuse"') + 'import "b.fuse"\n')
    program, checked = start("a.fuse", "b.fuse")
    assert checked
    assert start("a.fuse", "b.fuse") == (program, False)
    Path("b.fuse").unlink()
    Path("b.fuse").symlink_to("two.fuse")
    with pytest.raises(FusionError, match=r"stored\.twice"):  # which is now declared twice
        start("a.fuse", "b.fuse")


def test_a_relative_name_elsewhere(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    Path("else").mkdir()
    monkeypatch.chdir("else")
    Path("ops.fuse").write_text(OP)
    Path("rules.fuse").write_text(RULE)
    assert start()[1]


def test_the_order_of_paths_and_what_is_asked_for(start: Start) -> None:
    start("ops.fuse", "rules.fuse")
    assert not start("ops.fuse", "rules.fuse")[1]
    assert start("rules.fuse")[1]
    assert start(".")[1]


def test_another_version_of_what_checks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(store, "_code", lambda: "another")
    assert start()[1]
    assert not start()[1]
    monkeypatch.setattr(store, "_code", lambda: None)
    assert start()[1]
    assert start()[1]


def test_warnings_are_shown_by_every_start(start: Start, cache: Path) -> None:
    Path("rules.fuse").write_text('import "ops.fuse"\n' + RULE)
    for _ in range(2):
        assert start()[1]
        (warning,) = kept.load_once("rules.fuse").warnings
        assert warning.code == "FD105"
    assert not cache.exists()


def test_check_asks_nobody(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*args: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr("fusiondsl.stored.find", asked)
    monkeypatch.setattr("fusiondsl.stored.keep", asked)
    assert main(["check", "rules.fuse"]) == 0
    assert not cache.exists()


# --- what may be wrong with the cache ------------------------------------------------------------


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": _cut,
    "flipped": _flipped,
    "nested": lambda data: b"[" * 100_000,
    "other": lambda data: b"[[1], {}]",
    "nul": lambda data: b'[["\\u0000"], ["\\u0000", "\\ud800"]]',
    "object": lambda data: b"{}",
    "long": lambda data: b" " * (1 << 20) + data,
    "version": lambda data: data.replace(b'"version":', b'"version":1'),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", [".json", artifact.SUFFIX])
def test_what_is_damaged_is_made_again(start: Start, cache: Path, suffix: str, damage: str) -> None:
    first, _ = start()
    (file,) = cache.glob(f"*{suffix}")
    sound = file.read_bytes()
    file.write_bytes(DAMAGE[damage](sound))
    if file.read_bytes() != sound:
        assert start() == (first, True)
    assert start() == (first, False)
    assert file.read_bytes() == sound


def test_a_list_that_leaves_a_file_out_leads_nowhere(start: Start, cache: Path) -> None:
    first, _ = start()
    (listed,) = cache.glob("*.json")
    listed.write_text('[["rules.fuse"], []]')
    Path("ops.fuse").write_text(OP.replace("x", "z"))
    second, checked = start()
    assert checked
    assert first != second


def test_a_place_that_cannot_be(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSIONDSL_CACHE_DIR", str(tmp_path / "file" / "below"))
    with caplog.at_level(logging.DEBUG, "fusiondsl"):
        first, checked = start()
        assert checked
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
    assert "the rules are not stored in" in caplog.text
    assert start() == (first, True)


def test_a_full_disk(start: Start, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(artifact, "replace_file", full)
        first, _ = start()
        assert start() == (first, True)
    start()
    assert start() == (first, False)


def test_rules_that_no_artifact_holds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusiondsl.artifact.format.MAX_BYTES", 100)
    first, _ = start()
    assert start() == (first, True)


def test_a_working_directory_that_is_gone(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(Path("rules.fuse").absolute())
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert start(path)[0].rules
    assert stored.find(["rules.fuse"]) is None


def test_off(start: Start, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = start()
    monkeypatch.setenv("FUSIONDSL_CACHE", "0")
    assert start() == (first, True)
    monkeypatch.setenv("FUSIONDSL_CACHE", "")
    assert start() == (first, False)
    monkeypatch.setenv("FUSIONDSL_CACHE", "never")
    with pytest.raises(FusionError, match="FD720: `never` is neither 1 nor 0") as refused:
        start()
    (wrong,) = refused.value.diagnostics
    assert str(wrong.span) == "FUSIONDSL_CACHE:1:1"


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/fusiondsl/rules"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/fusiondsl/rules"),
        ("linux", {}, "/home/me/.cache/fusiondsl/rules"),
        ("linux", {"FUSIONDSL_CACHE_DIR": "/d", "XDG_CACHE_HOME": "/x"}, "/d/rules"),
        ("darwin", {}, "/home/me/Library/Caches/fusiondsl/rules"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/fusiondsl/cache/rules"),
        ("win32", {}, None),
        ("linux", {"FUSIONDSL_CACHE": "off"}, None),
    ],
)
def test_the_directory(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    variables: dict[str, str],
    expected: str | None,
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    found = place.directory(variables)
    assert found == (None if expected is None else Path(expected))


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert place.directory({}) is None


def test_what_was_used_longest_ago_goes(cache: Path) -> None:
    cache.mkdir(parents=True)
    names = [f"{number:064x}{suffix}" for number in range(4) for suffix in (".json", ".fused")]
    for age, name in enumerate(names):
        (cache / name).write_bytes(bytes(10))
        os.utime(cache / name, ns=(0, age))
    others = ["mine.json", f".{names[0]}.fresh", "a" * 63 + ".fused"]
    for name in others:
        (cache / name).write_text("")
    left = cache / f".{names[0]}.old"
    left.write_text("half of it")
    os.utime(left, (0, 0))
    place.trim(cache, most_files=5)
    assert {path.name for path in cache.iterdir()} == {*names[3:], *others}
    place.trim(cache, most_bytes=25)
    assert {path.name for path in cache.iterdir()} == {*names[6:], *others}


def test_what_is_used_stays(start: Start, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = start()
    for path in cache.iterdir():
        os.utime(path, ns=(0, 0))
    start()
    assert all(path.stat().st_mtime_ns > 0 for path in cache.iterdir())
    monkeypatch.setattr(os, "utime", _refused)
    assert start() == (first, False)


def _refused(*args: object) -> None:
    raise PermissionError


# --- processes -----------------------------------------------------------------------------------

_LOADED = """
import sys
from fusiondsl.kept import load_once
rules = load_once(*sys.argv[1:]).program.rules
print(len(rules), *sorted(name for name in sys.modules if name.split(".")[0] in ("fusiondsl",
    "lark", "torch", "yaml")))
"""


def _process(*paths: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _LOADED, *paths]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _printed(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.split()


def test_processes(cache: Path) -> None:
    """Three that start at once with an empty cache, and one that comes later."""
    started = [_process("rules.fuse") for _ in range(3)]
    assert [_printed(process)[0] for process in started] == ["1"] * 3
    assert sorted(path.suffix for path in cache.iterdir()) == [artifact.SUFFIX, ".json"]
    rules, *modules = _printed(_process("rules.fuse"))
    assert rules == "1"
    assert {"fusiondsl.artifact", "fusiondsl.stored"} <= set(modules)
    heavy = (
        "lark",
        "torch",
        "yaml",
        "fusiondsl.analysis",
        "fusiondsl.proof",
        "fusiondsl.syntax.ast",
    )
    assert not [name for name in modules if name.startswith(heavy)]


def test_all_that_checks_is_part_of_the_key(cache: Path) -> None:
    _, *modules = _printed(_process("rules.fuse"))
    own = [name.split(".")[1:] for name in modules if name.startswith("fusiondsl.")]
    parts = {parts[0] for parts in own if (ROOT / "fusiondsl" / parts[0]).is_dir()}
    assert {"analysis", "proof", "syntax"} <= parts
    assert parts - {"stored"} <= set(store.CHECKING)
