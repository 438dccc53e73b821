"""`fusiondsl prove`, and the page of the documentation that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import fusiondsl
from fusiondsl.proof import Level, Prover
from tests.cli.conftest import Run

PAGE = Path(__file__).parent.parent.parent / "docs" / "proofs.md"


def test_a_rule(run: Run) -> None:
    done = run("prove", "pack.fuse")
    assert (done.code, done.out) == (
        0,
        "rule       by result  proof\nscale_add  z: exact   exact\n",
    )


def test_json(run: Run) -> None:
    done = run("prove", "pack.fuse", "--format", "json")
    (rule,) = json.loads(done.out)["rules"]
    assert rule == {
        "rule": "scale_add",
        "level": "exact",
        "differences": [],
        "outputs": {"z": []},
        "because": None,
    }


def test_an_artifact(run: Run) -> None:
    run("compile", "pack.fuse", "-o", "pack.fused")
    assert run("prove", "pack.fused").out == run("prove", "pack.fuse").out


def test_nothing_is_written_over_its_input(run: Run, place: Path) -> None:
    before = (place / "pack.fuse").read_text()
    assert run("prove", "pack.fuse", "--markdown", "pack.fuse").code == 2
    assert (place / "pack.fuse").read_text() == before


def test_the_page_is_current(run: Run, place: Path) -> None:
    done = run("prove", "fusiondsl:", "--markdown", "proofs.md")
    assert done.code == 0
    assert (place / "proofs.md").read_text() == PAGE.read_text(), (
        "run `fusiondsl prove fusiondsl: --markdown docs/proofs.md`"
    )


def test_every_shipped_rule_is_proved() -> None:
    program = fusiondsl.load("fusiondsl:").program
    prover = Prover(program)
    assert not [r.name for r in program.rules if prover.rule(r).level is Level.UNPROVED]
    assert not [r.name for r in program.rules if any(a.kind == "unproved" for a in r.allow)]
