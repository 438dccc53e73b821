"""`load_once`: rules that the process has read, for as long as nothing of them changes."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from fusiondsl.analysis.modules import Loader, directory_files
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.rules import RuleSet, load, load_by
from fusiondsl.syntax import read_source

_MOST = 16
"""Sets of rules that are kept, those asked for last."""


@dataclass(frozen=True)
class _Kept:
    rules: RuleSet
    files: dict[Path, str]
    """The files read, as they were named, and which these were."""
    texts: dict[str, str]
    directories: dict[Path, list[Path]]

    def is_current(self) -> bool:
        """Every name stands for the same file, with the same text; no file has come or gone."""
        listed = (directory_files(path) == files for path, files in self.directories.items())
        read = (self._is_same(path, key) for path, key in self.files.items())
        return all(listed) and all(read)

    def _is_same(self, path: Path, key: str) -> bool:
        if os.path.realpath(path) != key:
            return False
        source = read_source(path, Diagnostics())
        return source is not None and source.text == self.texts[key]


_kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
_lock = Lock()


def load_once(*paths: str | Path) -> RuleSet:
    """As `load`, which it calls where it has not before, or where a file has changed since.

    Files are read to know that, but neither parsed nor proved again.
    """
    try:
        # Messages name files as they were given, and these are relative to the working directory.
        key = (os.getcwd(), *map(str, paths))  # noqa: PTH109
    except OSError:  # which somebody has removed
        return load(*paths)
    with _lock:
        kept = _kept.get(key)
        if kept is None or not kept.is_current():
            kept = _read(paths)
        _kept[key] = kept
        _kept.move_to_end(key)
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
        return kept.rules


def _read(paths: tuple[str | Path, ...]) -> _Kept:
    loader = Loader(Diagnostics())
    rules = load_by(loader, paths)
    return _Kept(rules, loader.files, loader.texts(), loader.directories)
