"""Number and string literals: from their spelling to a value, and back."""

from __future__ import annotations

import math
import re

from fusiondsl.syntax.limits import MAX_INT

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "0": "\0"}
_SPECIAL = {value: "\\" + key for key, value in _ESCAPES.items()}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIZE = re.compile(r"([0-9][0-9_]*)[ \t]*([KMGT])iB")
_INT = re.compile(r"0[xX][0-9a-fA-F_]+|[0-9][0-9_]*")
_FLOAT = re.compile(r"[0-9][0-9_]*(?:\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
RESERVED = frozenset({"and", "or", "not", "in", "is", "true", "false", "none"})


def is_name(text: str, dotted: bool) -> bool:
    """Whether the grammar reads `text` as a name."""
    if _NAME.fullmatch(text) is None or text in RESERVED:
        return False
    return dotted or "." not in text


class LiteralError(Exception):
    """A literal that has no value; the message says why, `offset` where inside its text."""

    def __init__(self, message: str, offset: int = 0, length: int = 0) -> None:
        super().__init__(message)
        self.offset = offset
        self.length = length


def read_int(text: str) -> int:
    digits = text.replace("_", "")
    is_hex = digits[:2].lower() == "0x"
    if len(digits) > 40:
        raise LiteralError("the integer does not fit in 64 bits")
    value = int(digits[2:] or "0", 16) if is_hex else int(digits)
    return _in_range(value)


def _in_range(value: int) -> int:
    if value > MAX_INT:
        raise LiteralError("the integer does not fit in 64 bits")
    return value


def read_size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    assert found is not None
    return _in_range(read_int(found[1]) * _UNITS[found[2]])


def read_float(text: str) -> float:
    value = float(text.replace("_", ""))
    if math.isinf(value):
        raise LiteralError("the number is too large for a float")
    return value


def read_string(text: str) -> str:
    """The value of `text`, a string with its quotes."""
    body = text[1:-1]
    if "\\" not in body:
        return body
    return _ESCAPE.sub(_unescape, body)


def _unescape(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) == 5:
        code = int(escape[1:], 16)
        if 0xD800 <= code < 0xE000:
            raise LiteralError(
                f"`{found[0]}` is half of a pair, not a character", found.start() + 1, 6
            )
        return chr(code)
    if escape not in _ESCAPES:
        raise LiteralError(f"unknown escape `{found[0]}`", found.start() + 1, 2)
    return _ESCAPES[escape]


def read_number(text: str) -> int | float | None:
    """The value of a number as the grammar spells it, None for anything else."""
    try:
        if _INT.fullmatch(text):
            return read_int(text)
        if _SIZE.fullmatch(text):
            return read_size(text)
        if _FLOAT.fullmatch(text):
            return read_float(text)
    except LiteralError:
        return None
    return None


def write_string(value: str) -> str:
    return '"' + "".join(_escape(char) for char in value) + '"'


def _escape(char: str) -> str:
    if char in _SPECIAL:
        return _SPECIAL[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char


def write_number(value: int | float) -> str:
    if isinstance(value, int):
        return str(value)
    text = repr(value)
    return text if "." in text or "e" in text else text + ".0"
