"""The few pieces of Markdown that pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fusiondsl.diagnostics.escape import escaped

_FENCE = "```"
_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([\\`*_\[\]<>|])")


def heading(level: int, text: str) -> str:
    return f"{'#' * level} {text}"


def prose(text: str) -> str:
    """Text of an author as it is, whatever characters it has; code in backticks stays code."""
    line = escaped(" ".join(text.splitlines()))
    parts = _CODE.split(line)
    return "".join(part if _CODE.fullmatch(part) else _MARKUP.sub(r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """`text` as code within a line."""
    ticks = "`" * (_longest_run("`", text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{escaped(text)}{space}{ticks}"


def link(text: str, place: str) -> str:
    return f"[{text}]({place})"


def block(lines: Iterable[str], language: str) -> str:
    text = "\n".join(lines)
    fence = "`" * max(len(_FENCE), _longest_run("`", text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, and a bar in them does not end them."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def page(parts: Iterable[str]) -> str:
    """Parts with a blank line between them; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _longest_run(char: str, text: str) -> int:
    return max(map(len, re.findall(f"{re.escape(char)}+", text)), default=0)
