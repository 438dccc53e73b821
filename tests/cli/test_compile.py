"""`compile`: the plan as a table, and the artifact."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl import artifact
from fusiondsl.artifact.kinds import classes, layout
from fusiondsl.dims import expr
from fusiondsl.target import Target
from tests.cli.conftest import Run

PLAN = """\
order  rule       eligible  tokens                             proof  forms, or why not
    0  scale_add  yes       tokens * H * itemsize(D) <= 65536  exact

1 of 1 rules eligible for env.arch = gfx950, env.mx = true
"""


def test_the_plan(run: Run) -> None:
    done = run("compile", "pack.fuse", "--target", "gfx950:sramecc+:xnack-")
    assert (done.code, done.out, done.err) == (0, PLAN, "")


def test_why_a_rule_is_not_eligible(run: Run) -> None:
    done = run("compile", "pack.fuse", "--target", "gfx90a")
    assert done.code == 0
    assert done.out == (
        "order  rule       eligible  tokens                             proof  forms, or why not\n"
        "    0  scale_add  no        tokens * H * itemsize(D) <= 65536  exact  "
        "cli_demo.scale_add is not available: "
        'env.arch is "gfx90a", not in ("gfx942", "gfx950")\n'
        "\n"
        "0 of 1 rules eligible for env.arch = gfx90a, env.mx = false\n"
    )


def test_model_facts_close_the_token_range(run: Run) -> None:
    facts = ("--fact", "model.hidden_size=64", "--fact", "model.itemsize=2")
    done = run("compile", "pack.fuse", "--target", "gfx950", "--tp", "8", *facts)
    assert "    0  scale_add  yes       tokens <= 512  exact\n" in done.out
    assert done.out.endswith(
        "1 of 1 rules eligible for env.arch = gfx950, env.mx = true, env.tp_size = 8, "
        "model.hidden_size = 64, model.itemsize = 2\n"
    )


def test_only_the_dtype_of_the_model_has_its_size(run: Run, place: Path) -> None:
    text = (place / "pack.fuse").read_text().replace("itemsize(D)", "itemsize(f32)")
    (place / "wide.fuse").write_text(text)
    facts = ("--fact", "model.hidden_size=64", "--fact", "model.itemsize=2")
    done = run("compile", "wide.fuse", "--target", "gfx950", *facts)
    assert "    0  scale_add  yes       tokens <= 256  exact\n" in done.out


def test_the_artifact(run: Run, place: Path) -> None:
    words = ("--target", "gfx950", "--tp", "2", "--tp-group", "tp:0", "--fact", "env.aiter=true")
    done = run("compile", "pack.fuse", "-o", "pack.fused", *words)
    size = (place / "pack.fused").stat().st_size
    assert done.code == 0
    assert done.out.endswith(f"\nwrote pack.fused ({size:,} bytes)\n")
    loaded = artifact.load(place / "pack.fused")
    assert [rule.name for rule in loaded.program.rules] == ["scale_add"]
    assert loaded.target == Target("gfx950", 2, "tp:0", {"env.aiter": True})
    assert str(loaded.program.rules[0].span) == "pack.fuse:8:6"


def test_an_artifact_is_an_input(run: Run) -> None:
    run("compile", "pack.fuse", "--target", "gfx950", "-o", "pack.fused")
    done = run("compile", "pack.fused")
    assert (done.code, done.out) == (0, PLAN)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("pack.fused", "--tp", "8"),
            "an artifact is compiled for its target: compile the rules again for another one",
        ),
        (("pack.fused", "pack.fuse"), "an artifact is given alone: it holds all its rules"),
        (
            ("pack.fuse", "-o", "./pack.fuse"),
            "`./pack.fuse` is an input; the output would replace it",
        ),
    ],
)
def test_arguments_that_do_not_go_together(
    run: Run, place: Path, words: tuple[str, ...], message: str
) -> None:
    before = (place / "pack.fuse").read_text()
    done = run("compile", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error[FD650]: {message}\n\n1 error\n"
    assert (place / "pack.fuse").read_text() == before


def test_the_module(run: Run, place: Path) -> None:
    done = run("compile", "pack.fuse", "-o", "pack.fused", "--python", "rules.py")
    sizes = [(place / name).stat().st_size for name in ("pack.fused", "rules.py")]
    assert done.out.endswith(
        f"\nwrote pack.fused ({sizes[0]:,} bytes)\nwrote rules.py ({sizes[1]:,} bytes)\n"
    )
    same = run("compile", "pack.fuse", "-o", "same", "--python", "./same")
    assert (same.code, same.out) == (2, "")
    assert same.err == (
        "error[FD650]: the artifact and the module cannot both be `./same`\n\n1 error\n"
    )
    assert not (place / "same").exists()


def _sealed(data: bytes, **header: object) -> bytes:
    """An artifact whose header agrees with its content, whoever wrote it."""
    head, body = data.split(b"\n", 1)
    sealed = {
        **json.loads(head),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        **header,
    }
    return json.dumps(sealed).encode() + b"\n" + body


def _with_body(data: bytes, body: bytes) -> bytes:
    return _sealed(data.split(b"\n")[0] + b"\n" + body)


VERSION = f"fusiondsl {fusiondsl.__version__}, which reads version {artifact.VERSION} ({layout()})"
NAME, SUM = (classes()[cls].number for cls in (expr.Name, expr.Binary))
SHARED = b'["x","+"]\n' + b"".join(
    [struct.pack("<3I", NAME, 1, 0), *(struct.pack("<5I", SUM, 1, 1, n, n) for n in range(2, 100))]
)
"""A sum of a sum of a sum, each of one value twice."""
LENGTH = str(len(SHARED)).encode()
HELP = "  = help: fusiondsl 9.0 wrote it: compile the rules again, or use that version"
BAD_ARTIFACTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "error[FD641]: `bad.fused` is not an artifact of fusiondsl\n"),
    "a rule file": (
        lambda data: b"rule a() {}\n",
        "error[FD641]: `bad.fused` is not an artifact of fusiondsl\n",
    ),
    "truncated": (
        lambda data: data[: data.index(b"\n") + 100],
        "error[FD642]: `bad.fused` is damaged: 99 bytes where {size} were written\n",
    ),
    "tampered": (
        lambda data: data.replace(b'"scale_add"', b'"scale_odd"'),
        "error[FD642]: `bad.fused` is damaged: its checksum differs\n",
    ),
    "newer": (
        lambda data: _sealed(data, version=9, layout="?", writer="9.0"),
        f"error[FD643]: `bad.fused` has format version 9 (?), and this is {VERSION}\n{HELP}\n",
    ),
    "deep": (
        lambda data: _with_body(data, b"[" * 1_000_000),
        "error[FD642]: `bad.fused` is damaged: nested too deeply\n",
    ),
    "shared": (
        lambda data: _with_body(data, b"\n".join((data.split(b"\n")[1], LENGTH, SHARED))),
        "error[FD642]: `bad.fused` is damaged: it has more than 16,777,216 parts\n",
    ),
    "long": (
        lambda data: data + b" " * artifact.MAX_BYTES,
        "error[FD641]: `bad.fused` is larger than 16 MiB, as no artifact is\n",
    ),
}


@pytest.mark.parametrize("name", BAD_ARTIFACTS)
@pytest.mark.parametrize(
    "words",
    [("compile", "-o", "new.fused", "--python", "new.py"), ("ops",), ("apply", "--graph", "x")],
    ids=lambda words: words[0],
)
def test_bad_artifacts_are_refused_with_the_reason(
    run: Run, place: Path, name: str, words: tuple[str, ...]
) -> None:
    run("compile", "pack.fuse", "-o", "pack.fused")
    data = (place / "pack.fused").read_bytes()
    damage, message = BAD_ARTIFACTS[name]
    (place / "bad.fused").write_bytes(damage(data))
    command, *options = words
    done = run(command, "bad.fused", *options)
    assert (done.code, done.out) == (2, "")
    size = json.loads(data.split(b"\n")[0])["bytes"]
    assert done.err == message.replace("{size}", str(size)) + "\n1 error\n"
    assert not [path.name for path in place.iterdir() if path.name.startswith(("new", "."))]


def test_nothing_is_written_for_rules_that_do_not_compile(run: Run, place: Path) -> None:
    (place / "bad.fuse").write_text("rule x(\n")
    (place / "bad.fused").write_text("old")
    assert run("compile", "bad.fuse", "-o", "bad.fused").code == 3
    assert (place / "bad.fused").read_text() == "old"
    assert run("compile", "bad.fuse", "-o", "new.fused").code == 3
    assert not (place / "new.fused").exists()


def test_a_place_that_cannot_be_written(run: Run) -> None:
    done = run("compile", "pack.fuse", "-o", "nowhere/pack.fused")
    assert done.code == 2
    assert done.err == (
        "error[FD644]: cannot write `nowhere/pack.fused`: No such file or directory\n\n1 error\n"
    )


def test_json(run: Run) -> None:
    done = run("compile", "pack.fuse", "--target", "gfx950", "--format", "json")
    assert json.loads(done.out) == {
        "version": 1,
        "diagnostics": [],
        "target": {"env.arch": "gfx950", "env.mx": True},
        "answers": [],
        "rules": [
            {
                "rule": "scale_add",
                "forms": [],
                "order": 0,
                "eligible": True,
                "reason": "",
                "tokens": "tokens * H * itemsize(D) <= 65536",
                "proof": "exact",
            }
        ],
        "output": None,
        "python": None,
    }


def test_the_shipped_patterns(run: Run) -> None:
    done = run("compile", "fusiondsl:", "--target", "gfx950", "--tp", "8", "-o", "all.fused")
    assert (done.code, done.err) == (0, "")
    assert "add_rms_norm_mxfp4_quant" in done.out
    assert run("compile", "all.fused").out == done.out.rpartition("wrote ")[0]
