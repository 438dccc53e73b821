"""Finds the comments of a source and the node each belongs to, so that printing keeps them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import yaml

from fusiondsl.diagnostics.escape import escaped
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.syntax import ast

_FUSE = re.compile(r'"(?:\\.|[^"\\\r\n])*"|(#[^\n]*)')
_YAML = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_NOT_IN_YAML = re.compile(
    "[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML does not take in a comment, or takes for its end."""
_TRAILING = re.compile(r"[ \t,;)}\]'\"]*(#[^\n]*)")


class Comments:
    """Every comment is handed out once; `rest` gives those nobody asked for.

    `for_yaml`: with the characters a comment of YAML cannot have made visible.
    """

    def __init__(self, module: ast.Module, *, for_yaml: bool = False) -> None:
        self._source = source = module.source
        self._ends = sorted(item.span.end for item in module.items)
        self._is_yaml = source.name.endswith((".yaml", ".yml"))
        self._free: dict[int, str] = dict(_found(source))
        if for_yaml:
            self._free = {at: _NOT_IN_YAML.sub(_shown, text) for at, text in self._free.items()}

    @property
    def count(self) -> int:
        """How many were not handed out yet."""
        return len(self._free)

    def leading(self, span: Span, keep_blank: bool = False) -> list[str]:
        """The comment lines above the line where `span` starts; an empty text is a blank line.

        `keep_blank`: also where the blank line stands between the comments and `span`.
        """
        if not self._is_ours(span) or not self._starts_line(span):
            return []
        found = self._above(span.line)
        apart = keep_blank and found and not self._source.line(span.line - 1).strip()
        return [*found, ""] if apart else found

    def _is_ours(self, span: Span) -> bool:
        return span.source is self._source and bool(self._free)

    def _starts_line(self, span: Span) -> bool:
        line, column = self._source.position(span.start)
        before = " \t-[{\"'" if self._is_yaml else " \t"
        return not self._source.line(line)[: column - 1].strip(before)

    def _above(self, line: int) -> list[str]:
        found: list[str] = []
        while line > 1:
            line -= 1
            text = self._source.line(line)
            if text.strip() and self._offset(line) not in self._free:
                break
            found.append(self._free.pop(self._offset(line), ""))
        return list(_without_outer_blanks(reversed(found)))

    def _offset(self, line: int) -> int:
        """Where the first character of a line that is not blank stands."""
        text = self._source.line(line)
        return self._source.line_start(line) + len(text) - len(text.lstrip())

    def trailing(self, span: Span) -> str:
        """The comment behind `span` on the same line."""
        if not self._is_ours(span):
            return ""
        found = _TRAILING.match(self._source.text, span.end)
        return "" if found is None else self._free.pop(found.start(1), "")

    def closing(self, span: Span) -> list[str]:
        """The comment lines between the end of `span`, the last of a block, and what follows."""
        if not self._is_ours(span):
            return []
        line, column = self._source.position(span.end)
        if self._source.line(line)[column - 1 :].partition("#")[0].strip(" \t;"):
            return []
        indent = self._column(self._offset(span.line))
        found: list[str] = []
        while line < self._source.line_count:
            line += 1
            text = self._source.line(line)
            if not text.strip():
                continue
            offset = self._offset(line)
            if offset not in self._free or (self._is_yaml and self._column(offset) < indent):
                break
            found.append(self._free.pop(offset))
        return found

    def _column(self, offset: int) -> int:
        return self._source.position(offset)[1]

    def header(self, span: Span) -> list[str]:
        """What is left between the item before `span` and `span`: comments above a YAML key."""
        if not self._is_ours(span):
            return []
        before = bisect_right(self._ends, span.start)
        return self.inside(Span(span.source, self._ends[before - 1] if before else 0, span.start))

    def inside(self, span: Span) -> list[str]:
        """All comments left in `span`."""
        if not self._is_ours(span):
            return []
        offsets = [offset for offset in sorted(self._free) if span.start <= offset < span.end]
        return [self._free.pop(offset) for offset in offsets]

    def rest(self) -> list[str]:
        return self.inside(Span(self._source, 0, len(self._source.text) + 1))


def _shown(found: re.Match[str]) -> str:
    return escaped(found[0])


def _without_outer_blanks(lines: Iterator[str]) -> Iterator[str]:
    """Several blank lines become one, those at the ends none."""
    pending = started = False
    for line in lines:
        if line:
            if pending and started:
                yield ""
            yield line
            started, pending = True, False
        else:
            pending = True


def _found(source: Source) -> Iterator[tuple[int, str]]:
    if source.name.endswith((".yaml", ".yml")):
        yield from _found_in_yaml(source.text)
        return
    for match in _FUSE.finditer(source.text):
        if match[1] is not None:
            yield match.start(1), match[1].rstrip()


def _found_in_yaml(text: str) -> Iterator[tuple[int, str]]:
    """Comments of YAML itself, and of the language inside its blocks."""
    hidden: list[tuple[int, int]] = []
    previous = ""
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if not isinstance(token, yaml.ScalarToken):
            continue
        if not token.plain and (token.style != "|" or previous == "doc"):
            hidden.append((token.start_mark.index, token.end_mark.index))
        previous = token.value
    spans = iter(hidden)
    start, end = next(spans, (len(text), len(text)))
    for match in _YAML.finditer(text):
        while end <= match.start():
            start, end = next(spans, (len(text) + 1, len(text) + 1))
        if not start <= match.start() < end:
            yield match.start(), match[0].rstrip()
