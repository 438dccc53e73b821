"""`find` and `keep`: rules that some process has checked, found again by the text they stand in.

There is an artifact for every state of all files that were read. Which files these are, nobody can
know who does not read them; so there is a list of them for what was asked for. A list that is wrong
leads to no artifact: the name of one is a digest of everything that the rules were made from, the
list included.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fusiondsl
from fusiondsl import artifact, ir
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.resources import SHIPPED, grammar_file, patterns_root
from fusiondsl.stored.place import directory, trim
from fusiondsl.stored.reading import Reading
from fusiondsl.target import Target

CHECKING = ("analysis", "artifact", "decl", "diagnostics", "dims", "ir", "proof", "syntax")
"""The parts of the package that make rules of text; what lies beside them has a say as well."""
_READERS = ("lark", "pyyaml")
_MOST = 1 << 20
"""Bytes of a list of files."""

log = logging.getLogger("fusiondsl")


@dataclass(frozen=True)
class Stored:
    """Rules that were checked without an error or a warning."""

    program: ir.Program
    """As from an artifact: it has positions, but no text, and no contracts."""
    reading: Reading


def find(paths: Iterable[str | os.PathLike[str]]) -> Stored | None:
    """The rules in these files, where they were checked in this state; they are sound."""
    key, place = _key(paths), directory()
    if key is None or place is None:
        return None
    try:
        found = _found(place, key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, FusionError) as error:
        log.debug("stored rules in %s cannot be used: %s", place, error)
        return None
    return found


def _found(place: Path, key: str) -> Stored:
    """Raises an error where there are none, or none that can be used."""
    listed = place / f"{key}.json"
    reading = Reading.now(*_names(listed))
    packed = place / _name(key, reading)
    packed.stat()  # what is not there is no damage
    program = artifact.load(packed).program
    _use(listed, packed)
    return Stored(program, reading)


def _names(listed: Path) -> tuple[list[str], list[str]]:
    with listed.open("rb") as file:
        data: Any = json.loads(file.read(_MOST + 1))
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError(f"`{listed.name}` is no list of files and directories")
    for names in data:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"`{listed.name}` has something else than names in it")
    files, directories = data
    return files, directories


def _use(*files: Path) -> None:
    """What is used stays longest."""
    for file in files:
        try:
            os.utime(file)
        except OSError:
            return


def keep(paths: Iterable[str | os.PathLike[str]], reading: Reading, program: ir.Program) -> None:
    """Stores rules that were read without an error or a warning, if that is possible."""
    key, place = _key(paths), directory()
    if key is None or place is None:
        return
    try:
        listed = json.dumps([sorted(reading.files), sorted(reading.directories)]).encode()
        packed = artifact.dumps(program, Target(), file_name=str)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        artifact.replace_file(place / _name(key, reading), packed)
        artifact.replace_file(place / f"{key}.json", listed)
        trim(place)
    except (OSError, ValueError, FusionError) as error:
        log.debug("the rules are not stored in %s: %s", place, error)


# --- names -------------------------------------------------------------------------------------


def _name(key: str, reading: Reading) -> str:
    digest = hashlib.sha256(f"{key} {reading.digest()}".encode()).hexdigest()
    return digest + artifact.SUFFIX


def _key(paths: Iterable[str | os.PathLike[str]]) -> str | None:
    """Names what was asked for, and who checks it; None where that cannot be said."""
    names = tuple([os.fspath(path) for path in paths])
    code = _code()
    if code is None:
        return None
    try:
        asked = (code, str(patterns_root()), _folder(names), names)
    except OSError:  # somebody has removed the working directory
        return None
    return hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).hexdigest()


def _folder(names: Iterable[str]) -> str | None:
    """What names are relative to; None where that is nothing."""
    absolute = (name.startswith(SHIPPED) or Path(name).is_absolute() for name in names)
    return None if all(absolute) else os.getcwd()  # noqa: PTH109


@cache
def _code() -> str | None:
    """Digest of all that makes rules of text; None where it does not lie in files."""
    package = Path(fusiondsl.__file__).parent
    folders = [package.glob("*.py"), *((package / part).rglob("*.py") for part in CHECKING)]
    digest = hashlib.sha256()
    try:
        for path in (grammar_file(), *sorted(path for found in folders for path in found)):
            data = path.read_bytes()
            digest.update(f"{path.name} {len(data)} ".encode() + data)
        used = [version(name) for name in _READERS]
    except (OSError, PackageNotFoundError) as error:
        log.debug("rules are not stored: %s", error)
        return None
    digest.update(repr((fusiondsl.__version__, sys.implementation.cache_tag, used)).encode())
    return digest.hexdigest()
