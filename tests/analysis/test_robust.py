"""No text makes the checker raise anything but diagnostics, and no run imports torch."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusiondsl.analysis.modules import Loader
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.diagnostics.source import Source
from fusiondsl.rules import analyse_loaded
from fusiondsl.syntax.limits import MAX_NESTING

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "cases" / "check"
TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|[0-9][0-9.e-]*|\s+|.", re.DOTALL)
TEXTS = [p.read_text() for p in sorted(CASES.glob("*.fuse"))]


def changed(text: str, rng: random.Random) -> str:
    """The text with a few words exchanged for others of the same kind."""
    tokens = TOKEN.findall(text)
    words = [i for i, token in enumerate(tokens) if not token.isspace()]
    for _ in range(rng.randint(1, 3)):
        i = rng.choice(words)
        kind = (tokens[i][0].isalpha(), tokens[i][0].isdigit())
        same = [t for t in tokens if (t[0].isalpha(), t[0].isdigit()) == kind and not t.isspace()]
        tokens[i] = rng.choice(same)
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(40))
def test_changed_words(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    rng = random.Random(seed)
    for _ in range(4):
        diagnostics = Diagnostics()
        loader = Loader(diagnostics)
        loader.add_source(Source("changed.fuse", changed(rng.choice(TEXTS), rng)))
        repr(analyse_loaded(loader, diagnostics))
        render_all(diagnostics)


@pytest.mark.parametrize("before", ["-", "~", "1.0 + (", "x * (", "relu(", "(x, "])
def test_the_deepest_expression(before: str) -> None:
    """As deep as is read, with a stack of some depth above it."""
    depth = MAX_NESTING - 4  # the blocks around it count
    expression = before * depth + "x" + ")" * depth * before.count("(")
    text = f"op k(x: D[t.., H]) -> (y: D[t.., H]) {{\n  means {{ y = {expression} }}\n}}\nfuse k\n"
    diagnostics = Diagnostics()

    def below(frames: int) -> None:
        if frames:
            below(frames - 1)
            return
        loader = Loader(diagnostics)
        loader.add_source(Source("deep.fuse", text))
        analyse_loaded(loader, diagnostics)

    below(100)
    assert "FD015" not in {item.code for item in diagnostics}
    render_all(diagnostics)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from fusiondsl.cli.main import main; code = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, cwd=CASES, capture_output=True, text=True)


def test_check_needs_no_torch() -> None:
    done = run("check", "fusiondsl:")
    assert done.returncode == 0
    assert re.fullmatch(r"checked \d+ files, \d+ ops, \d+ rules\n", done.stdout)


def test_exit_codes() -> None:
    assert run("check", "no_such.fuse").returncode == 2
    assert run("check", "fd112_unknown_op.fuse").returncode == 3
    assert run("check", "fd312_unused_result.fuse").returncode == 0
    assert run("check", "--strict", "fd312_unused_result.fuse").returncode == 1


def test_import_needs_no_torch() -> None:
    code = (
        "import sys, fusiondsl; fusiondsl.load('fusiondsl:'); fusiondsl.Target; "
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_long_chain_of_imports(tmp_path: Path) -> None:
    count = 2_000
    for number in range(count):
        line = f'import "{number + 1}.fuse"\n' if number + 1 < count else ""
        (tmp_path / f"{number}.fuse").write_text(f"{line}let L{number} = {number}\n")
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    loader.add(tmp_path / "0.fuse")
    assert len(analyse_loaded(loader, diagnostics).lets) == count
    assert not list(diagnostics)
