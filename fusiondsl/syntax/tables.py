"""The parser's tables as a file, made when the package is built: a start needs no grammar compiler.

The file names the grammar and the version of lark it was made from. Where either is another one, or
where there is no file, as in a fresh checkout, the parser is made from the grammar.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from fusiondsl.resources import grammar_file, tables_file
from fusiondsl.syntax.grammar import STARTS, Brackets, compile_grammar


def key() -> str:
    """Names what the tables are made from."""
    made_from = (grammar_file().read_text(encoding="utf-8"), STARTS, lark.__version__)
    return hashlib.sha256(repr(made_from).encode()).hexdigest()


def write() -> Path:
    """Makes the file, whole or not at all."""
    parser = compile_grammar(_Callbacks(), Brackets())
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = {name: value for name, value in data["options"].items() if _is_plain(value)}
    text = json.dumps({"key": key(), "data": data, "memo": memo}, separators=(",", ":"))
    place = tables_file()
    temporary = place.with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    return temporary.replace(place)


class _Callbacks:
    """Stands for the builder, whose methods are looked up when the tables are read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *children: children


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | str | list)


def read(builder: Any, brackets: Brackets) -> Lark | None:
    """The parser of the tables; None where they are not there or not of this grammar."""
    try:
        tables = json.loads(tables_file().read_bytes(), object_hook=_numbered)
    except (OSError, ValueError):
        return None
    if not isinstance(tables, dict) or tables.get("key") != key():
        return None
    parser: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
        tables["data"], tables["memo"], transformer=builder, postlex=brackets
    )
    return parser


def _numbered(data: dict[str, Any]) -> dict[Any, Any]:
    """States and symbols are numbers, which JSON writes as texts where they are keys."""
    return {int(name) if name.isdecimal() else name: value for name, value in data.items()}
