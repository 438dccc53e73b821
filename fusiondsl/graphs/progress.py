"""A bar on a terminal while a long text is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fusiondsl.graphs.dumps import Progress

_WIDTH = 30
_WORTH_IT = 2 << 20
"""Shorter texts are read at once."""


@contextmanager
def shown(name: str, size: int) -> Iterator[Progress | None]:
    """What tells the bar how far reading is; None where there is no terminal or little to read."""
    if size < _WORTH_IT or not sys.stderr.isatty():
        yield None
        return
    label = name[-40:]

    def draw(part: float) -> None:
        filled = round(_WIDTH * part)
        bar = "#" * filled + "-" * (_WIDTH - filled)
        print(f"\r{label} [{bar}] {part:4.0%}", end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
