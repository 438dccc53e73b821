"""Paired timing: CPU time of alternatives run in turn, with the ratio of each repetition."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of a few measurements."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        ordered = sorted(values)
        return Spread(median(ordered), ordered[0], ordered[-1])

    def format(self, digits: int = 1) -> str:
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}..{self.high:.{digits}f}]"


def cpu_ms(action: Callable[[], object]) -> float:
    """CPU milliseconds of one call, all threads, after a full collection."""
    gc.collect()
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1e3


@dataclass(frozen=True)
class Pair:
    """Two alternatives measured in turn."""

    left: Spread
    right: Spread
    ratio: Spread
    """`left / right` of each repetition."""


def interleave(
    left: Callable[[], float], rights: Sequence[Callable[[], float]], repetitions: int
) -> list[Pair]:
    """Call one and the others in turn; each returns the milliseconds it took, set-up excluded."""
    lefts: list[float] = []
    others: list[list[float]] = [[] for _ in rights]
    for _ in range(repetitions):
        lefts.append(left())
        for right, measured in zip(rights, others, strict=True):
            measured.append(right())
    return [
        Pair(
            Spread.of(lefts),
            Spread.of(measured),
            Spread.of(a / b for a, b in zip(lefts, measured, strict=True)),
        )
        for measured in others
    ]
