"""Changes of texts and bytes: of words, of lines, of characters, of bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|[0-9][0-9.e-]*|[ \t]+|\n|.", re.DOTALL)
_NASTY = (
    "9" * 30, "9223372036854775807", "9223372036854775808", "-1", "0", "1e400", "1e-400", "0x10",
    "1_0", "0.0", "((((((", "))))", "[[[[", "{{{{", "}", "\"", "'", "\\", "\\x", "\x00", "\x85",
    "\u2028", "\u202e", "\ufeff", "é", "漢", "😀", "\udcff", "\t", "\r", "\r\n", "\x0b", "\x0c",
    "#", ";", "..", "...", "**", "//", "->", "@", "|", "~", "?", "round?", "not", "is", "none", "_",
    "a" * 300, "- - - - ", "+ +", "not not ", "== 1", "&", "*", "!", "%",
)  # fmt: skip
LARGEST = 10_000
"""Characters, beyond which a changed text is cut."""


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def changed(text: str, rng: Random, more: Sequence[str], nasty: Sequence[str] = _NASTY) -> str:
    """`text` after a few changes; parts may come from `more`, which are texts of the same kind."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        kind = rng.choice(_CHANGES)
        text = kind(text, rng, rng.choice(more), nasty)
    start = rng.randrange(len(text) - LARGEST) if len(text) > LARGEST else 0
    return text[start : start + LARGEST]


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def noise(data: bytes, rng: Random) -> bytes:
    """Bytes changed, cut out, doubled or put in."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, length = rng.randrange(len(data) + 1), rng.choice((0, 1, 1, 2, 4, 40))
        put = rng.choice((b"", rng.randbytes(1), rng.randbytes(length), data[at : at + 2 * length]))
        data = data[:at] + put + data[at + length :]
    return data


# --- one change ----------------------------------------------------------------------------------


def _exchange(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    """A word becomes another of the same kind."""
    found = words(text)
    if not found:
        return other
    at = rng.randrange(len(found))
    kind = _kind(found[at])
    same = [word for word in found + words(other) if _kind(word) == kind]
    found[at] = rng.choice(same)
    return "".join(found)


def _kind(word: str) -> tuple[bool, bool, bool]:
    return word[0].isalpha(), word[0].isdigit(), word.isspace()


def _insert(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    found = words(text)
    put = rng.choice(nasty) if rng.random() < 0.6 else rng.choice(words(other) or [""])
    found.insert(rng.randrange(len(found) + 1), put)
    return "".join(found)


def _replace(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    found = words(text) or [""]
    found[rng.randrange(len(found))] = rng.choice(nasty)
    return "".join(found)


def _remove(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    found = words(text)
    at = rng.randrange(len(found) + 1)
    del found[at : at + rng.choice((1, 1, 2, 5, 30))]
    return "".join(found)


def _swap(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    found = words(text) or [""]
    left, right = rng.randrange(len(found)), rng.randrange(len(found))
    found[left], found[right] = found[right], found[left]
    return "".join(found)


def _lines(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    """Lines doubled, moved, removed, indented, or taken from elsewhere."""
    lines = text.splitlines(keepends=True) or [""]
    at, count = rng.randrange(len(lines)), rng.choice((1, 1, 2, 5))
    taken = lines[at : at + count]
    where = rng.randrange(len(lines) + 1)
    match rng.randrange(5):
        case 0:
            lines[where:where] = taken
        case 1:
            del lines[at : at + count]
            lines[where:where] = taken
        case 2:
            del lines[at : at + count]
        case 3:
            indent = rng.choice(("  ", "\t", " "))
            lines[at : at + count] = [indent + line for line in taken]
        case _:
            there = other.splitlines(keepends=True) or [""]
            first = rng.randrange(len(there))
            lines[where:where] = there[first : first + count]
    return "".join(lines)


def _splice(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    """The head of one text and the tail of another."""
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _deepen(text: str, rng: Random, other: str, nasty: Sequence[str]) -> str:
    """A word inside very many brackets, or behind very many signs."""
    found = words(text) or [""]
    at, times = rng.randrange(len(found)), rng.choice((5, 40, 60, 70, 1_000, 3_000))
    before, after = rng.choice(
        (("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("~", ""), ("", ".to(f32)"), ("1 + ", ""),
         ("f(", ")"), ("", " + 1"), ("", "[0]"), ("2 ** ", ""), ("{", "}"), ("- ", ""), ("", "?"))
    )  # fmt: skip
    times = min(times, LARGEST // (len(before) + len(after)) // 2)
    found[at] = before * times + found[at] + after * times
    return "".join(found)


_CHANGES: tuple[Callable[[str, Random, str, Sequence[str]], str], ...] = (
    _exchange, _exchange, _exchange, _insert, _replace, _remove, _swap, _lines, _lines, _splice,
    _deepen,
)  # fmt: skip
