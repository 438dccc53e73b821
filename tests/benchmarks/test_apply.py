"""The benchmark measures like against like: both ways end in the same graph."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusiondsl
from benchmarks import rule_sets
from benchmarks.apply import TARGET, compare_apply, compare_rule_counts
from benchmarks.compare_graphs import compare
from benchmarks.model_graph import Shape, clone, decoder_graph

SMALL = Shape(layers=2)


@pytest.mark.parametrize("native", [False, True])
def test_same_graph_as_register_replacement(native: bool) -> None:
    rows = compare_apply("decomposed" if native else "op forms", SMALL, 1, native=native)
    assert [row.sites for row in rows] == [6, 6]
    assert all(row.equal for row in rows)


def test_a_rewritten_graph_is_not_the_original() -> None:
    graph = decoder_graph(SMALL)
    rewritten = clone(graph)
    assert compare(graph, rewritten).equal
    fusiondsl.load(rule_sets.RULES / "static_quant.fuse").compile(TARGET).apply(rewritten)
    assert not compare(graph, rewritten).equal


def test_more_rules_find_the_same_sites(tmp_path: Path) -> None:
    graph = decoder_graph(SMALL)
    sets = (
        rule_sets.seven(),
        rule_sets.distinct_ops(tmp_path),
        rule_sets.one_anchor(tmp_path),
    )
    for rule_set in sets:
        rules = fusiondsl.load(*rule_set.files).compile(TARGET)
        assert len(rules.program.rules) == rule_set.rules
        assert len(rules.apply(graph, rewrite=False).fired) == 6
    assert [row.rules for row in compare_rule_counts(SMALL, sets, 1)] == [7, 400, 400]


def test_the_large_graph_is_the_one_that_is_known() -> None:
    nodes = [len(decoder_graph(Shape(layers=n)).graph.nodes) for n in (1, 2)]
    assert nodes[0] + 79 * (nodes[1] - nodes[0]) == 4646
