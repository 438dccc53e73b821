"""Where stored rules lie, and that they do not become too many."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusiondsl.artifact import SUFFIX
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.switches import SWITCHES

DIRECTORY = "FUSIONDSL_CACHE_DIR"
SWITCH = "FUSIONDSL_CACHE"

MOST_FILES = 64
MOST_BYTES = 64 << 20

_FOLDER = "rules"
_OURS = re.compile(rf"[0-9a-f]{{64}}(\.json|{re.escape(SUFFIX)})")
_UNFINISHED = re.compile(rf"\.{_OURS.pattern}\..+")
_WRITTEN_WITHIN = 3600.0
"""Seconds; an unfinished file that is older has been left by a process that was killed."""


def directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The directory for stored rules; None where there is to be none.

    Raises `FusionError` where the variable that switches it says neither.
    """
    if not _is_on(environment.get(SWITCH) or "1"):
        return None
    given = environment.get(DIRECTORY)
    root = Path(given) if given else _of_the_platform(environment)
    return None if root is None else root / _FOLDER


def _is_on(text: str) -> bool:
    word = text.strip().lower()
    if word not in SWITCHES:
        diagnostics = Diagnostics()
        span = Span(Source(SWITCH, text), 0, len(text))
        diagnostics.error("FD720", f"`{text}` is neither 1 nor 0", span)
        raise FusionError(diagnostics, 2)
    return SWITCHES[word]


def _of_the_platform(environment: Mapping[str, str]) -> Path | None:
    if sys.platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return Path(local) / "fusiondsl" / "cache" if local else None
    given = environment.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():
        return Path(given) / "fusiondsl"
    try:
        home = Path.home()
    except RuntimeError:  # the user has none
        return None
    caches = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return home.joinpath(*caches, "fusiondsl")


# --- bounds ------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class _File:
    used: int
    path: str
    size: int


def trim(place: Path, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
    """Removes what was used longest ago, and what was never finished; nobody else's files."""
    files = sorted(_files(place), reverse=True)
    room = most_bytes
    for number, file in enumerate(files):
        room -= file.size
        if number >= most_files or room < 0:
            Path(file.path).unlink(missing_ok=True)


def _files(place: Path) -> list[_File]:
    found: list[_File] = []
    for entry in os.scandir(place):
        try:
            stat = entry.stat(follow_symlinks=False)
            if _OURS.fullmatch(entry.name):
                found.append(_File(stat.st_mtime_ns, entry.path, stat.st_size))
            elif _UNFINISHED.fullmatch(entry.name) and _is_left(stat.st_mtime):
                Path(entry.path).unlink(missing_ok=True)
        except FileNotFoundError:  # another process has removed it
            continue
    return found


def _is_left(written: float) -> bool:
    return time.time() - written > _WRITTEN_WITHIN
