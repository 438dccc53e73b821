"""Engines that come one after the other, beside each other, or to a sudden end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.vllm.cpu_engine.start import EVERY, PYTHON, Engines, segments
from tests.vllm.engines import (
    CUSTOM,
    F32,
    GPU_OPS,
    ONE_GRAPH,
    STATIC,
    WITHOUT_SILU,
    same_text,
    unfused,
)

STATIC_F32: dict[str, Any] = {"compilation": CUSTOM, "dtype": "float32"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed here"),
    pytest.mark.skipif(not EVERY, reason="FUSIONDSL_ENGINES is not `all`"),
]


def same_in(lives: list[dict[str, Any]], engines: Engines) -> bool:
    """Every engine gives the text of one without rules."""
    return all(same_text(life, unfused(engines)) for life in lives)


def test_engines_one_after_the_other(engines: Engines) -> None:
    """Each has the rules that the environment names when it starts, and its own report."""
    other = {**F32, "FUSIONDSL_OFF": "silu_mul_static_quant"}
    ran = engines.start(
        "llama_fp8_static",
        variables=GPU_OPS,
        life="in_turn",
        lives=[{}, F32, other, {}],
        **STATIC_F32,
    )
    lives = ran["lives"]
    assert same_in(lives, engines)
    assert [life.get("counts", {}) for life in lives] == [{}, STATIC, WITHOUT_SILU, {}]
    assert [len(life.get("pieces", ())) for life in lives] == [0, 1, 1, 0]
    assert ran.log.count("] fusiondsl: rewrote ") == 2


def test_engines_beside_each_other(engines: Engines) -> None:
    """Two processes fill one cache at the same time, and a third takes it."""

    def start(_number: int) -> Any:
        return engines.start(
            "llama_fp8_static", variables={**GPU_OPS, **F32}, cache="beside", **STATIC_F32
        )

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(start, range(2)))
    for ran in (*both, start(3)):
        assert ran["counts"] == STATIC
        assert same_text(ran, unfused(engines))
    assert ran["from_cache"]


def test_a_pass_that_is_collected_while_the_engine_serves(engines: Engines) -> None:
    ran = engines.start(
        "llama_fp8_static", variables={**GPU_OPS, **F32}, life="collected", **STATIC_F32
    )
    assert ran["counts"] == STATIC
    assert ran["there"]
    assert ran["left"] == []
    assert same_text(ran["before"], unfused(engines))
    assert same_text(ran, unfused(engines))


def test_a_worker_that_is_started_again(engines: Engines) -> None:
    """It has the rules by its configuration alone, and takes the graphs of the one before it."""
    ran = engines.start(
        "llama_fp8_static",
        variables={**GPU_OPS, **F32},
        cache="restarted",
        life="restarted",
        **STATIC_F32,
    )
    first, again = ran["lives"]
    assert same_in([first, again], engines)
    assert first["uuid"] == again["uuid"]
    assert first["counts"] == again["counts"] == STATIC
    assert (first["from_cache"], again["from_cache"]) == (False, True)


def test_ranks_that_are_killed(engines: Engines) -> None:
    """The next start is right."""
    shared: dict[str, Any] = {
        "variables": F32,
        "compilation": ONE_GRAPH,
        "dtype": "float32",
        "tp": 2,
        "cache": "killed",
    }
    before = segments()
    killed = engines.start("llama", life="killed", **shared)
    assert killed.code == -9
    assert segments() <= before
    again = engines.start("llama", **shared)
    assert again["tokens"] == killed.result["tokens"]
    assert "rewrote 8 sites in 1 graphs" in again.log


def test_shared_memory_that_is_left_behind_is_removed(engines: Engines) -> None:
    before = segments()
    killed = engines.start("llama", life="leaves")
    assert killed.left == (killed.result["name"],)
    assert segments() <= before


def test_a_cache_that_cannot_be_written(engines: Engines) -> None:
    """Without a place for its own cache vLLM does not start; without ours it serves."""
    place = engines.root / "cache_unwritable" / "fusiondsl"
    place.parent.mkdir()
    place.write_text("no directory")
    ran = engines.start(
        "llama_fp8_static", variables={**GPU_OPS, **F32}, cache="unwritable", **STATIC_F32
    )
    assert ran["counts"] == STATIC
    assert same_text(ran, unfused(engines))
    assert ran.log.count(f"cannot keep the reports of the graphs in {place}") == 1
