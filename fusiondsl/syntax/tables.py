"""The parser's tables as a file, made when the package is built: a start needs no grammar compiler.

The file names the grammar and the version of lark it was made from. Where either is another one, or
where there is no file, as in a fresh checkout, the parser is made from the grammar.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
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
    tables = _numbered_anew({"key": key(), "data": data, "memo": memo})
    text = json.dumps(tables, separators=(",", ":"), sort_keys=True)
    place = tables_file()
    # not beside it: another build may be packing that folder
    temporary = place.parents[1] / f".tables.{os.getpid()}.new"
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


# --- the same tables for the same grammar -----------------------------------------------------


def _numbered_anew(tables: dict[str, Any]) -> dict[str, Any]:
    """Numbers that follow from the grammar; lark's follow from where objects lie in memory."""
    memo = tables["memo"]
    places = _order(memo, key=lambda number: json.dumps(memo[number], sort_keys=True))
    data = _replaced(tables["data"], places)
    table = data["parser"]["parser"]
    symbols = _order(table["tokens"], key=table["tokens"].__getitem__)
    actions = {
        state: {symbols[symbol]: row[symbol] for symbol in sorted(row, key=symbols.__getitem__)}
        for state, row in table["states"].items()
    }
    states = _states(table["start_states"], actions)
    data["parser"]["parser"] = {
        **table,
        "tokens": {symbols[old]: name for old, name in table["tokens"].items()},
        "states": {
            states[old]: {symbol: _action(action, states) for symbol, action in row.items()}
            for old, row in actions.items()
        },
        "start_states": {name: states[old] for name, old in table["start_states"].items()},
        "end_states": {name: states[old] for name, old in table["end_states"].items()},
    }
    return {**tables, "data": data, "memo": {places[old]: memo[old] for old in memo}}


def _order(numbers: Iterable[int], key: Callable[[int], str]) -> dict[int, int]:
    return {old: new for new, old in enumerate(sorted(numbers, key=key))}


def _replaced(data: Any, places: dict[int, int]) -> Any:
    if isinstance(data, dict):
        if "@" in data:
            return {"@": places[data["@"]]}
        return {name: _replaced(value, places) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replaced(value, places) for value in data]
    return data


_SHIFT = 0


def _states(starts: dict[str, int], actions: dict[int, dict[int, Any]]) -> dict[int, int]:
    """States in the order in which they are reached."""
    reached = dict.fromkeys(starts[name] for name in sorted(starts))
    waiting = list(reached)
    for state in waiting:
        following = [to for kind, to in actions[state].values() if kind == _SHIFT]
        waiting += [to for to in dict.fromkeys(following) if to not in reached]
        reached |= dict.fromkeys(following)
    return {old: new for new, old in enumerate(reached)}


def _action(action: list[Any], states: dict[int, int]) -> list[Any]:
    kind, target = action
    return [kind, states[target] if kind == _SHIFT else target]


# --- reading -----------------------------------------------------------------------------------


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
