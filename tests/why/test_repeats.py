"""Layers that repeat are examined once, and each site is told with its own nodes and lines."""

from __future__ import annotations

from typing import Any

import pytest

import fusiondsl
from benchmarks.model_graph import Shape, decoder_graph
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.why import edits
from fusiondsl.engine.why.examine import Examiner, _Unlike
from fusiondsl.target import Target

LAYERS = 3


@pytest.fixture(scope="module")
def rules() -> CompiledRules:
    return fusiondsl.load("fusiondsl:").compile(Target())


@pytest.mark.parametrize("native", [False, True])
def test_what_is_remembered_is_what_each_site_has(
    native: bool, rules: CompiledRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    gm = decoder_graph(Shape(layers=LAYERS), native=native)
    asked: list[Any] = []
    ask = Examiner._asked
    monkeypatch.setattr(Examiner, "_asked", lambda *args: asked.append(args) or ask(*args))
    answer = rules.why(gm)
    remembered = len(asked)

    def unlike(self: Examiner, site: Any) -> Any:
        raise _Unlike

    monkeypatch.setattr(Examiner, "_like", unlike)
    assert rules.why(gm) == answer
    assert 2 * remembered < len(asked) - remembered


def test_every_site_has_its_own_nodes_and_lines(rules: CompiledRules) -> None:
    gm = decoder_graph(Shape(layers=LAYERS))
    lines = {node.name: node.meta.get("stack_trace", "") for node in gm.graph.nodes}
    near = [s for s in rules.why(gm).of("silu_mul_static_quant").near if s.matched == s.calls]
    assert len({site.node for site in near}) == len(near) == LAYERS
    for site in near:
        assert site.source is not None
        number = site.source.partition(":")[2].partition(" ")[0]
        assert f"line {number}," in lines[site.node]


def test_edits_that_change_the_same_are_tried_in_one_run(
    rules: CompiledRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[edits.Trial] = []
    run = edits.Runs._run
    monkeypatch.setattr(edits.Runs, "_run", lambda runs, t: ran.append(t) or run(runs, t))
    answer = rules.why(decoder_graph(Shape(layers=LAYERS)))
    helped = [r.rule for r in answer.rules if any(site.edits for site in r.sites)]
    assert len(helped) == 3
    assert [trial.target.arch for trial in ran] == ["gfx950"]
