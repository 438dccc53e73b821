"""Test-wide settings: deterministic hypothesis runs, references allowed as op implementations."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("FUSIONDSL_REFERENCE_OPS", "1")
os.environ.setdefault("FUSIONDSL_CACHE", "0")  # nothing that an earlier run has left counts

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, max_examples=200, print_blob=True, **_COMMON)
settings.register_profile("dev", max_examples=50, **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_sessionstart() -> None:
    """Extern ops get implementations before any module defines their schemas alone."""
    import fusiondsl
    from tests.support.extern_ops import register_extern_ops

    register_extern_ops(fusiondsl.load("fusiondsl:").program)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs in another process with vLLM takes longest: the others are tried beside it."""
    items.sort(key=lambda item: item.path.parent.name != "vllm")


def pytest_collection_finish() -> None:
    """What is there by now stays: no collection need look through all of torch."""
    gc.collect()
    gc.freeze()
