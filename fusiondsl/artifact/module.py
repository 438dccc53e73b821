"""Compiled rules as a Python module: the checked program spelt out as calls of its classes.

The module imports nothing but fusiondsl, and neither the rule files nor the parser are needed to
run it. It is for reading and for keeping beside code; an artifact is smaller and faster to load.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusiondsl import __version__, ir
from fusiondsl.artifact.format import file_namer
from fusiondsl.artifact.kinds import Kind, kinds
from fusiondsl.artifact.plain import Entry, encode, is_default
from fusiondsl.diagnostics.source import Span
from fusiondsl.target import Answer, Fact, Target

_WIDTH = 100
_INDENT = "    "
_DEEPEST = 40
"""What nests deeper gets a name; Python itself reads no more than some hundred brackets."""
_LARGEST_COPY = 200
"""What is used twice and has more parts gets a name."""
_POSITIONAL = 2
"""Up to so many fields are written without their names."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A value as Python: `head`, the items between brackets, `tail`; without items `head` alone."""

    head: str
    items: tuple[tuple[str, _Text], ...] = ()
    """Each with what stands before it on its line, as `name=`."""
    tail: str = ""
    depth: int = 0
    size: int = 1
    width: int = 0
    """Of the text on one line."""
    lonely: str = ""
    """What follows the item of a tuple of one."""

    @property
    def flat(self) -> str:
        inside = ", ".join(prefix + item.flat for prefix, item in self.items)
        return self.head + inside + self.lonely + self.tail


def dump_python(program: ir.Program, target: Target) -> str:
    """The module, the same for the same program and target wherever it is made."""
    file_name = file_namer(program)
    program = replace(program, files=tuple(map(file_name, program.files)))
    writer = _Writer(encode(program, file_name))
    lines = [
        f'"""Rules that fusiondsl {__version__} compiled; written by `fusiondsl compile`."""',
        "",
        f"from fusiondsl import {'Answer, ' if target.answers else ''}CompiledRules, Target, ir",
        "from fusiondsl.diagnostics.source import Place",
        "from fusiondsl.dims import expr",
        "",
        *writer.lines("PROGRAM"),
        *_target_lines(target),
        "RULES = CompiledRules(PROGRAM, TARGET)",
    ]
    return "\n".join(lines) + "\n"


def _target_lines(target: Target) -> list[str]:
    parts: list[tuple[str, object]] = [
        ("arch=", target.arch),
        ("tp_size=", target.tp_size),
        ("tp_group=", target.tp_group),
    ]
    items = [(name, _atom(_scalar(value))) for name, value in parts if value is not None]
    if target.facts:
        items.append(("facts=", _facts(target.facts)))
    if target.answers:
        answers = sorted(map(_answer, target.answers), key=lambda text: text.flat)
        lonely = "," if len(answers) == 1 else ""
        items.append(("answers=", _group("(", [("", answer) for answer in answers], ")", lonely)))
    return _laid_out(_group("Target(", items, ")"), "TARGET = ", "", "")


def _facts(facts: Mapping[str, Fact]) -> _Text:
    return _group("{", [(f"{_scalar(n)}: ", _atom(_scalar(facts[n]))) for n in sorted(facts)], "}")


def _answer(answer: Answer) -> _Text:
    parts = [_atom(_scalar(answer.predicate)), _atom(_scalar(answer.value))]
    if answer.args is not None:
        parts.append(_facts(answer.args))
    return _group("Answer(", [("", part) for part in parts], ")")


