"""Files that a run adds to, graph by graph and from several processes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fusiondsl.artifact import replace_file

if TYPE_CHECKING:
    from torch import fx

    from fusiondsl.engine.compiled import CompiledRules

if sys.platform != "win32":
    import fcntl

_KINDS = {".json": "fusiondsl.engine.why.live", ".html": "fusiondsl.pictures.live"}
"""What is no text, by suffix. Named and not imported: pages are made of what the engine says."""

log = logging.getLogger("fusiondsl")


class Foreign(Exception):
    """The file that is to grow is somebody else's; the message says what it is not."""


def tell(variable: str, text: Callable[[], str]) -> None:
    """Adds a text to the file that an environment variable names, if it does."""
    name = os.environ.get(variable)
    if name:
        with _failures_told(variable, name):
            _append(name, text())


def tell_why(
    variable: str, title: str, rules: CompiledRules, graph: fx.Graph, tokens: range | None
) -> None:
    """Adds what `why` says of a graph: as text, or as the suffix of the file says."""
    name = os.environ.get(variable)
    if not name:
        return
    kind = _KINDS.get(Path(name).suffix.lower())
    with _failures_told(variable, name):
        if kind is None:
            _append(name, f"{title}\n{rules.why(graph, tokens=tokens)}\n\n")
        else:
            # before the file is locked: this takes longest
            extended = import_module(kind).addition(rules, graph, title, tokens)
            _extend(name, extended)


def _append(name: str, text: str) -> None:
    with Path(name).open("a", encoding="utf-8") as file:
        file.write(text)


def _extend(name: str, extended: Callable[[bytes], bytes]) -> None:
    """A reader sees the file as it was or as it is afterwards, and no process undoes another."""
    # `os.path`, because `Path.resolve` raises where links go in circles.
    place = Path(os.path.realpath(name))
    with _locked(place.parent):
        before = place.read_bytes() if place.exists() else b""
        replace_file(place, extended(before))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time. The folder is locked, because the file itself is replaced."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _failures_told(variable: str, name: str) -> Iterator[None]:
    """A compilation does not fail because a file about it cannot be written."""
    try:
        yield
    except OSError as error:
        log.warning("cannot write %s, which %s names: %s", name, variable, error.strerror)
    except Foreign as error:
        log.warning("%s, which %s names, is left as it is: %s", name, variable, error)
