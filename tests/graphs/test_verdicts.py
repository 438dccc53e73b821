"""What the shipped rules do with the public dumps: as line 1 of each says, as far as types go.

`rules` of line 1 speaks of RMSNorm, with and without residual add, into static FP8 quantisation.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fusiondsl.engine import CompiledRules
from fusiondsl.graphs import read
from fusiondsl.ir.program import Program
from fusiondsl.rules import load
from fusiondsl.target import Target
from tests.graphs.test_dumps import CASES, PUBLIC, reading

RULES = {
    "norm_static_quant": "rms_norm_static_quant",
    "add_norm_static_quant": "add_rms_norm_static_quant",
}
FIRES = {"pub_04": {"rms_norm_static_quant": 1}}
UNTYPED = {"pub_01"}
"""A fragment prints no types of its inputs, so conditions on them are unknown."""


@cache
def rules() -> tuple[Program, CompiledRules]:
    program = load("fusiondsl:").program
    return program, CompiledRules(program, Target("gfx950"))


def fired(text: str) -> Counter[str]:
    program, compiled = rules()
    counts: Counter[str] = Counter()
    for graph in read(text, program=program):
        counts.update(compiled.apply(graph.gm).counts)
    return counts


@pytest.mark.parametrize(
    "path", [p for p in PUBLIC if reading(p)["graphs"]], ids=lambda path: path.stem
)
def test_verdict(path: Path) -> None:
    verdicts = reading(path)["rules"]
    counts = fired(path.read_text())
    assert counts == FIRES.get(path.stem, {})
    for name, rule in RULES.items():
        if verdicts.get(name, "no").startswith("match") and path.stem not in UNTYPED:
            assert counts[rule] == 1


TYPED = """\
def forward(self, mm_6: "f16[s0, 3072]", getitem_17: "f16[s0, 3072]", arg21_1: "f16[3072]",
    arg0_1: "Sym(s0)", arg22_1: "f32[1]", arg23_1: "f8e4m3fn[3072, 8192]", arg24_1: "f32[1]",
    arg25_1: "f32[1]"):
"""


def test_the_fragment_with_types_matches_as_its_line_1_says() -> None:
    lines = (CASES / "pub_01.txt").read_text().splitlines()
    assert reading(CASES / "pub_01.txt")["rules"]["add_norm_static_quant"].startswith("match x1")
    end = "    return (getitem_20, _scaled_mm_5)\n"
    text = TYPED + "\n".join(lines[1:-1]) + "\n" + end
    assert fired(text) == {"add_rms_norm_static_quant": 1}


def test_buffers_of_a_fragment_have_the_type_of_what_is_left_in_them() -> None:
    (graph,) = read(CASES / "pub_01.txt")
    values = {n.name: n.meta.get("val") for n in graph.gm.graph.nodes if n.op == "placeholder"}
    assert [name for name, value in values.items() if value is not None] == ["mm_6", "getitem_17"]
    assert str(tuple(values["mm_6"].shape)) == "(s0, 3072)"


def test_a_log_of_functionalised_calls() -> None:
    log = (CASES / "gen_02_aot_graphs_log_v2.txt").read_text()
    assert fired(log) == {"add_rms_norm_static_quant": 1}
