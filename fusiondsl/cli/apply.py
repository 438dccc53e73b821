"""`fusiondsl apply`: rewrites a graph dump, and says what fired and what did not."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from fusiondsl.artifact import write_atomically
from fusiondsl.cli.drawn import add_html, check_page, drawn, give_page, wants_page
from fusiondsl.cli.dumps import add_graph, notes, readable
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.inputs import load_rules, refuse_input_as_output
from fusiondsl.cli.options import add_paths, add_target, common, console_of
from fusiondsl.ir.contracts import file_of

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.engine import Refusal, Report
    from fusiondsl.graphs import ReadGraph
    from fusiondsl.proof import Verdict


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "apply",
        help="apply rules to a graph dump",
        description="Reads the graphs of a dump (a log, a trace, what `gm.print_readable()` "
        "prints), rewrites them, and reports every site that was rewritten and every one that "
        "came close.",
        parents=[common("html")],
    )
    add_paths(parser)
    add_graph(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help="write the rewritten graphs")
    parser.add_argument(
        "--all", action="store_true", help="also sites where only one op of a rule was found"
    )
    add_html(parser)
    add_target(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    if args.output is not None:
        refuse_input_as_output([*args.paths, file_of(args.graph)], args.output)
    rules = load_rules(args)
    check_page(args, rules, args.output)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.graphs.named import read_named

    compiled = CompiledRules(rules.program, rules.target)
    found = [graph for _, graph in read_named(args.graph, rules.program)]
    graphs = readable(console, found)
    if len(graphs) < len(found) and (args.output is not None or wants_page(args)):
        return Exit.USAGE
    pictures = []
    if wants_page(args):
        pictures = [drawn(args, compiled, graph, rewrite=True) for graph in graphs]
        reports = [picture.report for picture in pictures]
    else:
        reports = [compiled.apply(graph.gm, tokens=args.tokens) for graph in graphs]
    for graph, report in zip(graphs, reports, strict=True):
        _show(console, graph, report, compiled.proof, everything=args.all)
    if args.output is not None:
        write_atomically(args.output, _readable(graphs).encode())
        console.print(f"wrote {args.output}")
    if pictures:
        give_page(args, pictures)
    console.add(
        graphs=[
            {"name": graph.name, **_report_data(report, compiled.proof)}
            for graph, report in zip(graphs, reports, strict=True)
        ],
        output=args.output,
    )
    return console.exit_code() if len(graphs) == len(found) else Exit.USAGE


def _show(
    console: Console,
    graph: ReadGraph,
    report: Report,
    proof: Callable[[str], Verdict],
    *,
    everything: bool,
) -> None:
    nodes = f"{report.nodes_before} -> {report.nodes_after} nodes"
    console.print(console.paint("bold", f"{graph.name}: {nodes}"))
    for note in notes(graph):
        console.print(f"  read        {note}")
    for rule, count in report.counts.items():
        console.print(f"  {console.paint('good', 'fired')}       {count} x {rule}")
        for site in report.fired:
            if site.rule == rule:
                forms = f" ({', '.join(site.forms)})" if site.forms else ""
                differs = f", differs by {', '.join(site.differs)}" if site.differs else ""
                console.print(f"              at {site.node}{forms}{differs}")
        console.print(f"              proof: {proof(rule)}")
    for refusal in report.refused if everything else report.close():
        console.print(f"  {console.paint('bad', 'refused')}     {_refusal_text(refusal)}")
    for item in report.ineligible:
        console.print(f"  {console.paint('dim', 'ineligible')}  {item.rule}: {item.message}")
    console.print()


def _refusal_text(refusal: Refusal) -> str:
    label = f" [{refusal.label}]" if refusal.label else ""
    return (
        f"{refusal.rule} at {refusal.node}: {refusal.kind.value}{label}: {refusal.message}"
        f" ({refusal.matched} of {refusal.calls} ops)"
    )


def _readable(graphs: list[ReadGraph]) -> str:
    """The outermost graphs as text; each prints the graphs inside it."""
    names = {graph.name for graph in graphs}
    outer = [g for g in graphs if g.name.rpartition(".")[0] not in names]
    texts = [
        graph.gm.print_readable(print_output=False, include_stride=True, include_device=True)
        for graph in outer
    ]
    return "\n\n".join(text.rstrip() for text in texts) + "\n"


def _report_data(report: Report, proof: Callable[[str], Verdict]) -> dict[str, Any]:
    return {
        "fired": [asdict(site) for site in report.fired],
        "refused": [asdict(refusal, dict_factory=_plain) for refusal in report.refused],
        "ineligible": [asdict(item) for item in report.ineligible],
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "counts": report.counts,
        "proofs": {rule: str(proof(rule)) for rule in report.counts},
    }


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.value if isinstance(value, Enum) else value for key, value in items}
