"""What rules do with the public dumps, and why: as line 1 of each says, and for the right cause.

`tests/cases/dumps/verdicts.json` has for each dump the rules that its line 1 speaks of: where they
fire, or what `why` names first. `inputs` are types that a fragment does not print; `lowered` asks
about the graph's operations in aten, `ranks` where it is known how many there are.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import fusiondsl
from fusiondsl.engine import CompiledRules
from fusiondsl.graphs import read
from fusiondsl.target import Target
from tests.graphs.test_dumps import CASES, PUBLIC, reading
from tests.graphs.test_shipped_rules import FACTS

VERDICTS: dict[str, list[dict[str, Any]]] = json.loads((CASES / "verdicts.json").read_text())
QUESTIONS = [(stem, place) for stem, told in VERDICTS.items() for place in range(len(told))]


@cache
def rules(pack: str | None, arch: str, ranks: bool) -> CompiledRules:
    found = fusiondsl.load("fusiondsl:" if pack is None else CASES / pack)
    here = {"tp_size": 2, "tp_group": "tp:0", "facts": FACTS} if ranks else {}
    return found.compile(Target(arch, **here))


def text_of(stem: str, asked: dict[str, Any]) -> str:
    """The dump, or the lines of a fragment as a function of typed inputs."""
    whole = (CASES / f"{stem}.txt").read_text()
    if "inputs" not in asked:
        return whole
    inputs = asked["inputs"].replace("'", '"')
    body = [line for line in whole.splitlines() if line.startswith(" ") and line.strip() != "..."]
    return "\n".join(
        [f"def forward(self, {inputs}):", *body, f"    return ({asked['outputs']},)", ""]
    )


def graph_of(stem: str, asked: dict[str, Any], compiled: CompiledRules) -> fx.GraphModule:
    found = read(text_of(stem, asked), program=compiled.program)
    name = asked.get("graph")
    (graph,) = (g for g in found if name in (None, g.name))
    if not asked.get("lowered"):
        return graph.gm
    values = [n.meta["val"] for n in graph.gm.graph.nodes if n.op == "placeholder"]
    with next(v.fake_mode for v in values if hasattr(v, "fake_mode")):
        return make_fx(graph.gm)(*values)


@pytest.mark.parametrize(("stem", "place"), QUESTIONS)
def test_verdict(stem: str, place: int) -> None:
    asked = VERDICTS[stem][place]
    ranks = asked.get("ranks", False)
    compiled = rules(asked.get("rules"), asked.get("arch", "gfx950"), ranks)
    gm = graph_of(stem, asked, compiled)
    tokens = range(1, 9)
    answer = compiled.why(gm, tokens=tokens).of(asked["rule"])
    assert [site.node for site in answer.fired] == asked.get("fires", [])
    if "cause" in asked:
        first = answer.sites[0].causes[0] if answer.sites else answer.causes[0]
        assert [first.code, first.node, first.field] == asked["cause"]
        assert asked.get("words", "") in first.message
    assert compiled.apply(gm, tokens=tokens).counts.get(asked["rule"], 0) == len(answer.fired)


def test_every_dump_that_has_graphs_has_its_verdicts() -> None:
    with_graphs = {path.stem for path in PUBLIC if reading(path)["graphs"]}
    assert with_graphs == VERDICTS.keys()
    assert all(len(told["reason"]) > 30 for several in VERDICTS.values() for told in several)


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_line_1_says_so(path: Path) -> None:
    """Where it says `match`, something fires."""
    said = reading(path)["rules"]
    fires = sum("fires" in asked for asked in VERDICTS.get(path.stem, ()))
    assert fires > 0 or not any(verdict.startswith("match") for verdict in said.values())


def test_buffers_of_a_fragment_have_the_type_of_what_is_left_in_them() -> None:
    (graph,) = read(CASES / "pub_01.txt")
    values = {n.name: n.meta.get("val") for n in graph.gm.graph.nodes if n.op == "placeholder"}
    assert [name for name, value in values.items() if value is not None] == ["mm_6", "getitem_17"]
    assert str(tuple(values["mm_6"].shape)) == "(s0, 3072)"


def test_a_log_of_functionalised_calls() -> None:
    log = (CASES / "gen_02_aot_graphs_log_v2.txt").read_text()
    compiled = rules(None, "gfx950", False)
    (graph,) = read(log, program=compiled.program)
    assert compiled.apply(graph.gm).counts == {"add_rms_norm_static_quant": 1}
