"""Inductor's cache and our rules, in programs one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import ROOT, Forks

RULES = Path(__file__).with_name("glu.fuse")
PROGRAM = "tests.integrations.program"
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("FUSIONDSL_")},
    "PYTHONPATH": str(ROOT),
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}
FIRED = [{"gated": 1}, {"doubled": 1}]
pytestmark = pytest.mark.slow


class Machine:
    """Programs that share a cache. Those with the usual hashes are forks, and import torch once."""

    def __init__(self, cache: Path, forks: Forks) -> None:
        self.cache = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self.forks = forks

    def run(self, *paths: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self.forks.run([str(path) for path in paths], {**self.cache, **(environment or {})})

    def run_with_other_hashes(self, *paths: Path) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, *map(str, paths)],
            cwd=ROOT,
            env={**ENVIRONMENT, **self.cache, "PYTHONHASHSEED": "7"},
            stdout=subprocess.PIPE,
            check=True,
            timeout=600,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["seed"] == "7"
        return answer


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Forks(PROGRAM, ENVIRONMENT) as forks:
        yield Machine(tmp_path_factory.mktemp("cache"), forks)


def test_a_second_process_takes_what_the_first_has_made(tmp_path: Path, machine: Machine) -> None:
    """Also where the rules lie elsewhere and hashes are others; our ops are there all the same."""
    first = machine.run(RULES)
    assert first["counts"] == FIRED
    assert (first["hits"], first["misses"]) == (0, 2)

    moved = tmp_path / "elsewhere" / "other.fuse"
    moved.parent.mkdir()
    moved.write_text("# The same rules.\n" + RULES.read_text())
    for again in (machine.run(RULES), machine.run_with_other_hashes(moved)):
        assert (again["hits"], again["misses"]) == (2, 0)
        assert again["counts"] == []
        assert not again["rules were compiled"]
        assert again["keys"] == first["keys"]

    changed = tmp_path / "changed.fuse"
    changed.write_text(RULES.read_text().replace("N % 8", "N % 16"))
    other = machine.run(changed)
    assert other["counts"] == FIRED
    assert (other["hits"], other["misses"]) == (0, 2)

    without = machine.run()
    assert (without["hits"], without["misses"]) == (0, 2)


def test_who_wants_a_report_gets_one(tmp_path: Path, machine: Machine) -> None:
    asked = {"FUSIONDSL_DRY_RUN": "1", "FUSIONDSL_REPORT": str(tmp_path / "report.txt")}
    for _ in range(2):
        told = machine.run(RULES, environment=asked)
        assert told["counts"] == FIRED
        assert (told["hits"], told["misses"]) == (0, 0)
        assert told["bypassed"] == 2
    assert (tmp_path / "report.txt").read_text().count("fired") == 4
