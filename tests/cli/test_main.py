"""The entry point: usage, output options, and what every failure is turned into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl.cli import main as main_module
from fusiondsl.cli.main import COMMANDS
from tests.cli.conftest import Run


def _process(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(fusiondsl.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": root, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_command_and_the_exit_codes(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    for name, summary in COMMANDS.items():
        assert f"    {name:<20}{summary}\n" in done.out
    assert "exit codes: 0 fine, 1 findings, 2 usage or unreadable input" in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    done = run(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: fusiondsl {name} ")


def test_version(run: Run) -> None:
    assert run("--version").out == f"fusiondsl {fusiondsl.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("frobnicate",), "argument COMMAND: invalid choice: 'frobnicate'"),
        (("compile",), "the following arguments are required: PATH"),
        (("apply", "pack.fuse"), "the following arguments are required: --graph"),
        (("compile", "x", "--tp", "0"), "argument --tp: `0` is not a positive integer"),
        (("compile", "x", "--target", "h100"), "`h100` is no GPU architecture, as gfx950"),
        (("compile", "x", "--fact", "env.mx"), "argument --fact: `env.mx` is not NAME=VALUE"),
        (("compile", "x", "--fact", "env.mxx=1"), "unknown fact `env.mxx`; did you mean `env.mx`?"),
        (("compile", "x", "--fact", "env.mx=maybe"), "`env.mx` is true or false, not `maybe`"),
        (
            ("compile", "x", "--fact", "env.cu_count=x"),
            "`env.cu_count` is an integer above 0, not `x`",
        ),
        (("plan", "x", "--fact", "env.tp_size=0"), "`env.tp_size` is an integer above 0, not `0`"),
        (("plan", "x", "--tp", "9" * 19), "is not a positive integer"),
        (("plan", "x", "--tp", "\N{ARABIC-INDIC DIGIT THREE}"), "is not a positive integer"),
        (("plan", "x", "--max-tokens", "-5"), "`-5` is not a positive integer"),
        (("plan", "x", "--end-points", "1,-2"), "`-2` is not a positive integer"),
        (("plan", "x", "--dtype", "int4"), "invalid choice: 'int4'"),
        (("plan", "x", "--target", "rtx5090"), "`rtx5090` is no GPU architecture"),
        (("plan", "x", "--custom-ops", "+silu"), "has to name `all` or `none`"),
        (("plan", "x", "--custom-ops", "none,silu"), "`silu` is neither +silu nor -silu"),
        (("apply", "x", "--graph", "g", "--tokens", "8:1"), "`8:1` is not LO:HI with LO <= HI"),
        (("apply", "x", "--graph", "g", "--tokens", "a:9"), "`a:9` is not LO:HI with LO <= HI"),
    ],
)
def test_wrong_usage(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err.replace("\n", " ")


def test_a_missing_file(run: Run) -> None:
    done = run("compile", "nowhere.fuse")
    assert done.code == 2
    assert done.out == ""
    assert done.err == (
        "error[FD001]: cannot read `nowhere.fuse`: No such file or directory\n\n1 error\n"
    )


def test_rules_that_do_not_compile(run: Run, place: Path) -> None:
    (place / "bad.fuse").write_text("rule x(\n")
    done = run("compile", "bad.fuse")
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("error[FD011]: `(` is never closed\n --> bad.fuse:1:7\n")


def test_diagnostics_as_json(run: Run, place: Path) -> None:
    (place / "bad.fuse").write_text("rule x(\n")
    done = run("--format", "json", "compile", "bad.fuse")
    assert done.code == 3
    assert done.err == ""
    (diagnostic,) = json.loads(done.out)["diagnostics"]
    assert diagnostic["code"] == "FD011"
    assert diagnostic["severity"] == "error"
    assert diagnostic["location"] == {
        "file": "bad.fuse",
        "line": 1,
        "column": 7,
        "end_line": 1,
        "end_column": 8,
    }


def test_output_options_stand_before_or_after_the_command(run: Run) -> None:
    before = run("--format", "json", "explain", "FD001")
    after = run("explain", "FD001", "--format", "json")
    assert before == after
    assert json.loads(before.out)["code"] == "FD001"


def test_colour(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in run("compile", "nowhere.fuse").err
    assert "\x1b[1;31merror[FD001]\x1b[0m" in run("compile", "no.fuse", "--color", "always").err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert "\x1b[" in run("compile", "nowhere.fuse", "--color", "auto").err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("compile", "nowhere.fuse").err


def test_strict_makes_warnings_count(run: Run, place: Path) -> None:
    (place / "empty.fuse").write_text("")
    loose, strict = run("compile", "empty.fuse"), run("compile", "empty.fuse", "--strict")
    assert (loose.code, strict.code) == (0, 1)
    assert loose.err == strict.err
    assert loose.err.startswith("warning[FD006]: the file declares nothing\n")
    assert loose.err.endswith("\n1 warning\n")
    assert loose.out == "0 of 0 rules eligible for a target of which nothing is known\n"


def _break(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("fusiondsl.cli.explain.run", fail)


def test_an_internal_error_is_two_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, RuntimeError("first line\nsecond line"))
    done = run("explain")
    assert done.code == 101
    assert done.out == ""
    assert done.err == (
        "fusiondsl: internal error: RuntimeError: first line\n"
        f"This is a bug in fusiondsl {fusiondsl.__version__}. Please report it with the input and "
        "the output of the same command with FUSIONDSL_TRACEBACK=1.\n"
    )


def test_a_traceback_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, RuntimeError("why"))
    monkeypatch.setenv("FUSIONDSL_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="why"):
        run("explain")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ModuleNotFoundError("no", name="torch"), 4, "needs the package `torch`"),
        (ModuleNotFoundError("no", name="fusiondsl.x"), 101, "ModuleNotFoundError: no"),
        (KeyboardInterrupt(), 130, ""),
        (RecursionError("deep"), 101, "RecursionError: deep"),
    ],
)  # fmt: skip
def test_failures_have_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    _break(monkeypatch, error)
    done = run("explain")
    assert done.code == code
    assert message in done.err


def test_a_full_disk_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(main_module.Console, "close", full)
    done = run("explain", "FD001")
    assert done.code == 4
    assert done.err == "fusiondsl: cannot write the output: No space left on device\n"


# --- as processes ------------------------------------------------------------------------------


def test_as_a_module() -> None:
    done = _process("-m", "fusiondsl", "explain", "FD001")
    assert done.returncode == 0
    assert done.stdout.startswith("FD001: ")
    assert done.stderr == ""
    assert _process("-m", "fusiondsl", "explain", "FD000").returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("explain", "FD001"),
        ("check", "pack.fuse"),
        ("fmt", "--help"),
        ("ops", "pack.fuse"),
        ("compile", "--help"),
    ],
)
def test_what_needs_no_torch_imports_none(words: tuple[str, ...]) -> None:
    program = (
        "import sys; from fusiondsl.cli.main import main; code = main(sys.argv[1:]); "
        "print('torch' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = _process("-c", program, *words)
    assert (done.returncode, done.stderr) == (0, "False\n")


def test_help_and_explain_need_no_parser_either() -> None:
    program = (
        "import sys; from fusiondsl.cli.main import main; main(['explain', 'FD001']); "
        "print([m for m in ('lark', 'yaml', 'torch') if m in sys.modules], file=sys.stderr)"
    )
    assert _process("-c", program).stderr == "[]\n"


def test_a_reader_that_goes_away() -> None:
    root = str(Path(fusiondsl.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fusiondsl", "explain"],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert errors == ""


def test_a_terminal_that_cannot_show_a_character(place: Path) -> None:
    (place / "bad.fuse").write_text('let x = "\N{SNOWMAN}\n')
    done = _process("-m", "fusiondsl", "compile", "bad.fuse", PYTHONIOENCODING="ascii")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "\\u2603" in done.stderr
