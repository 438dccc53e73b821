"""Graphs before and after vLLM's own AITER passes: our rules compute the same with the same ops."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fusiondsl
from fusiondsl import Answer, CompiledRules, Target
from fusiondsl.graphs import ReadGraph, read
from fusiondsl.resources import patterns_root
from tests.pairs.values import RESHAPES, Values

CASES = Path(__file__).parent.parent / "cases" / "pairs"
INDEX: dict[str, Any] = json.loads((CASES / "index.json").read_text())
PAIRS: dict[str, dict[str, Any]] = {row["stem"]: row for row in INDEX["pairs"]}


@cache
def rules(arch: str) -> CompiledRules:
    target = Target(
        arch=arch,
        tp_size=INDEX["tp_size"],
        tp_group=INDEX["tp_group"],
        facts=INDEX["facts"],
        answers=tuple(Answer(**answer) for answer in INDEX["answers"]),
    )
    return fusiondsl.load(patterns_root()).compile(target)


def graph(name: str, arch: str) -> ReadGraph:
    (only,) = read(CASES / name, program=rules(arch).program, device=INDEX["device"])
    return only


def tokens(stem: str) -> range:
    first, last = PAIRS[stem].get("tokens", INDEX["tokens"])
    return range(first, last + 1)


@cache
def rewritten(stem: str) -> tuple[ReadGraph, fusiondsl.Report]:
    """The graph that vLLM hands to its pass, after the rules: all tests look at one."""
    row = PAIRS[stem]
    before = graph(f"{stem}.before.txt", row["arch"])
    report = rules(row["arch"]).apply(before.gm, tokens=tokens(stem))
    return before, report


@cache
def expected(name: str, arch: str) -> ReadGraph:
    return graph(name, arch)


def outputs(gm: fx.GraphModule) -> list[torch.Tensor]:
    (result,) = gm.graph.output_node().args
    return [item.meta["val"] for item in result]  # type: ignore[union-attr]


def calls(gm: fx.GraphModule) -> int:
    """Calls that compute something: outputs of one value are copies of it."""
    idle = {*RESHAPES, torch.ops.aten.clone.default}
    return sum(node.target not in idle for node in gm.graph.nodes)


def form(value: torch.Tensor) -> tuple[object, ...]:
    return str(tuple(value.shape)), str(value.stride()), value.dtype, value.device


@pytest.mark.parametrize("stem", sorted(PAIRS), ids=lambda stem: stem.partition("__")[2])
def test_same_values_by_the_same_fused_op(stem: str) -> None:
    row = PAIRS[stem]
    ours, report = rewritten(stem)
    assert report.counts == row["rules"], str(report)
    if "refused" in row:
        assert row["refused"] in {refusal.kind.value for refusal in report.refused}
    ours.gm.graph.lint()
    assert not ours.symbols.shape_env.guards
    theirs = expected(row["expected"], row["arch"])
    program = rules(row["arch"]).program
    values = [Values(program, INDEX["defaults"]).outputs(g.gm.graph) for g in (ours, theirs)]
    assert values[0] == values[1]
    assert [form(v) for v in outputs(ours.gm)] == [form(v) for v in outputs(theirs.gm)]


@pytest.mark.parametrize("stem", sorted(PAIRS), ids=lambda stem: stem.partition("__")[2])
def test_a_second_application_changes_nothing(stem: str) -> None:
    ours, _ = rewritten(stem)
    code = ours.gm.code
    again = rules(PAIRS[stem]["arch"]).apply(ours.gm, tokens=tokens(stem))
    assert not again.fired
    assert ours.gm.code == code


def test_every_difference_is_listed() -> None:
    for row in PAIRS.values():
        same_result = row["vllm"] == "rewrites" and row["expected"].endswith(".after.txt")
        assert same_result or row["difference"], row["stem"]
    kinds = {row["vllm"] for row in PAIRS.values()}
    assert kinds == {"rewrites", "leaves", "raises"}


def test_no_more_fused_ops_than_vllm() -> None:
    """Two equal quants of one norm are one fused op, and never more than vLLM has."""
    for stem, row in PAIRS.items():
        if row["vllm"] != "rewrites":
            continue
        ours, _ = rewritten(stem)
        theirs = expected(row["expected"], row["arch"])
        assert calls(ours.gm) <= calls(theirs.gm), stem
