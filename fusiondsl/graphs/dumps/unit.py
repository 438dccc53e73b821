"""What the index keeps of a printed graph: its lines, and the graphs nested in its class."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from fusiondsl.graphs.dumps.excerpt import Piece
from fusiondsl.graphs.dumps.lines import Lane


class Kind(Enum):
    """How a graph is printed."""

    MODULE = "module"
    """As code, with the line of its `forward`."""
    FRAGMENT = "fragment"
    """Statements alone."""
    NODES = "nodes"
    """One line a node, as `str(graph)`."""
    KERNEL = "kernel"
    """One line a node, in the comment above a kernel."""
    SAVED = "saved"
    """As `fusiondsl.graphs.save` writes it."""


@dataclass
class Entry:
    """One graph. `first` and `last` are indices of pieces of its unit."""

    path: tuple[str, ...]
    first: int
    indent: int
    last: int = -1
    complete: bool = False


@dataclass
class Unit:
    """A graph that stands alone, with the graphs inside it."""

    kind: Kind
    lane: Lane
    banner: str = ""
    pieces: list[Piece] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
