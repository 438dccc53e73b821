"""Rules as a Python module: readable, the same everywhere, and the same rules when it is run."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl import artifact, ir
from fusiondsl.diagnostics import Source, Span
from fusiondsl.dims import expr
from fusiondsl.syntax.limits import MAX_NESTING
from fusiondsl.target import Answer, Target

TARGET = Target("gfx950", 8, "tp:0", {"model.hidden_size": 4096, "env.aiter": True})
CHECKOUT = Path(fusiondsl.__file__).parents[1]

MODULE = f'''\
"""Rules that fusiondsl {fusiondsl.__version__} compiled; written by `fusiondsl compile`."""

from fusiondsl import CompiledRules, Target, ir
from fusiondsl.diagnostics.source import Place
from fusiondsl.dims import expr

FILE_1 = Place("own.fuse")
rule_own_twice = ir.Rule(
    name="own.twice",
    params=(ir.Param(name="x", type=ir.TensorType(dtype="D", dims=(expr.Spread("t"),))),),
    match=(
        ir.Call(
            op="prim.add",
            args=(ir.Ref("x"), ir.Ref("x")),
            results=("y",),
            span=FILE_1.span(2, 11),
        ),
    ),
    replace=(),
    outputs=(("y", "y"),),
    kept=(),
    where=(),
    allow=(),
    before=(),
    after=(),
    examples=(),
    types=(),
    span=FILE_1.span(1, 6),
)
PROGRAM = ir.Program(
    ops={{}},
    rules=(rule_own_twice,),
    tables={{}},
    lets={{"QUOTED": ir.Const("it's"), "SMALL": ir.Const(1e-06)}},
    dtype_sets={{"half": ("bf16", "f16")}},
    files=("own.fuse",),
    predicates={{}},
)
TARGET = Target(
    arch="gfx950",
    tp_size=8,
    tp_group="tp:0",
    facts={{"env.aiter": True, "model.hidden_size": 4096}},
)
RULES = CompiledRules(PROGRAM, TARGET)
'''


def _program() -> ir.Program:
    source = Source("own.fuse", "rule own.twice(x: D[t..]) {\n  match { y = x + x }\n}\n")
    add = ir.Call("prim.add", (ir.Ref("x"), ir.Ref("x")), ("y",), Span(source, 38, 39))
    rule = ir.Rule(
        name="own.twice",
        params=(ir.Param("x", ir.TensorType("D", (expr.Spread("t"),))),),
        match=(add,),
        replace=(),
        outputs=(("y", "y"),),
        kept=(), where=(), allow=(), before=(), after=(), examples=(), types=(),
        span=Span(source, 5, 14),
    )  # fmt: skip
    return ir.Program(
        ops={},
        rules=(rule,),
        tables={},
        lets={"SMALL": ir.Const(1e-6), "QUOTED": ir.Const("it's")},
        dtype_sets={"half": ("bf16", "f16")},
        files=("own.fuse",),
    )


def _run(text: str) -> tuple[ir.Program, Target]:
    """What the module makes, without torch."""
    names: dict[str, object] = {}
    body = text.replace("CompiledRules, ", "").replace("RULES = CompiledRules(PROGRAM, TARGET)", "")
    exec(compile(body, "module.py", "exec"), names)
    program, target = names["PROGRAM"], names["TARGET"]
    assert isinstance(program, ir.Program)
    assert isinstance(target, Target)
    return program, target


def test_the_text() -> None:
    assert artifact.dump_python(_program(), TARGET) == MODULE


def _same(program: ir.Program, target: Target) -> bool:
    return artifact.dumps(*_run(artifact.dump_python(program, target))) == artifact.dumps(
        program, target
    )


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, True, None, 'a"b', "\u2603\n\\'\""])
def test_every_constant_comes_back(value: float | str | None) -> None:
    assert _same(replace(_program(), lets={"X": ir.Const(value)}), TARGET)
    assert _same(replace(_program(), lets={"X": ir.Const(ir.DType("bf16"))}), Target())


def test_answers_come_back() -> None:
    answers = (Answer("small", True), Answer("fits", False, {"l": "layers.0.attn", "heads": 8}))
    assert _same(_program(), replace(TARGET, answers=answers))
    assert _same(_program(), replace(TARGET, answers=answers[:1]))


def test_names_that_meet_are_told_apart() -> None:
    rules = tuple(replace(_program().rules[0], name=name) for name in ("a.b", "a_b", "a.b.c"))
    text = artifact.dump_python(replace(_program(), rules=rules), TARGET)
    assert "\n    rules=(rule_a_b, rule_a_b_2, rule_a_b_c),\n" in text
    assert _same(replace(_program(), rules=rules), TARGET)


def test_deep_and_shared_expressions_have_names() -> None:
    deep: expr.Expr = expr.Name("x")
    for _ in range(MAX_NESTING - 1):
        deep = expr.Unary("-", deep)
    shared: expr.Expr = expr.Name("x")
    for _ in range(16):
        shared = expr.Binary("+", shared, shared)
    where = (ir.Condition("deep", deep), ir.Condition("shared", shared))
    program = replace(_program(), rules=(replace(_program().rules[0], where=where),))
    text = artifact.dump_python(program, TARGET)
    assert "\npart = expr." in text
    assert len(text) < 100_000
    assert _same(program, TARGET)


def _compile_shipped(place: Path, seed: str) -> None:
    place.mkdir()
    words = ["compile", "fusiondsl:", "--target", "gfx950", "--tp", "8", "--tp-group", "tp:0"]
    subprocess.run(
        [sys.executable, "-m", "fusiondsl", *words, "-o", "all.fused", "--python", "rules.py"],
        cwd=place,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(CHECKOUT)},
        check=True,
        capture_output=True,
    )


def test_the_shipped_rules(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place, seed in zip(places, ("1", "2"), strict=True):
        _compile_shipped(place, seed)
    for name in ("all.fused", "rules.py"):
        first, second = ((place / name).read_bytes() for place in places)
        assert first == second
        assert str(CHECKOUT).encode() not in first
        assert str(tmp_path).encode() not in first
    _check_module(places[0] / "rules.py", places[0] / "all.fused")


def _check_module(module: Path, made: Path) -> None:
    imported = [node for node in ast.parse(module.read_text()).body if hasattr(node, "module")]
    assert {str(node.module).partition(".")[0] for node in imported} == {"fusiondsl"}
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "--line-length=100", module.name],
        cwd=module.parent,
        capture_output=True,
    )
    assert formatted.returncode == 0, formatted.stdout
    program = (
        "import sys, rules; from fusiondsl import artifact; made = artifact.load(sys.argv[1]);"
        "again = artifact.dumps(rules.PROGRAM, rules.TARGET);"
        "assert again == open(sys.argv[1], 'rb').read();"
        "assert rules.RULES.rows() == type(rules.RULES).load(sys.argv[1]).rows();"
        "print(len(rules.RULES.rows()), [m for m in ('lark', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(made)],
        cwd=module.parent,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{module.parent}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(artifact.load(made).program.rules)} []\n"
