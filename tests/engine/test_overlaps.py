"""Sites that overlap: a site that finds no place leaves its nodes to those it had beaten."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import L, apply, refused, rewritten, rows, rules
from tests.support.capture import traced

X, R = rows(), rows(salt=1)
LOST, STRUCTURE = RefusalKind.LOST, RefusalKind.STRUCTURE

PAIR = """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
"""
ALONE = """
rule alone(a: D[t..]) {
  match { done = lab.act(a) }
  replace { done = lab.act_bump(a, 0.0) }
}
"""


def circular(x: Tensor) -> Tensor:
    """The other addend is computed from the result: one call cannot give both."""
    done = L.act(x)
    return L.other(done) + done


def crossed(a: Tensor, b: Tensor) -> Any:
    """Either of two sites can be one call, not both: each reads what the other gives."""
    first, second = L.act(a), L.act(b)
    return second * 2 + L.other(first), first * 3 + second


def test_a_site_that_finds_no_place_wins_nothing() -> None:
    applied = rewritten(traced(circular, X), rules(PAIR + ALONE), (X,))
    assert applied.counts == {"alone": 1}
    refused(applied, "pair", STRUCTURE, "a cycle")


def test_nor_where_nothing_is_rewritten() -> None:
    gm = traced(circular, X).gm
    before = str(gm.graph)
    report = rules(PAIR + ALONE).apply(gm, rewrite=False)
    assert report.counts == {"alone": 1}
    assert [refusal.kind for refusal in report.refused if refusal.rule == "pair"] == [STRUCTURE]
    assert str(gm.graph) == before


def test_nor_where_another_site_was_rewritten_before() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        return crossed(a, b), circular(a * 2), b + L.act(b * 5)

    applied = rewritten(traced(function, X, R), rules(PAIR + ALONE), (X, R))
    assert applied.counts == {"pair": 2, "alone": 2}
    reasons = {rule: [r.kind for r in applied.report.refusals_of(rule)] for rule in applied.counts}
    assert reasons == {"pair": [STRUCTURE, STRUCTURE], "alone": [LOST, LOST]}


@pytest.mark.parametrize("order", [PAIR + ALONE, ALONE + PAIR])
def test_a_loser_is_not_judged_before_the_winner_has_a_place(order: str) -> None:
    gm = traced(lambda a, b: b + L.act(a), X, R).gm
    applied = apply(gm, rules(order))
    assert applied.counts == {"pair": 1}
    refused(applied, "alone", LOST, "pair")
