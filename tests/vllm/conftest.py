"""Engines that all tests of a run share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.vllm.cpu_engine.start import Engines, Outcome, segments


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """No engine leaves shared memory behind, however it ended."""
    before = segments()
    with TemporaryDirectory() as root:
        made = Engines(Path(root))
        made.start = _shared(made.start)  # type: ignore[method-assign]
        yield made
    assert segments() <= before


def _shared(start: Any) -> Any:
    """Tests share starts that are equal, unless they name a cache or a life."""
    known: dict[str, Outcome] = {}

    def started(model: str, **options: Any) -> Outcome:
        key = f"{model} {sorted(options.items(), key=lambda item: item[0])}"
        if {"cache", "life"} & options.keys() or key not in known:
            known[key] = start(model, **options)
        return known[key]

    return started
