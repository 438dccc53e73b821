"""Where the characters of a YAML scalar stand in the file, whatever its style."""

from __future__ import annotations

from fusiondsl.syntax.fuse import Piece
from fusiondsl.syntax.yaml_nodes import Scalar

_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}


def piece_of(scalar: Scalar) -> Piece:
    """The text of `scalar` with its positions.

    Most scalars stand in the file as they are, so the file itself is read; where quotes, escapes
    or folding change the text, every character is looked up.
    """
    span = scalar.span
    raw = span.text
    match scalar.style:
        case "|":
            return _block(scalar)
        case "" if "\n" not in raw:
            return Piece(raw, span.start)
        case "'" | '"' if raw[1:-1] == scalar.value:
            return Piece(scalar.value, span.start + 1)
        case _:
            return Piece(scalar.value, 0, _offsets(scalar))


def _block(scalar: Scalar) -> Piece:
    """The lines of a literal block, with their indentation, which means nothing in bodies."""
    text = scalar.span.source.text
    start = text.find("\n", scalar.span.start) + 1
    content = scalar.value.rstrip("\n")
    if not content or not start:
        return Piece("", scalar.span.start)
    end = start - 1
    for _ in range(content.count("\n") + 1):
        end = text.find("\n", end + 1)
        if end < 0:
            end = len(text)
            break
    return Piece(text[start:end], start)


def _offsets(scalar: Scalar) -> list[int]:
    """For each character of the value the offset of what spells it, and where the last one ends."""
    text = scalar.span.source.text
    end = scalar.span.end
    position = scalar.span.start
    if scalar.style == ">":
        position = text.find("\n", position) + 1
    elif scalar.style:
        position += 1
    offsets: list[int] = []
    for char in scalar.value:
        if scalar.style == '"':
            position = _skip_joined_lines(text, position, end)
            if text[position] == "\\":
                offsets.append(position)
                position += _ESCAPE_LENGTHS.get(text[position + 1], 2)
                continue
        if not char.isspace():
            while position < end - 1 and text[position] != char:
                position += 1
        offsets.append(min(position, end - 1))
        position += not char.isspace() or text[position : position + 1].isspace()
    offsets.append(min(position, end))
    return offsets


def _skip_joined_lines(text: str, position: int, end: int) -> int:
    """A backslash at the end of a line joins it to the next."""
    while text[position : position + 2] == "\\\n":
        position += 2
        while position < end and text[position] in " \t":
            position += 1
    return position
