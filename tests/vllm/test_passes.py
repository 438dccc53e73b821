"""vLLM's own passes and the rules, on the same graphs: the same fused ops on the same values.

Needs vLLM 0.32.0, which wants an environment of its own: `FUSIONDSL_VLLM_PYTHON` names its Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.cases import ARCHS, CASES
from tests.vllm.differences import DIFFERENCES, differences, left_alone

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("FUSIONDSL_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else None)

pytestmark = pytest.mark.slow
needs_vllm = pytest.mark.skipif(
    PYTHON is None,
    reason="vLLM is not installed here, and FUSIONDSL_VLLM_PYTHON names no Python that has it",
)


@cache
def outcomes(arch: str) -> dict[str, dict[str, Any]]:
    """One process for each chip: vLLM decides what GPU it has when it is imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FUSIONDSL_REFERENCE_OPS": "1"}
    done = subprocess.run(
        [str(PYTHON), "-m", "tests.vllm.worker", arch],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["case"]: row for row in rows}


@needs_vllm
@pytest.mark.parametrize("arch", ARCHS)
def test_every_case_ran(arch: str) -> None:
    assert list(outcomes(arch)) == [case.name for case in CASES if arch in case.archs]


@needs_vllm
@pytest.mark.parametrize(
    ("arch", "case"),
    [(arch, case.name) for arch in ARCHS for case in CASES if arch in case.archs],
    ids=lambda part: part.replace(" ", "_"),
)
def test_same_as_vllm(arch: str, case: str) -> None:
    row = outcomes(arch)[case]
    assert row["same_registered"], "the registrations give another graph than the graph pass"
    assert row["registered"] == row["ours"]
    ours = "rewrites" if row["ours"] else "leaves"
    listed = list(differences(case, arch))
    if listed:
        (difference,) = listed
        assert (row["theirs"], ours) == (difference.theirs, difference.ours), row
        assert not row["same"] or row["theirs"] not in ("rewrites", "leaves"), row
        assert row["ours"] or row["refused"], "left alone without a reason"
        return
    assert row["same"], row
    assert row["forms"], row
    expected = "leaves" if left_alone(case, arch) else "rewrites"
    assert (row["theirs"], ours) == (expected, expected), row


def test_every_listed_difference_is_one() -> None:
    for difference in DIFFERENCES:
        found = [
            case.name for case in CASES for arch in case.archs if difference.covers(case.name, arch)
        ]
        assert found, difference.cases
