"""Every input kept is checked, and a few seconds of new ones for each target, always the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.case import CORPUS, stored
from tests.fuzz.guard import run
from tests.fuzz.targets import TARGETS

KEPT = [(name, path) for name, target in TARGETS.items() for path in target.corpus()]
COUNTS = {
    "parser": 150,
    "yaml": 150,
    "check": 12,
    "artifact": 200,
    "graphs": 80,
    "logs": 60,
    "engine": 6,
}
"""About three seconds of CPU time each."""


@pytest.mark.parametrize(("name", "path"), KEPT, ids=[f"{n}-{p.name}" for n, p in KEPT])
def test_kept(name: str, path: Path) -> None:
    target = TARGETS[name]
    target.check(stored(path))  # what is loaded on first use is not measured
    run(target, stored(path))


def test_every_folder_is_of_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(target.corpus() for target in TARGETS.values())


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_of_one_seed(name: str) -> None:
    """On failure: `python -m tests.fuzz --target NAME --seed 0 --count N --found DIR` keeps it."""
    tally = fuzz(TARGETS[name], 0, count=COUNTS[name])
    assert not tally.findings, tally.findings
    assert tally.outcomes.keys() >= TARGETS[name].outcomes


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_follows_from_its_number(name: str) -> None:
    target = TARGETS[name]
    assert target.case(7, 3) == target.case(7, 3)
    assert target.case(7, 3) != target.case(7, 4)
