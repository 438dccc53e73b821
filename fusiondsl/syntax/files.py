"""From paths to `Source`s: what is read, and what is said about files that cannot be."""

from __future__ import annotations

import os
from pathlib import Path

from fusiondsl.diagnostics.codes.syntax import UNREADABLE
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source
from fusiondsl.syntax.limits import MAX_FILE_BYTES

SUFFIXES = (".fuse", ".yaml", ".yml")
_BOM = "\ufeff"


def read_source(path: str | os.PathLike[str], diagnostics: Diagnostics) -> Source | None:
    """The text of a rule file; None, with a diagnostic of `UNREADABLE`, if there is none."""
    name = os.fspath(path)
    if Path(name).suffix not in SUFFIXES:
        hint = "rule files end in `.fuse`, `.yaml` or `.yml`"
        diagnostics.error("FD005", f"`{name}` is not a rule file", None, help=hint)
        return None
    data = _read_bytes(name, diagnostics)
    return None if data is None else decode_source(name, data, diagnostics)


def directory_files(path: Path) -> list[Path]:
    """The rule files below a directory, sorted."""
    found = (p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    return sorted(found, key=lambda p: p.relative_to(path).parts)


def read_text_bytes(name: str) -> bytes:
    """What the text of a file is in UTF-8, if it is a text; raises `OSError` or `ValueError`.

    A file that is too large is not read to its end.
    """
    with Path(name).open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1).removeprefix(_BOM.encode())


def _read_bytes(name: str, diagnostics: Diagnostics) -> bytes | None:
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        diagnostics.error("FD001", f"cannot read `{name}`: {reason}", None)
        return None
    if len(data) <= MAX_FILE_BYTES:
        return data
    limit = MAX_FILE_BYTES >> 20
    diagnostics.error("FD004", f"`{name}` is larger than {limit} MiB", None)
    return None


def decode_source(name: str, data: bytes, diagnostics: Diagnostics) -> Source | None:
    """`data` as text; a UTF-8 byte order mark is dropped."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        diagnostics.error("FD002", f"`{name}` is UTF-16; rule files are UTF-8", None)
        return None
    if b"\0" in data:
        offset = data.index(b"\0")
        diagnostics.error("FD003", f"`{name}` is binary: byte {offset} is NUL", None)
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"`{name}` is not UTF-8: byte 0x{data[error.start]:02x} in line {line}"
        diagnostics.error("FD002", message, None)
        return None
    return Source(name, text.removeprefix(_BOM))


def is_unreadable(diagnostics: Diagnostics) -> bool:
    """Whether some input could not be read at all, which is exit code 2."""
    return any(item.code in UNREADABLE for item in diagnostics)
