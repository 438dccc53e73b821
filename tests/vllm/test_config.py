"""Rules in vLLM's configuration: slots, end points, hashes, copies; and ranks that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vllm.cpu_engine.start import PYTHON, ROOT, printed, worker

WORKER = "tests.vllm.config_worker"
PACK = ROOT / "tests" / "vllm" / "packs" / "limited.fuse"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed here"),
]


def test_in_the_configuration(tmp_path: Path) -> None:
    seen = printed(worker(tmp_path, WORKER, str(tmp_path)))
    most = seen["most"]
    assert seen["waiting"] == [True, True]
    assert seen["ends"] == [16, most]
    assert seen["with_own"] == [16, 64, most]
    assert seen["facts"] == {
        "env.aiter": False,
        "env.tp_group": "tp:0",
        "env.tp_size": 1,
        "env.vllm": True,
        "model.max_tokens": most,
    }
    assert seen["kinds"] == [True, ["post_grad_custom_pre_pass"]]
    plain, elsewhere, packed, literal, dry, without = seen["hashes"]
    assert plain == elsewhere == packed
    assert len({plain, literal, dry, without}) == 4
    assert len(set(seen["uuids"])) == 1
    assert seen["kept"]
    assert seen["own"] == ["gfx942", False]
    assert seen["asked"] == [["custom"], []]
    assert seen["chained"] == [1, True]
    assert seen["layers"] == {
        "unified": [["layers.0", True], ["layers.1", True]],
        "mixed": [["layers.0", True], ["layers.1", False]],
        "unknown": [],
        "encoder": [],
    }
    assert "the device of rank 0 has 38 compute units, where its driver says 304" in seen["device"]
    assert (
        "error[FD723]: the slot of the rules holds a `Anonymous` without a `uuid`"
        in (seen["anonymous"])
    )
    assert "nowhere.fuse" in seen["missing"]


def test_ranks_that_differ_do_not_start(tmp_path: Path) -> None:
    other = tmp_path / "other.fuse"
    other.write_text(PACK.read_text().replace("MOST = 16", "MOST = 32"))
    ranks = [
        worker(tmp_path, WORKER, str(rank), str(tmp_path / "store"), OTHER_RULES=str(rules))
        for rank, rules in enumerate((PACK, other))
    ]
    for seen in map(printed, ranks):
        same, different = seen["said"]
        assert same == ""
        assert "error[FD722]: rules or facts of rank 1 are not those of rank 0" in different
