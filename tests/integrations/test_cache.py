"""Inductor's cache and our rules, in programs one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fusiondsl

RULES = Path(__file__).with_name("glu.fuse")
FIRED = [{"gated": 1}, {"doubled": 1}]
pytestmark = pytest.mark.slow


class Machine:
    """Programs that share a cache."""

    def __init__(self, cache: Path) -> None:
        root = str(Path(fusiondsl.__file__).parents[1])
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FUSIONDSL_")},
            "PYTHONPATH": root,
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "OMP_NUM_THREADS": "1",
        }

    def run(
        self, *paths: Path, seed: int = 0, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        script = str(Path(__file__).with_name("program.py"))
        done = subprocess.run(
            [sys.executable, script, *map(str, paths)],
            env={**self.environment, "PYTHONHASHSEED": str(seed), **(environment or {})},
            stdout=subprocess.PIPE,
            check=True,
            timeout=600,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def test_a_second_process_takes_what_the_first_has_made(tmp_path: Path) -> None:
    """Also where the rules lie elsewhere and hashes are others; our ops are there all the same."""
    machine = Machine(tmp_path / "cache")
    first = machine.run(RULES)
    assert first["counts"] == FIRED
    assert (first["hits"], first["misses"]) == (0, 2)

    moved = tmp_path / "elsewhere" / "other.fuse"
    moved.parent.mkdir()
    moved.write_text("# The same rules.\n" + RULES.read_text())
    for again in (machine.run(RULES), machine.run(moved, seed=7)):
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


def test_who_wants_a_report_gets_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "cache")
    asked = {"FUSIONDSL_DRY_RUN": "1", "FUSIONDSL_REPORT": str(tmp_path / "report.txt")}
    for _ in range(2):
        told = machine.run(RULES, environment=asked)
        assert told["counts"] == FIRED
        assert (told["hits"], told["misses"]) == (0, 0)
        assert told["bypassed"] == 2
    assert (tmp_path / "report.txt").read_text().count("fired") == 4
