"""Spells text as YAML scalars that read back as the same text."""

from __future__ import annotations

_INDICATORS = frozenset("?:,[]{}#&*!|>'\"%@`-=")
_FLOW = frozenset(",[]{}:?")


def is_plain(text: str, flow: bool = False) -> bool:
    """Whether `text` can stand without quotes; in flow collections brackets and commas cannot."""
    if not text or text != text.strip() or not text.isprintable():
        return False
    if text[0] in _INDICATORS and not (text[0] == "-" and text[1:2].strip()):
        return False
    if ": " in text or " #" in text or text.endswith(":") or text.startswith(("...", "---")):
        return False
    return not flow or not _FLOW & set(text)


def scalar(text: str, flow: bool = False) -> str:
    """Plain where possible, else in single quotes, else with escapes."""
    if is_plain(text, flow):
        return text
    if text.isprintable() and text:
        return "'" + text.replace("'", "''") + "'"
    return quoted(text)


def quoted(text: str) -> str:
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char == "\n":
        return "\\n"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def block(lines: list[str], indent: str) -> list[str]:
    return [indent + line if line else "" for line in lines]
