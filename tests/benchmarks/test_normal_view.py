"""The benchmark measures like against like, and what it leaves out is what the view does."""

from __future__ import annotations

import pytest
import torch

from benchmarks.model_graph import Shape, clone, decoder_graph
from benchmarks.normal_view import LITERAL, literally, measure, rules

SMALL = Shape(layers=2)
_NO_OP = torch.ops.aten.alias.default


@pytest.mark.parametrize("native", [False, True])
def test_both_ways_end_in_the_same_graph(native: bool) -> None:
    row = measure("", SMALL, 1, native=native)
    assert (row.sites, row.equal) == (6, True)


def test_literally_means_without_looking_through() -> None:
    gm = decoder_graph(SMALL)
    norm = next(n for n in gm.graph.nodes if "rms_norm" in str(n.target))
    (reader,) = (u for u in norm.users if u.target is not None)
    with gm.graph.inserting_before(reader):
        again = gm.graph.call_function(_NO_OP, (norm,))
        again.meta["val"] = norm.meta["val"]
    reader.replace_input_with(norm, again)
    assert len(rules().apply(clone(gm).graph).fired) == 6
    with literally():
        assert len(rules().apply(clone(gm).graph).fired) == 5
    assert len(rules().apply(clone(gm).graph).fired) == 6


def test_everything_is_put_back() -> None:
    before = [getattr(owner, name) for owner, name, _ in LITERAL]
    with literally():
        assert [getattr(owner, name) for owner, name, _ in LITERAL] != before
    assert [getattr(owner, name) for owner, name, _ in LITERAL] == before
