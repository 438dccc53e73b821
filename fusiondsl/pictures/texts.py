"""The texts of a page: each is kept once, and none can move a cursor or turn a line around."""

from __future__ import annotations

from collections.abc import Iterable

from fusiondsl.diagnostics.escape import escaped

_LONGEST = 2000
"""Characters of one line; the rest of a longer one is left out."""


class Texts:
    """Numbers for texts, in the order in which they were first asked for."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._numbers = {text: number for number, text in enumerate(known)}

    def line(self, text: str | None) -> int | None:
        """The number of one line of foreign text."""
        return None if text is None else self._number(_shown(text))

    def lines(self, texts: Iterable[str]) -> int:
        """The number of several lines."""
        return self._number("\n".join(map(_shown, texts)))

    def _number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def _shown(text: str) -> str:
    return escaped(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
