"""Reports of one start of an engine: the line, what is required, what is kept. Needs no vLLM."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import fusiondsl
from fusiondsl import FusionError, Target
from fusiondsl.diagnostics.render import render_all
from fusiondsl.integrations.vllm import reports
from fusiondsl.integrations.vllm.settings import Settings

RULES = """
op reports.twice(x: D[t.., H]) -> (y: D[t.., H]) { means { y = x + x } }
op reports.never(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = relu(x) }
  available { env.arch == "gfx950" }
}

rule twice(x: D[tokens.., H]) {
  match   { y = x + x }
  replace { y = reports.twice(x) }
  where   { even: H % 2 == 0 }
}

rule never(x: D[tokens.., H]) {
  match   { y = relu(x) }
  replace { y = reports.never(x) }
}
"""
CONFIG: Any = SimpleNamespace(
    compilation_config=SimpleNamespace(compile_ranges_endpoints=[16, 256])
)


def ready(**settings: Any) -> Any:
    rules = fusiondsl.load_source(RULES).compile(Target(arch="gfx942"))
    asked = Settings(**settings)
    return SimpleNamespace(program=rules.program, rules=rules, settings=asked)


def compiled_graph(made: Any, width: int, tokens: range) -> None:
    def double(x: Tensor) -> Tensor:
        return x + x

    graph = make_fx(double, tracing_mode="fake")(torch.ones(4, width))
    reports.add(made.rules.apply(graph, tokens=tokens), tokens, 0.25)


@pytest.fixture(autouse=True)
def _new_start() -> None:
    reports.begin(0)


def test_the_line() -> None:
    made = ready()
    compiled_graph(made, 8, range(1, 17))
    compiled_graph(made, 8, range(17, 257))
    assert reports.summary(made, CONFIG) == (
        "fusiondsl: rewrote 2 sites in 2 graphs: twice 2; 1 of 2 rules can fire; "
        "ranges end [16, 256]"
    )
    first, second = reports.last_start().pieces
    assert (first.tokens, second.tokens) == ((1, 16), (17, 256))
    assert (first.index, second.index) == (0, 1)


def test_the_line_of_a_dry_run_and_of_unknown_graphs() -> None:
    made = ready(dry_run=True)
    assert "the graphs came from a cache that has no report of them" in (
        reports.summary(made, CONFIG)
    )
    compiled_graph(made, 8, range(1, 17))
    assert "would rewrite 1 sites in 1 graphs: twice 1;" in reports.summary(made, CONFIG)


def test_what_is_required_and_did_not_fire() -> None:
    made = ready(require=("twice", "never"))
    compiled_graph(made, 7, range(1, 17))
    with pytest.raises(FusionError) as caught:
        reports.require(made, [])
    assert render_all(caught.value.diagnostics) == (
        """\
error[FD721]: the rule `twice` is required and did not fire in any graph
 --> <string>.fuse:8:6
  |
8 | rule twice(x: D[tokens.., H]) {
  |      ^^^^^
  |
  = note: at add: predicate false: H % 2 is 1, not 0

error[FD721]: the rule `never` is required and did not fire in any graph
  --> <string>.fuse:14:6
   |
14 | rule never(x: D[tokens.., H]) {
   |      ^^^^^
   |
   = note: reports.never is not available: env.arch is "gfx942", not "gfx950"

2 errors
"""
    )


def test_a_required_rule_without_a_site_in_the_engine() -> None:
    made = ready(require=("twice",))
    compiled_graph(made, 8, range(1, 17))
    reports.last_start().pieces[:] = [replace(reports.last_start().pieces[0], refused=())]
    with pytest.raises(FusionError) as caught:
        reports.require(made, [], {"twice": "the engine has one rank"})
    (note,) = caught.value.diagnostics[0].notes
    assert note == "no graph of this engine has a site for it: the engine has one rank"


def test_strict_requires_what_the_target_allows() -> None:
    made = ready(strict=True)
    with pytest.raises(FusionError, match="`twice` is required"):
        reports.require(made, [])
    reports.require(made, ["twice"])


def start(path: Path) -> None:
    reports.begin(0)
    reports.last_start().kept_in = path


def test_reports_of_the_start_that_filled_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "one.json"
    made = ready()
    start(path)
    compiled_graph(made, 8, range(1, 17))
    kept = list(reports.last_start().pieces)
    # Before the start is complete: another process may take the graph.
    start(path)
    reports._exchange()
    assert reports.last_start().pieces == kept
    assert reports.last_start().from_cache
    assert "(from vLLM's cache): twice 1;" in reports.summary(made, CONFIG)


def test_a_start_that_finds_some_graphs_in_the_cache_keeps_the_reports_of_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "one.json"
    made = ready()
    start(path)
    for ends in (17, 257):
        compiled_graph(made, 8, range(1, ends))
    start(path)
    compiled_graph(made, 8, range(1, 257))
    reports._exchange()
    assert len(reports.last_start().pieces) == 2
    assert not reports.last_start().from_cache
    start(path)
    reports._exchange()
    assert len(reports.last_start().pieces) == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", '[{"index": 1}]'])
def test_damaged_reports_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    path = tmp_path / "one.json"
    path.write_text(content)
    start(path)
    with caplog.at_level(logging.WARNING):
        reports._exchange()
    assert reports.last_start().pieces == []
    assert "cannot read the reports of the graphs" in caplog.text


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    made = ready()
    start(tmp_path / "file" / "one.json")
    with caplog.at_level(logging.WARNING):
        for ends in (17, 257):
            compiled_graph(made, 8, range(1, ends))
        reports._exchange()
    (said,) = caplog.messages
    assert said.startswith("cannot keep the reports of the graphs in ")
    assert len(reports.last_start().pieces) == 2
