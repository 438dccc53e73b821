"""Input files of the graph readers."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span

MAX_BYTES = 64 << 20
UNUSABLE = 2
"""Exit code for input that cannot be read."""


def load_text(source: str | Path) -> Source:
    """The file at `source`, or `source` itself where it is a text."""
    if isinstance(source, str) and "\n" in source:
        return _decoded("<string>", source)
    path = Path(source)
    diagnostics = Diagnostics()
    try:
        if path.stat().st_size > MAX_BYTES:
            refuse(diagnostics, "FD603", f"{path} is larger than {MAX_BYTES >> 20} MiB", None)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        refuse(diagnostics, "FD600", f"cannot read {str(source)[:200]}: {reason}", None)
    if b"\0" in data:
        refuse(diagnostics, "FD601", f"{path} is not a text file", None)
    try:
        return _decoded(str(path), data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 (byte {error.start})"
        refuse(diagnostics, "FD602", message, None)


def _decoded(name: str, text: str) -> Source:
    return Source(name, text.replace("\r\n", "\n").removeprefix("\ufeff"))


def refuse(diagnostics: Diagnostics, code: str, message: str, span: Span | None) -> NoReturn:
    diagnostics.error(code, message, span)
    raise FusionError(diagnostics, UNUSABLE)
