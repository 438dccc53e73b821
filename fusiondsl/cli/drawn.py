"""Pages with pictures of graphs: `--html FILE`, and `--format html` on standard output."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusiondsl.artifact import write_atomically
from fusiondsl.cli.dumps import notes
from fusiondsl.cli.inputs import Rules, refuse_input_as_output, refuse_one_file_for_two
from fusiondsl.cli.options import console_of
from fusiondsl.ir.contracts import file_of

if TYPE_CHECKING:
    from fusiondsl.engine import CompiledRules
    from fusiondsl.graphs import ReadGraph
    from fusiondsl.pictures import Picture


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page with the graphs before and after, every site marked; it needs nothing "
        "but a browser",
    )


def wants_page(args: argparse.Namespace) -> bool:
    return args.html is not None or console_of(args).html


def check_page(args: argparse.Namespace, rules: Rules, other: str | None) -> None:
    """The page replaces nothing that is read, nor the `other` file that is written."""
    if args.html is None:
        return
    refuse_input_as_output(files_read(args, rules), args.html)
    if other is not None:
        refuse_one_file_for_two("the page and the other output", other, args.html)


def files_read(args: argparse.Namespace, rules: Rules) -> list[str]:
    """The graph's file and all rule files, those of directories and imports too."""
    program = rules.program
    spans = [*(rule.span for rule in program.rules), *(op.span for op in program.ops.values())]
    return [*args.paths, file_of(args.graph), *{s.source.name for s in spans if s is not None}]


def drawn(
    args: argparse.Namespace, rules: CompiledRules, graph: ReadGraph, **asked: Any
) -> Picture:
    from fusiondsl.pictures import draw

    name, known = graph.name, notes(graph)
    return draw(rules, graph.gm, name=name, notes=known, tokens=args.tokens, **asked)


def give_page(args: argparse.Namespace, pictures: Sequence[Picture]) -> None:
    """The page of all graphs, to where it was asked for."""
    from fusiondsl.pictures import page

    console = console_of(args)
    text = page(pictures, title=f"{', '.join(args.paths)} on {args.graph}")
    if console.html:
        console.page(text)
    if args.html is not None:
        write_atomically(args.html, text.encode("ascii"))
        console.print(f"wrote {args.html}")
        console.add(page=args.html)
