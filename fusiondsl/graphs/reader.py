"""Reads FX graphs from the text that `gm.print_readable()` prints."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Span
from fusiondsl.graphs.build import GraphBuilder
from fusiondsl.graphs.externs import define_missing
from fusiondsl.graphs.files import UNUSABLE, load_text, refuse
from fusiondsl.graphs.parser import parse_graphs
from fusiondsl.graphs.saved import is_saved, loads
from fusiondsl.graphs.symbols import Symbols
from fusiondsl.graphs.text import GraphText
from fusiondsl.ir.program import Program
from fusiondsl.ops.registry import register

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
    """The graphs of a file (printed, or saved by `save`), or of a text (a `str` with line breaks).

    `program`: its own ops are registered first, and extern ops it declares and this process lacks
    are defined, with a fake each; other unknown ops become an `OpaqueOp`. `device` is that of
    values printed without one; by default the device the text names most, else the CPU.
    Raises `FusionError` with located diagnostics; nothing in the text is executed.
    """
    if program is not None:
        define_missing(program)
        register(program)
    text = load_text(source)
    if is_saved(text):
        gm, symbols = loads(text)
        return [ReadGraph(gm, text.name, symbols)]
    diagnostics = Diagnostics()
    parsed = parse_graphs(text, diagnostics)
    if not parsed:
        refuse(diagnostics, "FD604", f"no FX graph in {text.name}", Span(text, 0, 0))
    default = torch.device(device) if device else _usual_device(text.text)
    graphs = [] if diagnostics.has_errors else _build_all(parsed, default, diagnostics)
    if diagnostics.has_errors:
        raise FusionError(diagnostics, UNUSABLE)
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


def _usual_device(text: str) -> torch.device:
    found = Counter(
        annotated or (f"{kind}:{number}" if number else kind)
        for annotated, kind, number in _DEVICE.findall(text)
    )
    try:
        return torch.device(found.most_common(1)[0][0] if found else "cpu")
    except RuntimeError:
        # An annotation names a device that torch does not know: reported where it stands.
        return torch.device("cpu")
