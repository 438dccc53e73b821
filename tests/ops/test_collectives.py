"""Reference collectives: on one rank, in a world that the test supplies, in real process groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fusiondsl
from fusiondsl.ops.dispatch import SWITCH
from fusiondsl.ops.references.collectives import all_reduce, reference_world


def test_alone_it_is_a_copy() -> None:
    x = torch.randn(3, 4)
    y = all_reduce(x, "tp:0")
    assert torch.equal(x, y)
    assert x.data_ptr() != y.data_ptr()


def test_ranks_are_added_in_order_and_rounded_once() -> None:
    ranks = [torch.randn(3, 64, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    halves = [r.bfloat16() for r in ranks]
    with reference_world(lambda x, group: halves):
        y = all_reduce(halves[0], "tp:0")
    total = halves[0].float()
    for other in halves[1:]:
        total = total + other.float()
    assert torch.equal(y, total.bfloat16())
    assert torch.equal(all_reduce(halves[0], "tp:0"), halves[0])


@pytest.mark.slow
def test_ranks_are_those_of_the_host(tmp_path: Path) -> None:
    script = Path(__file__).with_name("rank.py")
    root = str(Path(fusiondsl.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, SWITCH: "1", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            env=environment,
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    answers = [json.loads(rank.communicate(timeout=300)[0]) for rank in ranks]
    missing = (
        "no process group is called `tp:0` here, and 2 processes run: "
        "without it the sum over them is not known"
    )
    expected = {
        "before": [1.0, 1.0],
        "unknown": missing,
        "host": True,
        "torch": True,
        "fused": True,
        "destroyed": missing,
        "still there": 2,
    }
    assert answers == [expected, expected]