class _Writer:
    """Turns the entries of a program into statements, the program itself being the last."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._texts: list[_Text] = []
        self._lines: list[str] = []
        self._names: set[str] = set()
        self._files: dict[str, str] = {}
        nodes = [entry[1:] for entry in entries if isinstance(entry, list)]
        self._uses = Counter(place for places in nodes for place in places)

    def lines(self, name: str) -> list[str]:
        for place, entry in enumerate(self._entries[:-1]):
            text = self._text(entry)
            self._texts.append(self._named(place, text) if self._needs_name(place, text) else text)
        return self._lines + _laid_out(self._text(self._entries[-1]), f"{name} = ", "", "")

    def _text(self, entry: Entry) -> _Text:
        if not isinstance(entry, list):
            return _atom(_scalar(entry))
        number, *places = entry
        kind = kinds()[number]
        parts = [self._texts[place] for place in places]
        if kind.cls is tuple:
            return _group("(", [("", part) for part in parts], ")", "," if len(parts) == 1 else "")
        if kind.cls is dict:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return _group("{", [(f"{key.head}: ", value) for key, value in pairs], "}")
        if kind.cls is Span:
            return self._position(places)
        return self._instance(kind, places, parts)

    def _instance(self, kind: Kind, places: Sequence[int], parts: Sequence[_Text]) -> _Text:
        cls, columns = kind.cls, kind.columns
        module = "ir" if getattr(ir, cls.__name__, None) is cls else "expr"
        written = [
            not is_default(self._entries[place], column)
            for column, place in zip(columns, places, strict=True)
        ]
        items = [
            (f"{column.name}=", part)
            for column, part, shown in zip(columns, parts, written, strict=True)
            if shown
        ]
        if len(columns) <= _POSITIONAL:
            last = max((n for n, shown in enumerate(written, 1) if shown), default=0)
            items = [("", part) for part in parts[:last]]
        return _group(f"{module}.{cls.__name__}(", items, ")")

    def _position(self, places: Sequence[int]) -> _Text:
        file, line, column = (self._texts[place].head for place in places)
        if file not in self._files:
            self._files[file] = f"FILE_{len(self._files) + 1}"
            self._lines.append(f"{self._files[file]} = Place({file})")
        return _atom(f"{self._files[file]}.span({line}, {column})")

    # --- names -----------------------------------------------------------------------------------

    def _needs_name(self, place: int, text: _Text) -> bool:
        if not text.items:
            return False
        if text.head in ("ir.OpDecl(", "ir.Rule("):
            return True
        return text.depth >= _DEEPEST or (self._uses[place] > 1 and text.size > _LARGEST_COPY)

    def _named(self, place: int, text: _Text) -> _Text:
        name = self._name(text)
        self._lines += _laid_out(text, f"{name} = ", "", "")
        return _atom(name)

    def _name(self, text: _Text) -> str:
        kind = {"ir.OpDecl(": "op", "ir.Rule(": "rule"}.get(text.head)
        wanted = "part"
        if kind is not None:
            wanted = f"{kind}_{re.sub('[^A-Za-z0-9_]', '_', text.items[0][1].head[1:-1])}"
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        return name


def _atom(text: str) -> _Text:
    return _Text(text, width=len(text))


def _group(head: str, items: Iterable[tuple[str, _Text]], tail: str, lonely: str = "") -> _Text:
    parts = tuple(items)
    if not parts:
        return _atom(head + tail)
    inside = sum(len(prefix) + item.width + len(", ") for prefix, item in parts) - len(", ")
    return _Text(
        head,
        parts,
        tail,
        1 + max(item.depth for _, item in parts),
        1 + sum(item.size for _, item in parts),
        len(head) + inside + len(lonely) + len(tail),
        lonely,
    )


def _laid_out(text: _Text, before: str, after: str, indent: str) -> list[str]:
    """On one line where it fits, else an item a line."""
    if not text.items or len(indent) + len(before) + text.width + len(after) <= _WIDTH:
        return [f"{indent}{before}{text.flat}{after}"]
    lines = [f"{indent}{before}{text.head}"]
    for prefix, item in text.items:
        lines += _laid_out(item, prefix, ",", indent + _INDENT)
    return [*lines, f"{indent}{text.tail}{after}"]


def _scalar(value: object) -> str:
    """Python for a scalar, texts in double quotes."""
    if isinstance(value, float) and value - value != 0:
        return f'float("{value}")'
    if not isinstance(value, str):
        return repr(value)
    text = repr(value)
    if text[0] == '"' or '"' in value:
        return text
    return '"' + text[1:-1].replace("\\'", "'") + '"'
