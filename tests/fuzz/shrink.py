"""Smaller inputs that show the same."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.fuzz.case import Case, Finding, Target
from tests.fuzz.guard import run

_TRIES = 200


def kind_of(error: BaseException) -> str:
    """What two findings of one fault have in common: the error, and where it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fusiondsl/" in frame.filename]
    words = str(error).split()[:2] if isinstance(error, Finding) else []
    if isinstance(error, AssertionError) and not words:
        words = [f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"]
    place = f"{ours[-1].filename.rpartition('/fusiondsl/')[2]}:{ours[-1].name}" if ours else ""
    return " ".join((type(error).__name__, place, *words))


def failure(target: Target, case: Case) -> BaseException | None:
    try:
        run(target, case)
    except (Exception, RecursionError) as error:
        return error
    return None


def smallest(target: Target, case: Case) -> Case:
    """Lines go first, then bytes, as long as the same fault shows."""
    first = failure(target, case)
    if first is None:
        return case
    wanted = kind_of(first)
    left = [_TRIES]

    def shows(data: bytes) -> bool:
        left[0] -= 1
        error = failure(target, replace(case, data=data))
        return error is not None and kind_of(error) == wanted

    if target.smaller is not None:
        return _stepwise(case, target.smaller, shows)
    lines = _reduced(case.data.splitlines(keepends=True), b"".join, shows, left)
    parts = [lines[i : i + 1] for i in range(len(lines))]
    return replace(case, data=_reduced(parts, b"".join, shows, left))


def _stepwise(
    case: Case, smaller: Callable[[Case], Iterator[Case]], shows: Callable[[bytes], bool]
) -> Case:
    """From one smaller input to the next."""
    for _ in range(_TRIES):
        found = next((less for less in smaller(case) if shows(less.data)), None)
        if found is None:
            break
        case = found
    return case


def _reduced(
    parts: list[bytes],
    join: Callable[[list[bytes]], bytes],
    shows: Callable[[bytes], bool],
    left: list[int],
) -> bytes:
    """Removes runs of parts, long ones first."""
    length = max(1, len(parts) // 2)
    while length and left[0] > 0:
        at = 0
        while at < len(parts) and left[0] > 0:
            fewer = parts[:at] + parts[at + length :]
            if shows(join(fewer)):
                parts = fewer
            else:
                at += length
        length = length // 2
    return join(parts)
