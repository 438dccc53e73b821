"""`fusiondsl why`: where rules come close in a graph dump, and all that keeps them from firing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fusiondsl import artifact
from fusiondsl.cli.drawn import add_html, check_page, drawn, files_read, give_page, wants_page
from fusiondsl.cli.dumps import add_graph, notes, readable
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.inputs import load_rules, refuse_input_as_output
from fusiondsl.cli.options import add_paths, add_target, common, console_of, positive
from fusiondsl.diagnostics.suggest import did_you_mean

if TYPE_CHECKING:
    from torch import fx

    from fusiondsl.cli.options import Subparsers
    from fusiondsl.engine import CompiledRules
    from fusiondsl.engine.why import Answer
    from fusiondsl.graphs import ReadGraph


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "why",
        help="say why rules do not fire on a graph dump",
        description="Reads the graphs of a dump and says for every rule where it fires, where it "
        "comes close, and everything that is in the way there, the first cause first. An edit is "
        "named where one makes the rule fire. No graph is changed.",
        parents=[common("html")],
    )
    add_paths(parser)
    add_graph(parser)
    parser.add_argument(
        "--rule", action="append", metavar="NAME", help="only this rule; may be given again"
    )
    parser.add_argument("--site", metavar="NODE", help="only what concerns this node of a graph")
    parser.add_argument(
        "--top",
        type=positive,
        default=3,
        metavar="N",
        help="kinds of near miss shown for a rule, 3 by default",
    )
    parser.add_argument(
        "--repro",
        metavar="FILE",
        help="write a Python script with the part of the graph around the nearest miss, or around "
        "that of --site, which asks the same",
    )
    add_html(parser)
    add_target(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    rules = load_rules(args)
    names = [rule.name for rule in rules.program.rules]
    for name in args.rule or ():
        if name not in names:
            listed = f"there are: {', '.join(names) or 'none'}"
            hint = did_you_mean(name, names) or listed
            console.complain(f"no rule is called `{name}`; {hint}")
            return Exit.USAGE
    if args.repro is not None:
        refuse_input_as_output(files_read(args, rules), args.repro)
    check_page(args, rules, args.repro)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.engine.why.data import answer_data
    from fusiondsl.engine.why.text import lines
    from fusiondsl.graphs.named import read_named

    compiled = CompiledRules(rules.program, rules.target)
    found = [graph for _, graph in read_named(args.graph, rules.program)]
    graphs = readable(console, found)
    asked = [graph for graph in graphs if args.site is None or _has(graph, args.site)]
    if args.site is not None and not asked:
        nodes = [node.name for graph in graphs for node in graph.gm.graph.nodes]
        near = did_you_mean(args.site, nodes)
        console.complain(f"no graph has a node `{args.site}`" + (f"; {near}" if near else ""))
        return Exit.USAGE
    shown, answers, pictures = [], [], []
    for graph in asked:
        if wants_page(args):
            pictures.append(
                drawn(args, compiled, graph, asked=args.rule, site=args.site, top=args.top)
            )
            answer = pictures[-1].answer
        else:
            answer = compiled.why(
                graph.gm, tokens=args.tokens, rules=args.rule, site=args.site, top=args.top
            )
        answers.append((graph.gm, answer))
        shown.append({"name": graph.name, **answer_data(answer)})
        console.print(console.paint("bold", f"{graph.name}: {len(graph.gm.graph.nodes)} nodes"))
        for note in notes(graph):
            console.print(f"  read        {note}")
        text = lines(
            answer, top=args.top, everything=bool(args.rule or args.site), paint=console.paint
        )
        for line in text:
            console.print(line)
    console.add(graphs=shown)
    if args.repro is not None and not _write_repro(args, compiled, answers):
        return Exit.USAGE
    if len(graphs) < len(found):
        return Exit.USAGE
    if wants_page(args):
        give_page(args, pictures)
    return console.exit_code()


def _write_repro(
    args: argparse.Namespace,
    compiled: CompiledRules,
    answers: list[tuple[fx.GraphModule, Answer]],
) -> bool:
    """The nearest miss as a script; False where there is nothing to write."""
    from fusiondsl.engine.why.repro import nearest, script

    console = console_of(args)
    miss = nearest(answers)
    if miss is None:
        console.complain(f"no rule comes close: there is nothing to write to `{args.repro}`")
        return False
    text = script(miss, compiled, args.paths, args.tokens)
    if text is None:
        where = f"{miss.rule} at {miss.site.node}"
        console.complain(f"the saved graph says something else of {where}: nothing is written")
        return False
    artifact.write_atomically(args.repro, text.encode("utf-8", "backslashreplace"))
    console.print(f"wrote {args.repro}: {miss.rule} at {miss.site.node}")
    console.add(repro={"file": args.repro, "rule": miss.rule, "node": miss.site.node})
    return True


def _has(graph: ReadGraph, node: str) -> bool:
    return any(node == found.name for found in graph.gm.graph.nodes)
