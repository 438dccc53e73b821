"""Graphs by name: `FILE`, or `FILE#3` for the third graph in it."""

from __future__ import annotations

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.graphs.reader import ReadGraph, read
from fusiondsl.ir import Program
from fusiondsl.ir.contracts import file_of

_UNREADABLE = 2


def read_named(name: str, program: Program | None = None) -> list[tuple[int, ReadGraph]]:
    """The graphs `name` stands for, with their numbers in the file."""
    file = file_of(name)
    return select(name, file, list(enumerate(read(file, program=program), start=1)))


def select(name: str, file: str, found: list[tuple[int, ReadGraph]]) -> list[tuple[int, ReadGraph]]:
    """Those of `found`, all graphs of `file`, that `name` stands for."""
    if file == name:
        return found
    number = int(name[len(file) + 1 :])
    if 1 <= number <= len(found):
        return [found[number - 1]]
    diagnostics = Diagnostics()
    last = f"the last of its {len(found)} graphs is #{len(found)}"
    diagnostics.error("FD618", f"{file} has no graph #{number}", None, help=last)
    raise FusionError(diagnostics, _UNREADABLE)
