"""Kleene logic, by its whole truth table."""

from __future__ import annotations

import itertools

import pytest

from fusiondsl.dims import Truth, all_of, any_of

MEANS = {Truth.TRUE: {True}, Truth.FALSE: {False}, Truth.UNKNOWN: {True, False}}


def _of(outcomes: set[bool]) -> Truth:
    return Truth.UNKNOWN if len(outcomes) == 2 else Truth.of(outcomes.pop())


@pytest.mark.parametrize(("a", "b"), list(itertools.product(Truth, Truth)))
def test_connectives(a: Truth, b: Truth) -> None:
    assert (a & b) is _of({x and y for x in MEANS[a] for y in MEANS[b]})
    assert (a | b) is _of({x or y for x in MEANS[a] for y in MEANS[b]})
    assert ~a is _of({not x for x in MEANS[a]})
    assert all_of([a, b]) is (a & b)
    assert any_of([a, b]) is (a | b)


def test_of_nothing() -> None:
    assert all_of([]) is Truth.TRUE
    assert any_of([]) is Truth.FALSE


def test_it_is_no_bool() -> None:
    with pytest.raises(TypeError):
        bool(Truth.UNKNOWN)
