"""Spellings, one after the other: seen through, bit for bit or nearly, or refused with the cause.

The tables are `spellings.txt` and `reciprocals.txt` in `tests/cases/engine`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, fx

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.graphs import ReadGraph, read
from tests.engine import lab

TABLES = Path(__file__).parents[1] / "cases" / "engine"
SHORT = {
    "B": "bf16[4, 512]",
    "F": "f32[4, 512]",
    "Q": "f8e4m3fn[4, 512]",
    "S": "f32[4, 4]",
}
HEAD = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[4, 512][512, 1]cpu", r: "bf16[4, 512][512, 1]cpu",
        f: "f32[4, 512][512, 1]cpu", h: "f16[4, 512][512, 1]cpu", w: "bf16[512][1]cpu"):
"""


class Case(NamedTuple):
    table: str
    title: str
    rule: str
    seen: bool
    differs: tuple[str, ...]
    code: str
    words: str
    body: tuple[str, ...]


def cases(*tables: str) -> list[Case]:
    return [case for table in tables or ("spellings", "reciprocals") for case in _cases(table)]


def _cases(table: str) -> list[Case]:
    blocks = re.split(r"^== ", (TABLES / f"{table}.txt").read_text(), flags=re.M)[1:]
    return [_case(table, block.splitlines()) for block in blocks]


def _case(table: str, lines: list[str]) -> Case:
    title, rule, verdict, *cause = (part.strip() for part in lines[0].split(" | "))
    seen, _, differs = verdict.partition(" up to ")
    assert seen in ("seen", "refused"), title
    code, words = cause or ("", "")
    body = tuple(line for line in lines[1:] if line and not line.startswith("#"))
    kinds = tuple(differs.split(", ")) if differs else ()
    return Case(table, title, rule, seen == "seen", kinds, code, words, body)


def text_of(case: Case) -> str:
    *body, last = (_line(line) for line in case.body)
    returned = last.removeprefix("return ")
    lines = "".join(f"        {line}\n" for line in body)
    return f"{HEAD}{lines}        return ({returned},)\n"


def _line(line: str) -> str:
    """With types and names of ops as a graph prints them."""
    line = re.sub(r"\b(aten|prims|lab|higher_order)\.", r"torch.ops.\1.", line)
    found = re.fullmatch(r"(\w+): (.*?) = (.*)", line)
    if found is None:
        return line
    name, kind, value = found.groups()
    return f'{name}: "{_type(SHORT.get(kind, kind))}" = {value}'


def _type(kind: str) -> str:
    """Contiguous and on the CPU, unless the table says so."""
    dtype, *groups = re.findall(r"\w+(?=\[)|\[.*?\]", kind)
    if len(groups) == 1:
        sizes = [int(size) for size in groups[0][1:-1].split(", ")]
        groups.append(str(list(torch.empty(sizes, device="meta").stride())))
    return f"{dtype}{''.join(groups)}cpu"


def graph_of(case: Case) -> ReadGraph:
    (found,) = read(text_of(case), program=rules("spellings").program)
    assert not found.uncertain
    return found


@cache
def rules(table: str, rule: str | None = None) -> CompiledRules:
    """The rules of a table, or one of them alone."""
    program = lab.rules(lab.rule_file(f"{table}.fuse")).program
    kept = tuple(r for r in program.rules if rule in (None, r.name))
    return CompiledRules(replace(program, rules=kept))


def rules_for(case: Case) -> CompiledRules:
    return rules(case.table, case.rule if case.table == "reciprocals" else None)


def run(gm: fx.GraphModule) -> object:
    wide, narrow = lab.rows(4, 512, 3).float(), lab.rows(4, 512, 4).abs().half() + 1
    given = (lab.rows(4, 512, 1), lab.rows(4, 512, 2), wide, narrow, lab.vector(512))
    with torch.no_grad():
        return fx.Interpreter(gm).run(*given)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.title)
def test_spelling(case: Case) -> None:
    gm = graph_of(case).gm
    answer = rules_for(case).why(gm, rules=[case.rule]).of(case.rule)
    if not case.seen:
        assert not answer.fired
        first = answer.sites[0].causes[0] if answer.sites else answer.causes[0]
        assert first.code == case.code, first.message
        assert case.words in first.message
    expected = run(gm)
    before = str(gm.graph)
    report = rules_for(case).apply(gm)
    gm.graph.lint()
    assert report.counts == ({case.rule: 1} if case.seen else {})
    assert case.seen or str(gm.graph) == before
    assert [site.differs for site in report.fired] == [case.differs] * case.seen
    after = run(gm)
    assert close(after, expected) if case.differs else lab.equal(after, expected)


def close(one: object, other: object) -> bool:
    """The same up to a few roundings of single or half precision."""
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    pairs = list(zip(one, other, strict=True))
    return all(torch.allclose(a, b, rtol=4 * torch.finfo(a.dtype).eps, atol=0) for a, b in pairs)


@pytest.mark.parametrize("table", ["spellings", "reciprocals"])
def test_every_rule_has_both(table: str) -> None:
    verdicts = {(case.rule, case.seen) for case in cases(table)}
    named = {rule.name for rule in rules(table).program.rules}
    assert {rule for rule, _ in verdicts} == named
    assert {rule for rule, seen in verdicts if seen} == named


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({case.title for case in cases()}) == len(cases())


def test_the_table_has_tensors() -> None:
    assert isinstance(run(graph_of(cases()[0]).gm), tuple)
    assert all(isinstance(v, Tensor) for v in run(graph_of(cases()[0]).gm))  # type: ignore[attr-defined]
