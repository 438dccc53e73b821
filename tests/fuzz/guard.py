"""Runs a check under limits: time and memory are bounded, and nothing is written or started."""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.fuzz.case import Case, Finding, Target

SECONDS, BYTES = 1.0, 10_000
"""CPU time so many bytes may take each time they are read; more may take more in proportion."""
RUNAWAY = 20.0
"""CPU time after which a check is stopped."""
MEMORY = 256 << 20
"""By how much an input may raise the largest size the process ever had."""

_FORBIDDEN = ("os.", "shutil.", "socket.", "subprocess.", "ctypes.dlopen", "pty.", "webbrowser.")
_HARMLESS = {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.putenv", "os.unsetenv"}
_WRITES = 0o3  # O_WRONLY | O_RDWR

_events: list[str] | None = None


@dataclass(frozen=True)
class Done:
    outcome: str
    seconds: float


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _events is None:
        return
    if event == "open":
        path, _, flags = args
        if isinstance(flags, int) and flags & _WRITES:
            _events.append(f"open {path!r} for writing")
    elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
        _events.append(f"{event} {args!r}"[:200])


sys.addaudithook(_audit)


@contextmanager
def _watched() -> Iterator[list[str]]:
    global _events
    _events = events = []
    try:
        yield events
    finally:
        _events = None


def _stop(*_: object) -> None:
    raise Finding(f"it still ran after {RUNAWAY} s of CPU time")


@contextmanager
def unwatched() -> Iterator[None]:
    """For what the check itself writes."""
    global _events
    events, _events = _events, None
    try:
        yield
    finally:
        _events = events


@contextmanager
def _stopped() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, RUNAWAY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit(target: Target, case: Case) -> float:
    return SECONDS * target.passes * max(1.0, len(case.data) / BYTES)


def run(target: Target, case: Case) -> Done:
    """The outcome; raises whatever the check raises, and `Finding`."""
    peak = _peak()
    done = _once(target, case)
    grown = _peak() - peak
    if grown > MEMORY:
        raise Finding(f"it took {grown >> 20} MiB")
    if done.seconds > limit(target, case):
        # what is done once a process is not the input's
        done = min((_once(target, case) for _ in range(2)), key=lambda again: again.seconds)
    if done.seconds > limit(target, case):
        raise Finding(f"it took {done.seconds:.1f} s for {len(case.data)} bytes")
    return done


def _once(target: Target, case: Case) -> Done:
    with _watched() as events, _stopped():
        start = time.process_time()
        outcome = target.check(case)
        seconds = time.process_time() - start
    if events:
        raise Finding("; ".join(events[:3]))
    return Done(outcome, seconds)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
