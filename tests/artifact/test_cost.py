"""What checking and loading the shipped rules costs, in time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import fusiondsl
from fusiondsl import artifact
from fusiondsl.target import Target

_MEMORY = """
import sys
import torch, torch._inductor.custom_graph_pass
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096
before = resident()
from fusiondsl import artifact
from fusiondsl.engine import CompiledRules
loaded = artifact.load(sys.argv[1])
rules = CompiledRules(loaded.program, loaded.target)
rules.plan
print(resident() - before)
"""


def _run(*words: str) -> str:
    root = str(Path(fusiondsl.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_check_of_all_shipped_patterns_takes_seconds() -> None:
    """Two of them on a processor of its own; beside other work they are more."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert _run("-m", "fusiondsl", "check", "fusiondsl:").startswith("checked ")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_the_loaded_library_needs_less_than_50_mb_above_torch(tmp_path: Path) -> None:
    program = fusiondsl.load("fusiondsl:").program
    artifact.save(tmp_path / "all.fused", program, Target("gfx950", 8))
    assert 0 < int(_run("-c", _MEMORY, str(tmp_path / "all.fused"))) < 50_000_000
