"""`fusiondsl graphs`: which graphs a log, a trace or another text holds."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from fusiondsl.cli.dumps import HELP, notes
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import common, console_of
from fusiondsl.cli.table import table
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.ir.contracts import file_of

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.graphs import ReadGraph

_COLUMNS = ("#", "graph", "lines", "printed as", "stage", "rank", "record", "")


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "graphs",
        help="list the graphs in a log, a trace or another text",
        description="Lists the FX graphs in a text: logs of TORCH_LOGS, traces, files of tlparse, "
        "depyf and vLLM, printed graphs and programs, pasted issues. One that is named, as FILE#3, "
        "is read in full: its ops, and what the text leaves open.",
        parents=[common()],
    )
    parser.add_argument("graph", metavar="FILE", help=HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from fusiondsl.graphs.named import read_named

    console = console_of(args)
    found = read_named(args.graph)
    if file_of(args.graph) != args.graph:
        return _show_one(console, *found[0])
    rows = [_row(number, graph) for number, graph in found]
    used = [i for i in range(len(_COLUMNS)) if any(row[i] for row in rows)]
    console.print(table([_COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows]))
    console.add(graphs=[_data(number, graph) for number, graph in found])
    return console.exit_code()


def _row(number: int, graph: ReadGraph) -> list[str]:
    first, last = graph.lines
    lines = f"{first}-{last}"
    note = "" if graph.complete else "part of a graph"
    place = (graph.kind.value, graph.stage or "", graph.rank or "", graph.record or "")
    return [str(number), graph.name, lines, *place, note]


def _data(number: int, graph: ReadGraph) -> dict[str, Any]:
    first, last = graph.lines
    return {
        "number": number,
        "name": graph.name,
        "kind": graph.kind.value,
        "first_line": first,
        "last_line": last,
        "complete": graph.complete,
        "stage": graph.stage,
        "rank": graph.rank,
        "record": graph.record,
    }


def _show_one(console: Console, number: int, graph: ReadGraph) -> int:
    try:
        nodes = list(graph.gm.graph.nodes)
    except FusionError as error:
        console.diagnostics(error.diagnostics)
        return Exit.USAGE
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    ops = Counter(_op(node) for node in nodes if node.op not in ("placeholder", "output"))
    first, last = graph.lines
    console.print(console.paint("bold", f"{graph.name}: lines {first}-{last}, {len(nodes)} nodes"))
    for note in notes(graph):
        console.print(f"  read        {note}")
    console.print(f"  inputs      {', '.join(inputs) or 'none'}")
    for op, count in sorted(ops.items()):
        console.print(f"  {count:>9} x {op}")
    console.add(
        graphs=[
            {
                **_data(number, graph),
                "nodes": len(nodes),
                "inputs": inputs,
                "ops": dict(sorted(ops.items())),
                "uncertain": list(graph.uncertain),
                "opaque": list(graph.opaque),
            }
        ]
    )
    return console.exit_code()


def _op(node: Any) -> str:
    from fusiondsl.graphs.targets import name_of

    if node.op == "call_function":
        return name_of(node.target).removeprefix("torch.ops.")
    return f"{node.op.removeprefix('call_')} {node.target}"
