"""Makes text safe and of known width in a terminal: tabs, control and wide characters."""

from __future__ import annotations

from unicodedata import category, combining, east_asian_width

_TAB = "    "


def cell(char: str) -> tuple[str, int]:
    """How one character is shown, and how many columns that takes."""
    if " " <= char <= "~":
        return char, 1
    if char == "\t":
        return _TAB, len(_TAB)
    if combining(char):
        return char, 0
    if category(char)[0] in "CZ" and char != " ":
        shown = f"<U+{ord(char):04X}>"
        return shown, len(shown)
    return char, 2 if east_asian_width(char) in "WF" else 1


def escaped(text: str) -> str:
    """`text` with everything that could move the cursor or reorder the line made visible."""
    return "".join(cell(char)[0] for char in text)


def width(text: str) -> int:
    return sum(cell(char)[1] for char in text)
