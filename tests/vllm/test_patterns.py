"""Rules as pattern replacements of vLLM: what they rewrite, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vllm.cpu_engine.start import PYTHON, printed, worker

EXPECTED = {
    "fits": 1,
    "another epsilon": 1,
    "an epsilon that is not exported": 0,
    "too many tokens": 0,
    "some counts too many": 0,
    "static and few": 1,
    "static and too many": 0,
    "another dtype": 0,
    "three dimensions": 0,
}


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed here")
def test_conditions_hold_with_and_without_a_check_of_matches(tmp_path: Path) -> None:
    seen = printed(worker(tmp_path, "tests.vllm.pattern_worker", str(tmp_path)))
    assert seen["rewritten"] == {"Rules": EXPECTED, "Checked": EXPECTED}
    assert seen["count"] == 2
    assert seen["left_out"] == []
    same, copied, other = seen["uuids"]
    assert same == copied
    assert same != other
