"""`load_once`: rules that the process has read, for as long as nothing of them changes."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from fusiondsl import stored
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.rules import RuleSet, load, load_by
from fusiondsl.stored import Reading

_MOST = 16
"""Sets of rules that are kept, those asked for last."""


@dataclass(frozen=True)
class _Kept:
    rules: RuleSet
    reading: Reading


_kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
_lock = Lock()


def load_once(*paths: str | Path) -> RuleSet:
    """As `load`, which it calls where nobody has before, or where a file has changed since.

    Files are read to know that, but neither parsed nor proved again. What another process has read
    is a program as from an artifact: without the text of its files, and without contracts.
    """
    try:
        # Messages name files as they were given, and these are relative to the working directory.
        key = (os.getcwd(), *map(str, paths))  # noqa: PTH109
    except OSError:  # which somebody has removed
        return load(*paths)
    with _lock:
        kept = _kept.get(key)
        if kept is None or not kept.reading.is_current():
            kept = _found(paths) or _read(paths)
        _kept[key] = kept
        _kept.move_to_end(key)
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
        return kept.rules


def _found(paths: tuple[str | Path, ...]) -> _Kept | None:
    found = stored.find(paths)
    return None if found is None else _Kept(RuleSet(found.program), found.reading)


def _read(paths: tuple[str | Path, ...]) -> _Kept:
    from fusiondsl.analysis.modules import Loader  # with all that checks rules

    loader = Loader(Diagnostics())
    rules = load_by(loader, paths)
    reading = Reading.of(loader.files, loader.texts(), loader.directories)
    if not rules.warnings:  # which a process that does not check would not show
        stored.keep(paths, reading, rules.program)
    return _Kept(rules, reading)
