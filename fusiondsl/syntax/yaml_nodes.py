"""YAML text to a plain tree with positions: no aliases, no tags, no types, bounded nesting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.syntax.limits import MAX_NESTING


@dataclass(frozen=True, slots=True)
class Scalar:
    """Any text, never converted: `yes`, `1.0` and `"x"` are the characters they are spelt with."""

    value: str
    style: str
    """`""` plain, `'`, `"`, `|` or `>`."""
    span: Span


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Mapping:
    pairs: tuple[tuple[Scalar, Node], ...]
    span: Span


Node: TypeAlias = Scalar | Listing | Mapping


class _Refused(Exception):
    """Reading cannot go on; the reason is already reported."""


def compose(source: Source, diagnostics: Diagnostics) -> Node | None:
    """The root of the one document in `source`; None if it is empty or not readable."""
    try:
        return _Composer(source, diagnostics).document()
    except _Refused:
        return None
    except yaml.reader.ReaderError as error:
        offset = max(0, min(error.position, len(source.text) - 1))
        span = Span(source, offset, offset + 1)
        message = f"U+{ord(source.text[offset]):04X} is not allowed in YAML"
        diagnostics.error("FD030", message, span)
    except yaml.MarkedYAMLError as error:
        _report(error, source, diagnostics)
    return None


def _report(error: yaml.MarkedYAMLError, source: Source, diagnostics: Diagnostics) -> None:
    mark = error.problem_mark or error.context_mark
    span = _point(source, mark.index if mark is not None else 0)
    message = error.problem or error.context or "not YAML"
    if message.startswith("expected <block end>"):
        message = "the line is indented differently from those it belongs to"
    labels = []
    if error.context and error.context_mark is not None and error.problem:
        labels = [Label(_point(source, error.context_mark.index), error.context)]
    tab = span.text == "\t"
    hint = "indent with spaces: YAML does not allow tabs there" if tab else None
    diagnostics.error("FD030", message, span, labels=labels, help=hint or _quote_hint(span))


def _quote_hint(span: Span) -> str | None:
    if span.text in ("*", "&", "!", "%", "@", "`", "[", "{", "]", "}", ",", ":"):
        return "quote the text, or write it as a block (`key: |`)"
    return None


def _point(source: Source, offset: int) -> Span:
    start = min(offset, len(source.text))
    return Span(source, start, min(start + 1, len(source.text)))


_DIGITS = 8
"""Of the longest escape, the only one that reaches beyond the last character."""


class _Composer:
    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self._source = source
        self._diagnostics = diagnostics
        self._events = self._read(yaml.SafeLoader(source.text))

    def _read(self, loader: yaml.SafeLoader) -> Iterator[yaml.Event]:
        while True:
            try:
                if not loader.check_event():
                    return
                event: yaml.Event = loader.get_event()  # type: ignore[no-untyped-call]
            except (ValueError, OverflowError):  # PyYAML takes any number for a character
                span = Span(self._source, loader.index - len("\\U"), loader.index + _DIGITS)
                message = f"`{span.text}` is no character: the last one is U+10FFFF"
                self._diagnostics.error("FD030", message, span)
                raise _Refused from None
            yield event

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            match event:
                case yaml.DocumentStartEvent():
                    self._start(event, root)
                case yaml.NodeEvent():
                    root = self._node(event, 1)
                case _:
                    pass
        return root

    def _start(self, event: yaml.DocumentStartEvent, root: Node | None) -> None:
        if root is not None:
            self._refuse("a rule file is one document; `---` starts another", event)
        if event.version or event.tags:
            self._refuse("YAML directives are not allowed", event)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if depth > MAX_NESTING:
            message = f"collections nest more than {MAX_NESTING} deep"
            self._diagnostics.error("FD015", message, self._span(event))
            raise _Refused
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(f"aliases (`*{anchor}`) are not allowed", event)
        if anchor is not None:
            self._refuse(f"anchors (`&{anchor}`) are not allowed", event)
        if tag is not None:
            self._refuse(f"tags (`{tag}`) are not allowed", event)
        match event:
            case yaml.ScalarEvent():
                return Scalar(event.value, event.style or "", self._span(event))
            case yaml.SequenceStartEvent():
                return self._listing(event, depth)
            case _:
                return self._mapping(event, depth)

    def _listing(self, start: yaml.Event, depth: int) -> Listing:
        items: list[Node] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return Listing(tuple(items), self._collection(start, event, items))
            items.append(self._node(event, depth + 1))
        raise _Refused

    def _mapping(self, start: yaml.Event, depth: int) -> Mapping:
        pairs: list[tuple[Scalar, Node]] = []
        seen: dict[str, Span] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                values = [value for _, value in pairs]
                return Mapping(tuple(pairs), self._collection(start, event, values))
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if self._is_key(key, seen):
                assert isinstance(key, Scalar)
                pairs.append((key, value))
        raise _Refused

    def _is_key(self, key: Node, seen: dict[str, Span]) -> bool:
        if not isinstance(key, Scalar):
            self._diagnostics.error("FD034", "a key must be text", key.span)
            return False
        if key.value == "<<":
            message = "merge keys (`<<`) are not allowed"
            self._diagnostics.error("FD031", message, key.span)
            return False
        first = seen.setdefault(key.value, key.span)
        if first is key.span:
            return True
        labels = [Label(first, "first given here")]
        self._diagnostics.error(
            "FD032", f"key `{key.value}` is given twice", key.span, labels=labels
        )
        return False

    def _span(self, start: yaml.Event, end: yaml.Event | None = None) -> Span:
        """From `start` to `end`, without the blanks that YAML counts to a block."""
        first = start.start_mark.index if start.start_mark is not None else 0
        stop = (end or start).end_mark
        last = stop.index if stop is not None else first
        text = self._source.text
        while last > first and text[last - 1].isspace():
            last -= 1
        return Span(self._source, first, last)

    def _collection(self, start: yaml.Event, end: yaml.Event, children: Sequence[Node]) -> Span:
        """A block collection ends with its last child: YAML counts comments behind it to it."""
        span = self._span(start, end)
        if getattr(start, "flow_style", False) or not children:
            return span
        return Span(span.source, span.start, children[-1].span.end)

    def _refuse(self, message: str, event: yaml.Event) -> None:
        span = self._span(event)
        end = span.source.text.find("\n", span.start, span.end)
        span = span if end < 0 else Span(span.source, span.start, end)
        self._diagnostics.error("FD031", message, span)
        raise _Refused
