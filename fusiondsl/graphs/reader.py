"""Reads FX graphs from any text that holds them: what `print_readable` prints, logs, traces."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import fx

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs import dumps
from fusiondsl.graphs.build import GraphBuilder
from fusiondsl.graphs.externs import define_missing
from fusiondsl.graphs.files import UNUSABLE, load_text, refuse
from fusiondsl.graphs.progress import shown
from fusiondsl.graphs.saved import is_saved, loads
from fusiondsl.graphs.symbols import Symbols
from fusiondsl.graphs.text import GraphText
from fusiondsl.ir.program import Program
from fusiondsl.ops.registry import register

_DEVICE = re.compile(
    r"\]\[[^\[\]]*\]([a-z]+(?::\d+)?)\"|device\(type='([a-z]+)'(?:, index=(\d+))?\)"
)


@dataclass(frozen=True)
class Built:
    """What a graph is once it is built."""

    gm: fx.GraphModule
    symbols: Symbols
    uncertain: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadGraph:
    """A graph found in a text. It is built when `gm` or what belongs to it is first asked for.

    That raises `FusionError` with located diagnostics where the text of the graph is faulty.
    """

    name: str
    """The heading above the graph, or the names of its classes."""
    kind: dumps.Kind
    lines: tuple[int, int]
    """The first and the last line in the text."""
    complete: bool
    """False where the text ends before the graph does, or begins after it."""
    stage: str | None = None
    """Where in compilation it was printed, where the text says so."""
    rank: str | None = None
    record: str | None = None
    """In a trace, the name of the artifact or the kind of the record."""
    _make: _Unbuilt = field(repr=False, kw_only=True)
    _index: int = field(default=0, repr=False, kw_only=True)

    @property
    def gm(self) -> fx.GraphModule:
        return self._built.gm

    @property
    def symbols(self) -> Symbols:
        return self._built.symbols

    @property
    def uncertain(self) -> tuple[str, ...]:
        """What the text left open and how it was read."""
        return self._built.uncertain

    @property
    def opaque(self) -> tuple[str, ...]:
        """Ops that this process lacks: what they write to is unknown."""
        return self._built.opaque

    @property
    def _built(self) -> Built:
        built = self._make.built[self._index]
        if isinstance(built, FusionError):
            raise built
        return built


def read(
    source: str | Path, *, program: Program | None = None, device: str | None = None
) -> list[ReadGraph]:
    """The graphs of a file (printed, or saved by `save`), or of a text (a `str` with line breaks).

    `program`: its own ops are registered first, and extern ops it declares and this process lacks
    are defined, with a fake each; other unknown ops become an `OpaqueOp`. `device` is that of
    values printed without one; by default the device the graph's text names most, else the CPU.
    Raises `FusionError` with located diagnostics; nothing in the text is executed.
    """
    if program is not None:
        define_missing(program)
        register(program)
    text = load_text(source)
    if is_saved(text):
        gm, symbols = loads(text)
        made = _Loaded(Built(gm, symbols))
        lines = (1, text.line_count)
        return [ReadGraph(text.name, dumps.Kind.SAVED, lines, complete=True, _make=made)]
    with shown(text.name, len(text.text)) as progress:
        units = dumps.index(text, progress)
    if not units:
        _refuse(text)
    return [graph for unit in units for graph in _graphs(text, unit, device)]


def _refuse(text: Source) -> None:
    diagnostics = Diagnostics()
    otherwise = dumps.what_else(text)
    if otherwise is None:
        refuse(diagnostics, "FD604", f"no FX graph in {text.name}", Span(text, 0, 0))
    what, span = otherwise
    message = f"no FX graph in {text.name}: this line is {what}"
    diagnostics.error("FD617", message, span, help=_EXPECTED)
    raise FusionError(diagnostics, UNUSABLE)


_EXPECTED = "an FX graph is printed as `def forward(self, ..)`, `graph():` or statements of nodes"


def _graphs(text: Source, unit: dumps.Unit, device: str | None) -> list[ReadGraph]:
    made = _Unit(text, unit, device)
    stage = dumps.stage_of(unit.banner, unit.lane.record, text.name)
    return [
        ReadGraph(
            name=_name(unit, entry),
            kind=unit.kind,
            lines=(unit.pieces[entry.first].number, unit.pieces[entry.last].number),
            complete=entry.complete and unit.kind is not dumps.Kind.FRAGMENT,
            stage=stage,
            rank=unit.lane.rank,
            record=unit.lane.record if unit.lane.number else None,
            _make=made,
            _index=index,
        )
        for index, entry in enumerate(unit.entries)
    ]


def _name(unit: dumps.Unit, entry: dumps.Entry) -> str:
    return ".".join((unit.banner, *entry.path[1:]) if unit.banner else entry.path)


class _Unbuilt:
    """Graphs of one unit, built together when the first of them is asked for."""

    @property
    def built(self) -> list[Built | FusionError]:
        raise NotImplementedError


class _Loaded(_Unbuilt):
    def __init__(self, built: Built) -> None:
        self._built = built

    @property
    def built(self) -> list[Built | FusionError]:
        return [self._built]


class _Unit(_Unbuilt):
    def __init__(self, source: Source, unit: dumps.Unit, device: str | None) -> None:
        self._source = source
        self._unit = unit
        self._device = device

    @cached_property
    def built(self) -> list[Built | FusionError]:
        """Inner graphs are printed after the graph that uses them, so they are built first."""
        excerpt = dumps.Excerpt(self._source, self._unit.pieces)
        device = torch.device(self._device) if self._device else _usual_device(excerpt.text)
        found = [Diagnostics() for _ in self._unit.entries]
        parsed = dumps.parse(self._unit, excerpt, found)
        built: dict[int, Built | FusionError] = {}
        for index in reversed(range(len(parsed))):
            inner = {p.path[-1]: built[i] for i, p in _children(parsed, index)}
            built[index] = _build(parsed[index], device, found[index], inner)
        return [built[index] for index in range(len(parsed))]


def _build(
    text: GraphText,
    device: torch.device,
    diagnostics: Diagnostics,
    inner: dict[str, Built | FusionError],
) -> Built | FusionError:
    children = {name: graph.gm for name, graph in inner.items() if isinstance(graph, Built)}
    builder = GraphBuilder(text, device, diagnostics, children)
    gm = None if diagnostics.has_errors else builder.build()
    if gm is None or diagnostics.has_errors:
        return FusionError(diagnostics, UNUSABLE)
    faulty = [f"`{name}` has faults and is left out" for name in inner if name not in children]
    uncertain = (*builder.uncertain, *faulty)
    return Built(gm, builder.symbols, uncertain, tuple(builder.opaque))


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
