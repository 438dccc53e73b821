"""`--answer`: what the command line says to extern predicates, and what is no answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusiondsl import artifact
from fusiondsl.diagnostics.codes import CODES
from fusiondsl.target import Answer
from tests.cli.conftest import GRAPH, PACK, Run

ASKING = (
    "extern predicate fits(l: layer, heads: int, kind: dtype, scale: float)\n\n"
    + PACK.replace("    limit:", "    fitting: is_fast()\n    limit:")
    .replace('  example { tokens = 7, H = 64, D = bf16, env.arch = "gfx950" } fires\n', "")
    .replace("\nrule scale_add", "\nextern predicate is_fast()\n\nrule scale_add")
)
COMPILE = ("compile", "asking.fuse", "--target", "gfx950")


@pytest.fixture(autouse=True)
def asking(place: Path) -> None:
    (place / "asking.fuse").write_text(ASKING)


def test_what_nobody_answers_is_unknown(run: Run) -> None:
    done = run("apply", "asking.fuse", "--graph", "graph.txt", "--target", "gfx950")
    assert "  ineligible  scale_add: nobody answers is_fast()\n" in done.out


def test_an_answer_lets_a_rule_fire(run: Run, place: Path) -> None:
    words = ("apply", "asking.fuse", "--graph", "graph.txt", "--target", "gfx950", "--answer")
    assert "fired       1 x scale_add\n" in run(*words, "is_fast=true").out
    assert "ineligible  scale_add: is_fast() is false\n" in run(*words, "is_fast() = false").out
    assert (place / "graph.txt").read_text() == GRAPH


def test_examples_take_answers(run: Run) -> None:
    words = ("test", "asking.fuse", "--target", "gfx950")
    assert run(*words).out.endswith("1 passed, 0 failed, 1 skipped\n")
    assert run(*words, "--answer", "is_fast=true").out.endswith("2 passed, 0 failed, 0 skipped\n")


def test_answers_are_part_of_the_plan_and_of_the_artifact(run: Run) -> None:
    text = 'fits("layers.0", heads = 64, kind = f32, scale = 1) = false'
    words = (*COMPILE, "--answer", text, "--answer", "is_fast=true", "-o", "out.fused")
    done = run(*words)
    assert done.out.splitlines()[-2] == (
        "1 of 1 rules eligible for env.arch = gfx950, env.mx = true, "
        "fits(l = layers.0, heads = 64, kind = f32, scale = 1.0) = false, is_fast = true"
    )
    asked = {"l": "layers.0", "heads": 64, "kind": "f32", "scale": 1.0}
    given = (Answer("fits", False, asked), Answer("is_fast", True))
    assert sorted(artifact.load("out.fused").target.answers, key=str) == sorted(given, key=str)
    data = json.loads(run(*words, "--format", "json").out)
    assert data["answers"] == [
        {"predicate": "fits", "value": False, "args": asked},
        {"predicate": "is_fast", "value": True, "args": None},
    ]


def test_an_artifact_has_its_answers(run: Run) -> None:
    run(*COMPILE, "--answer", "is_fast=true", "-o", "out.fused")
    done = run("apply", "out.fused", "--graph", "graph.txt", "--answer", "is_fast=false")
    assert done.code == 2
    assert "error[FD650]: an artifact is compiled for its target" in done.err


WRONG = {
    "is_quick=true": """\
error[FD520]: no predicate is called `is_quick`
 --> --answer:1:1
  |
1 | is_quick=true
  | ^^^^^^^^
  |
  = help: the rules ask: fits, is_fast

1 error
""",
    "is_fats() = true": """\
error[FD520]: no predicate is called `is_fats`
 --> --answer:1:1
  |
1 | is_fats() = true
  | ^^^^^^^
  |
  = help: did you mean `is_fast`?

1 error
""",
    "is_fast=maybe": """\
error[FD521]: an answer ends in `= true` or `= false`
 --> --answer:1:9
  |
1 | is_fast=maybe
  |         ^^^^^

1 error
""",
    "is_fast": """\
error[FD521]: an answer ends in `= true` or `= false`
 --> --answer:1:1
  |
1 | is_fast
  | ^^^^^^^

1 error
""",
    "fits(heads = 64)=true": """\
error[FD521]: the arguments of `fits` are (l, heads, kind, scale)
 --> --answer:1:1
  |
1 | fits(heads = 64)=true
  | ^^^^^^^^^^^^^^^^
  |
  = note: without arguments an answer is to any question

1 error
""",
    'fits("l", 64.0, f32, 1.0)=true': """\
error[FD521]: `heads` cannot be `64.0`
 --> --answer:1:11
  |
1 | fits("l", 64.0, f32, 1.0)=true
  |           ^^^^
  |
  = note: `heads` is `int`

1 error
""",
    "fits(0, 64, f32, 1.0)=true": """\
error[FD521]: `l` cannot be `0`
 --> --answer:1:6
  |
1 | fits(0, 64, f32, 1.0)=true
  |      ^
  |
  = note: `l` is the name of a layer

1 error
""",
    'fits("l", 64, f32, 1.0, l = "m")=true': """\
error[FD521]: an argument is given twice
 --> --answer:1:1
  |
1 | fits("l", 64, f32, 1.0, l = "m")=true
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

1 error
""",
    "1 + 2 = true": """\
error[FD521]: `1 + 2` is no question
 --> --answer:1:1
  |
1 | 1 + 2 = true
  | ^^^^^

1 error
""",
    "fits(=true": """\
error[FD011]: `(` is never closed
 --> --answer:1:5
  |
1 | fits(=true
  |     ^
  |      - the text ends here
  |
  = help: add `)`

1 error
""",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_answer(run: Run, text: str) -> None:
    done = run(*COMPILE, "--answer", text)
    assert done.code == 2
    assert done.out == ""
    assert done.err == WRONG[text]


def test_every_mistake_is_reported_at_once(run: Run) -> None:
    done = run(*COMPILE, "--answer", "is_quick=true", "--answer", "is_fast=1")
    assert done.err.endswith("2 errors\n")


def test_rules_that_ask_nothing(run: Run) -> None:
    done = run("compile", "pack.fuse", "--answer", "is_fast=true")
    assert "= help: the rules ask nothing\n" in done.err


@pytest.mark.parametrize("code", ["FD520", "FD521"])
def test_the_codes_are_explained(run: Run, code: str) -> None:
    assert run("explain", code).out.startswith(f"{code}: {CODES[code].title}\n")
