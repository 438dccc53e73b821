"""Graphs named on a command line: `FILE`, or `FILE#3` for the third graph in it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fusiondsl.cli.options import token_range
from fusiondsl.diagnostics.diagnostic import FusionError

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.graphs import ReadGraph

HELP = "the text to read; FILE#3 is the third graph in it, as `fusiondsl graphs FILE` counts"


def add_graph(parser: argparse.ArgumentParser) -> None:
    """The graphs a command looks at, and what they run with."""
    parser.add_argument("--graph", required=True, metavar="FILE", help=HELP)
    add_tokens(parser, "token counts the graph runs with, both included")


def add_tokens(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--tokens", type=token_range, metavar="LO:HI", help=text)


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
