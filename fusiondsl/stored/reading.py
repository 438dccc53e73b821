"""What was read for a set of rules: files by name and text, and directories by what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusiondsl.syntax.files import directory_files, read_text_bytes


@dataclass(frozen=True)
class Reading:
    """All that a set of rules was made from: while that is the same, so are they.

    Names are as they were given, so relative ones are relative to the working directory.
    """

    files: Mapping[str, tuple[str, str] | None]
    """Of every file the path without links, which says what is one file, and the digest of its
    text; None where there is no such file."""
    directories: Mapping[str, tuple[str, ...] | None]
    """The rule files below every directory that was listed; None where there is none."""

    @staticmethod
    def of(
        files: Mapping[Path, str], texts: Mapping[str, str], directories: Mapping[Path, list[Path]]
    ) -> Reading:
        """Of what a loader has read: files with their paths without links, and texts by these."""
        digests = {path: _digest(text.encode()) for path, text in texts.items()}
        return Reading(
            {str(name): (path, digests[path]) for name, path in files.items()},
            {str(name): tuple(map(str, found)) for name, found in directories.items()},
        )

    @staticmethod
    def now(files: Iterable[str], directories: Iterable[str]) -> Reading:
        """Of what is there, under these names."""
        return Reading(
            {name: _read(name) for name in files}, {name: _listed(name) for name in directories}
        )

    def is_current(self) -> bool:
        """Every name stands for the same file, with the same text; no file has come or gone."""
        return self == Reading.now(self.files, self.directories)

    def digest(self) -> str:
        seen = sorted(self.files.items()), sorted(self.directories.items())
        return _digest(repr(seen).encode("utf-8", "surrogatepass"))


def _read(name: str) -> tuple[str, str] | None:
    try:
        return os.path.realpath(name), _digest(read_text_bytes(name))
    except (OSError, ValueError):
        return None


def _listed(name: str) -> tuple[str, ...] | None:
    # `os.path`, because only it answers for names that are too long or hold NUL.
    if not os.path.isdir(name):  # noqa: PTH112
        return None
    try:
        return tuple(map(str, directory_files(Path(name))))
    except OSError:
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
