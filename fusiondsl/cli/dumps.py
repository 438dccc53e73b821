"""Graphs named on a command line: `FILE`, or `FILE#3` for the third graph in it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import token_range
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.graphs import ReadGraph
    from fusiondsl.ir import Program

_NUMBERED = re.compile(r"(?P<file>.+)#(?P<number>\d{1,9})")

HELP = "the text to read; FILE#3 is the third graph in it, as `fusiondsl graphs FILE` counts"


def add_graph(parser: argparse.ArgumentParser) -> None:
    """The graphs a command looks at, and what they run with."""
    parser.add_argument("--graph", required=True, metavar="FILE", help=HELP)
    parser.add_argument(
        "--tokens",
        type=token_range,
        metavar="LO:HI",
        help="token counts the graph runs with, both included",
    )


def file_of(name: str) -> str:
    """The file that is read for `name`. A file whose name ends as a number does goes first."""
    numbered = _NUMBERED.fullmatch(name)
    return name if numbered is None or Path(name).exists() else numbered["file"]


def read_named(name: str, program: Program | None = None) -> list[tuple[int, ReadGraph]]:
    """The graphs `name` stands for, with their numbers in the file."""
    from fusiondsl.graphs import read

    file = file_of(name)
    found = list(enumerate(read(file, program=program), start=1))
    if file == name:
        return found
    number = int(name[len(file) + 1 :])
    if 1 <= number <= len(found):
        return [found[number - 1]]
    diagnostics = Diagnostics()
    last = f"the last of its {len(found)} graphs is #{len(found)}"
    diagnostics.error("FD618", f"{file} has no graph #{number}", None, help=last)
    raise FusionError(diagnostics, Exit.USAGE)


def readable(console: Console, graphs: Iterable[ReadGraph]) -> list[ReadGraph]:
    """Those whose text has no fault; says what is wrong with the others."""
    built: list[ReadGraph] = []
    for graph in graphs:
        try:
            graph.gm  # noqa: B018  built when it is asked for
        except FusionError as error:
            console.diagnostics(error.diagnostics)
        else:
            built.append(graph)
    return built


def notes(graph: ReadGraph) -> list[str]:
    """What is uncertain about a graph, a line each."""
    unknown = [name.removeprefix("torch.ops.") for name in graph.opaque]
    if not unknown:
        return list(graph.uncertain)
    return [*graph.uncertain, f"unknown here, and so is what they write: {', '.join(unknown)}"]
