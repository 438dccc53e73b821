"""Lines of any text: who wrote each of them, and what stands behind its prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from fusiondsl.diagnostics.source import Source

# Escapes of a terminal; of colours also the remains of copying, where the first character is lost.
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)"
    r"|(?:\x1b|␛|\^\[|\\x1b|\\033|\\u001b)?\[\d{1,3}(?:;\d{1,3}){0,4}m"
    r"|\x1b\[[0-9;?]{0,20}[ -/]?[@-~]"
    r"|\x1b[@-Z\\^_()]"
)
_CONTROLLED = ("\x1b", "[0m", "[m", "[39m")
"""Some of these stand in every text with escapes."""
_MAY_START_A_PREFIX = frozenset("VIWEC[(>0123456789")
_OUTER = re.compile(
    r"(?:> ?)+"
    r"|\((?P<process>[A-Za-z][\w =.:,-]{0,60}?pid=\d+)\) "
    r"|\[(?:rank|default)(?P<rank>\d+)\]: ?"
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,20}Z "
)
_FRAME = r"(?: \[(?:[^\]\s]{0,20}\d/\d[^\]\s]{0,20}|-/-|__compiled_autograd__)\])?"
_LOG = re.compile(
    r"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ (?P<thread>\d+) (?P<file>[^\s:\]]+):\d+\]"
    rf"{_FRAME}(?: \[(?P<artifact>__\w+)\])? ?"
)
_OLD_LOG = re.compile(
    rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]{_FRAME} (?P<file>[\w.]+): \[[A-Z]+\] ?"
)
_ARTIFACT = re.compile(r"__\w+$")
_NOISE = re.compile(
    r"(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL)[: ]"
    r"|\[(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL)\]"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d"
    r"|\S{1,300}\.py:\d+: \w{0,40}Warning:"
    r"|\s+(?:warnings\.)?warn(?:_once)?\("
)
_RANK = re.compile(r"(?:rank=|_TP|_DP)(\d+)")
_MAX_PREFIXES = 4
_MAX_HEADER = 4096


class Lane(NamedTuple):
    """Lines that one writer wrote one after another, whatever came in between."""

    process: str = ""
    rank: str | None = None
    thread: str = ""
    origin: str = ""
    """The file or logger, and the artifact."""
    record: str = ""
    """The artifact or the record of a trace that the lines belong to."""
    number: int = 0
    """Tells records of a trace apart."""


class Line(NamedTuple):
    lane: Lane
    number: int
    start: int
    """Where `text` starts in the line without its control characters."""
    text: str


_PLAIN = Lane()


def lines_of(source: Source) -> Iterator[Line]:
    """The lines of `source` that may belong to a graph, without prefixes and colours."""
    colored = any(mark in source.text for mark in _CONTROLLED)
    splitter = _Splitter()
    for number, raw in enumerate(source.text.split("\n"), start=1):
        text = _CONTROL.sub("", raw) if colored else raw
        line = splitter.line(number, text.rstrip("\r"))
        if line is not None:
            yield line


def columns_of(raw: str) -> list[int]:
    """For each character of a line without control characters, where it stands in `raw`."""
    columns: list[int] = []
    end = 0
    for match in _CONTROL.finditer(raw):
        columns.extend(range(end, match.start()))
        end = match.end()
    columns.extend(range(end, len(raw) + 1))
    return columns


class _Splitter:
    def __init__(self) -> None:
        self._payload: Lane | None = None
        self._records = 0

    def line(self, number: int, text: str) -> Line | None:
        first = text[:1]
        if first == "\t" and self._payload is not None:
            return Line(self._payload, number, 1, text[1:])
        if first not in _MAY_START_A_PREFIX:
            return None if _NOISE.match(text) else Line(_PLAIN, number, 0, text)
        return self._prefixed(number, text)

    def _prefixed(self, number: int, text: str) -> Line | None:
        process, rank, start = "", None, 0
        for _ in range(_MAX_PREFIXES):
            outer = _OUTER.match(text, start)
            if outer is None:
                break
            start = outer.end()
            process = outer["process"] or process
            rank = outer["rank"] or rank
        if process and rank is None:
            found = _RANK.search(process)
            rank = None if found is None else found[1]
        log = _LOG.match(text, start) or _OLD_LOG.match(text, start)
        if log is None:
            if _NOISE.match(text, start):
                return None
            return Line(Lane(process, rank), number, start, text[start:])
        groups = log.groupdict()
        artifact = groups.get("artifact") or _last(groups["file"])
        origin = groups["file"]
        lane = Lane(process, rank, groups.get("thread") or "", origin, artifact)
        start = log.end()
        if text.startswith("{", start):
            self._trace(text[start:], lane)
            return None
        return Line(lane, number, start, text[start:])

    def _trace(self, header: str, lane: Lane) -> None:
        """A header of a structured trace: the lines behind it that start with a tab are its own."""
        self._payload = None
        if '"has_payload"' not in header or len(header) > _MAX_HEADER:
            return
        try:
            record = json.loads(header)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict):
            self._records += 1
            self._payload = lane._replace(record=_record_name(record), number=self._records)


def _last(logger: str) -> str:
    found = _ARTIFACT.search(logger)
    return "" if found is None else found[0]


def _record_name(record: dict[str, object]) -> str:
    """The name of an artifact, or the kind of a record."""
    for kind, content in record.items():
        if isinstance(content, dict):
            name = content.get("name")
            return name if isinstance(name, str) else kind
    return ""
