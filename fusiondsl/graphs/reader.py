"""Reads FX graphs from the text that `gm.print_readable()` prints."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import fx

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs.build import GraphBuilder
from fusiondsl.graphs.externs import define_missing
from fusiondsl.graphs.parser import parse_graphs
from fusiondsl.graphs.symbols import Symbols
from fusiondsl.graphs.text import GraphText
from fusiondsl.ir.program import Program

MAX_BYTES = 64 << 20
_UNUSABLE = 2
_DEVICE = re.compile(
    r"\]\[[^\[\]]*\]([a-z]+(?::\d+)?)\"|device\(type='([a-z]+)'(?:, index=(\d+))?\)"
)


@dataclass(frozen=True)
class ReadGraph:
    """A graph read from text."""

    gm: fx.GraphModule
    name: str
    symbols: Symbols
    uncertain: tuple[str, ...] = ()
    """What the text left open and how it was read."""


def read(
    source: str | Path, *, program: Program | None = None, device: str | None = None
) -> list[ReadGraph]:
    """The graphs of a file, or of a text (a `str` with a line break).

    `program`: extern ops it declares and this process lacks are defined first, with a fake each;
    other unknown ops become an `OpaqueOp`. `device` is that of values printed without one; by
    default the device the text names most, else the CPU.
    Raises `FusionError` with located diagnostics; nothing in the text is executed.
    """
    if program is not None:
        define_missing(program)
    text = load_text(source)
    diagnostics = Diagnostics()
    parsed = parse_graphs(text, diagnostics)
    if not parsed:
        _refuse(diagnostics, "FD604", f"no FX graph in {text.name}", Span(text, 0, 0))
    default = torch.device(device or _usual_device(text.text))
    graphs = [] if diagnostics.has_errors else _build_all(parsed, default, diagnostics)
    if diagnostics.has_errors:
        raise FusionError(diagnostics, _UNUSABLE)
    return graphs


def _build_all(
    parsed: list[GraphText], device: torch.device, diagnostics: Diagnostics
) -> list[ReadGraph]:
    """Inner graphs are printed after the graph that uses them, so they are built first."""
    built: dict[int, ReadGraph] = {}
    for index in reversed(range(len(parsed))):
        text = parsed[index]
        children = {p.path[-1]: built[i].gm for i, p in _children(parsed, index)}
        builder = GraphBuilder(text, device, diagnostics, children)
        gm = builder.build()
        built[index] = ReadGraph(gm, ".".join(text.path), builder.symbols, tuple(builder.uncertain))
    return [built[index] for index in range(len(parsed))]


def _children(parsed: list[GraphText], index: int) -> list[tuple[int, GraphText]]:
    path = parsed[index].path
    children: list[tuple[int, GraphText]] = []
    for i in range(index + 1, len(parsed)):
        inner = parsed[i].path
        if len(inner) <= len(path) or inner[: len(path)] != path:
            break
        if len(inner) == len(path) + 1:
            children.append((i, parsed[i]))
    return children


def _usual_device(text: str) -> str:
    found = Counter(
        annotated or (f"{kind}:{number}" if number else kind)
        for annotated, kind, number in _DEVICE.findall(text)
    )
    return found.most_common(1)[0][0] if found else "cpu"


# --- the text ----------------------------------------------------------------------------------


def load_text(source: str | Path) -> Source:
    """The file at `source`, or `source` itself where it is a text."""
    if isinstance(source, str) and "\n" in source:
        return _decoded("<string>", source)
    path = Path(source)
    diagnostics = Diagnostics()
    try:
        if path.stat().st_size > MAX_BYTES:
            _refuse(diagnostics, "FD603", f"{path} is larger than {MAX_BYTES >> 20} MiB", None)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        _refuse(diagnostics, "FD600", f"cannot read {str(source)[:200]}: {reason}", None)
    if b"\0" in data:
        _refuse(diagnostics, "FD601", f"{path} is not a text file", None)
    try:
        return _decoded(str(path), data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 (byte {error.start})"
        _refuse(diagnostics, "FD602", message, None)


def _decoded(name: str, text: str) -> Source:
    return Source(name, text.replace("\r\n", "\n").removeprefix("\ufeff"))


def _refuse(diagnostics: Diagnostics, code: str, message: str, span: Span | None) -> NoReturn:
    diagnostics.error(code, message, span)
    raise FusionError(diagnostics, _UNUSABLE)
