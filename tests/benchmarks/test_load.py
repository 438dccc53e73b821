"""The benchmark of loading: what it loads is the whole set, and stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusiondsl
from benchmarks.load import PACKS, TARGET, complete, measure
from fusiondsl import artifact


def test_what_is_measured_is_every_rule_ready_for_graphs() -> None:
    program = fusiondsl.load(PACKS[0]).program
    rules = complete(artifact.dumps(program, TARGET))
    assert {rule.name for rule in program.rules} == {row.rule for row in rules.rows()}
    planned = [rule.name for stratum in rules.plan.rules for rule in stratum]
    assert sorted(planned) == sorted(rule.name for rule in rules.compiled.rules)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_every_step_costs_something_and_the_memory_is_bounded() -> None:
    row = measure(PACKS[0], 1)
    assert 0 < row.opened.median < row.complete.median
    assert 0 < row.memory < 50_000_000
