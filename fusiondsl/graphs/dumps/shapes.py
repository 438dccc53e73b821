"""What a line looks like, and how it changes the nesting of brackets."""

from __future__ import annotations

import re

from fusiondsl.graphs.namespaces import is_namespace

MODULE = re.compile(
    r"(?P<banner>.*?)(?:^|(?<=[ \t]))class (?P<name><lambda>|\w+)"
    r"\(torch\.nn(?:\.modules?\.\w+)?\.Module\):\s*(?:#.*)?$"
)
SOURCE_CLASS = re.compile(r"\s*class \w+\s*[(:]")
FORWARD = re.compile(r"\s*def forward\((?=\s*$|\s*self\b)")
ANNOTATED_FORWARD = re.compile(r"\s*def forward\(\s*\w+\s*:\s*[\"'](?:\w+\[|Sym\()")
FUNCTION = re.compile(r"\s*(?:async\s+)?def \w+\s*\(")
BANNER = re.compile(r"\s*=====\s*(?P<name>[^=]+?)\s*=====\s*$")
FENCE = re.compile(r"\s*(?:```|~~~)")
LEFT_OUT = re.compile(r"\s*(?:\.\.\.|…)\s*$")
LABEL = re.compile(r"\s*#[\W_]{0,20}(?:before|after)\b", re.IGNORECASE)

_TYPE = r"(?:[A-Za-z]\w*\()?(?:(?:bf|f|i|u|b|c)\d\w*\[|Sym\()"
TYPED = re.compile(rf":\s*[\"']?{_TYPE}")
ASSIGNMENT = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?::[^=]*)?=(?!=)\s*(?P<none>None\b)?")
STATEMENT = re.compile(
    r"\s*(?:[A-Za-z_]\w*\s*(?::[^=]*(?:[=<>!]=[^=]*)*)?(?:=(?!=)|[-+*/%&|^@]=|//=|\*\*=|<<=|>>=)\s*\S"
    rf"|[A-Za-z_]\w*\s*:\s*[\"']?{_TYPE}"
    r"|[A-Za-z_]\w*\[.*\]\s*=(?!=)"
    r"|return\b)"
)
NODE = re.compile(
    rf"\s*[A-Za-z_]\w*\s*(?::\s*[\"']?{_TYPE}[^=]*(?:[=<>!]=[^=]*)*=(?!=)"
    r"|(?::[^=]*)?=\s*\(?\s*torch\.ops\.\w+\.\w+\.\w+\()"
)
SHORT_CALL = re.compile(
    r"\s*[A-Za-z_]\w*\s*(?::[^=]*)?=\s*(?P<namespace>\w+)\.(?P<op>\w+)(?:\.(?P<overload>\w+))?\("
)
RETURN = re.compile(r"\s*return\b")
COMMENT_OF_NODES = re.compile(r"\s*#.{0,400}File: .+?:\d+ in .+?, code:")

GRAPH = re.compile(r"\s*graph\(\):\s*$")
KERNEL = re.compile(r"\s*#\s*Graph fragment:\s*$")
ROW = re.compile(
    r"\s*%[\w.]+\s*(?::.*?)?=\s*(?:placeholder|PlaceHolder|get_attr|call_\w+|output)\s*\["
)
COMMENTED_ROW = re.compile(
    r"\s*#\s+(?:%[\w.]+\s*(?::.*?)?=\s*(?:placeholder|PlaceHolder|get_attr|call_\w+|output)\s*\["
    r"|return\b)"
)

_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|#.*")


def indent_of(text: str) -> int:
    stripped = text.lstrip()
    return len(text[: len(text) - len(stripped)].expandtabs(8))


def nesting(text: str) -> int:
    """How many more brackets `text` opens than it closes, outside strings and comments."""
    if (
        text.count("(") == text.count(")")
        and text.count("[") == text.count("]")
        and text.count("{") == text.count("}")
    ):
        return 0
    plain = _QUOTED.sub("", text)
    return sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}"))


def is_node(text: str) -> bool:
    """Can the line be nothing but a node of a graph?"""
    if NODE.match(text):
        return True
    call = SHORT_CALL.match(text)
    if call is None:
        return False
    return is_namespace(call["namespace"]) or call["overload"] == "default"


def begins_statement(text: str) -> bool:
    """Can the line be no part of the statement above it, even inside brackets?"""
    return bool(NODE.match(text) or RETURN.match(text))
