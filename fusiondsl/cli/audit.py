"""`fusiondsl audit`: what a graph dump still has to fuse, and contracts that say how much."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fusiondsl.cli.contracts import (
    OwnContracts,
    counted,
    failure_data,
    unchecked_data,
    verdict,
)
from fusiondsl.cli.dumps import add_graph, notes, readable
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.inputs import load_rules
from fusiondsl.cli.options import add_paths, add_target, common, console_of
from fusiondsl.cli.table import table
from fusiondsl.ir.contracts import file_of

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.engine.why import Audit, Failure, Region

_HEADERS = ("rule", "fires", "already fused", "taken", "close")
_STYLES = {"fires": "good", "already fused": "good", "not fused": "bad"}
_WIDTH = 15


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="list what a graph dump has fused, and what not",
        description="Reads the graphs of a dump and lists the regions that rules fuse, those that "
        "are fused already, also by hand, and those that are not, with the first cause. A table "
        "counts the sites of every rule. Exit code 1 where a contract does not hold: one of "
        "`--expect`, or one of the rule files about this graph and target.",
        parents=[common()],
    )
    add_paths(parser)
    add_graph(parser)
    parser.add_argument(
        "--expect", metavar="FILE", help="YAML file with the site counts each graph must show"
    )
    add_target(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    rules = load_rules(args)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.engine.why import Contracts, failures, read_contracts
    from fusiondsl.graphs.named import read_named

    found = read_named(args.graph, rules.program)
    contracts = Contracts(())
    if args.expect is not None:
        names = [rule.name for rule in rules.program.rules]
        file = file_of(args.graph)
        everything = found if file == args.graph else read_named(file, rules.program)
        known = [(number, graph.name) for number, graph in everything]
        contracts = read_contracts(args.expect, names, known)
    compiled = CompiledRules(rules.program, rules.target)
    graphs = readable(console, [graph for _, graph in found])
    shown: list[dict[str, Any]] = []
    failing: list[tuple[str, Failure]] = []
    audits: dict[int, Audit] = {}
    for number, graph in found:
        if graph not in graphs:
            continue
        audits[number] = audit = compiled.audit(graph.gm, tokens=args.tokens)
        shown.append({"name": graph.name, **audit_data(audit)})
        console.print(console.paint("bold", f"{graph.name}: {_summary(audit)}"))
        for note in notes(graph):
            console.print(f"  {'read':{_WIDTH}}{note}")
        for line in _lines(audit, console):
            console.print(line)
        mine = contracts.of(graph.name, number)
        broken = list(failures(mine, audit))
        failing += [(graph.name, failure) for failure in broken]
        if mine:
            verdict(console, "contract", broken)
        elif args.expect is not None:
            console.print("contract: none for this graph")
        console.print()
    console.add(graphs=shown)
    if len(graphs) < len(found):
        return Exit.USAGE
    own = OwnContracts(rules, args.graph, args.tokens, found)
    own.check(console, audits)
    failing += own.failures
    if args.expect is not None or own.are_there:
        console.add(failures=failure_data(failing))
    if own.are_there:
        console.add(unchecked=unchecked_data(own.unchecked))
    return Exit.FINDINGS if failing else console.exit_code()


# --- for people ----------------------------------------------------------------------------------


def _summary(audit: Audit) -> str:
    if not audit.regions:
        return "no fusable region"
    states = [(state, audit.count(state)) for state in _STYLES]
    parts = ", ".join(f"{count} {state}" for state, count in states if count)
    return f"{counted(len(audit.regions), 'fusable region')}: {parts}"


def _lines(audit: Audit, console: Console) -> Iterator[str]:
    """Every region, alike ones once, and the table."""
    for rule, state in dict.fromkeys((r.rule, r.state) for r in audit.regions):
        regions = [r for r in audit.regions if (r.rule, r.state) == (rule, state)]
        yield from _alike(regions, console)
    rows = [line for line in audit.coverage if not line.is_empty]
    if rows:
        yield ""
        cells = [(r.rule, *map(str, (r.fires, r.fused, r.taken, r.close))) for r in rows]
        yield table(_HEADERS, cells)
    empty = [line.rule for line in audit.coverage if line.is_empty]
    if empty:
        yield f"near nowhere: {', '.join(empty)}"


def _alike(regions: list[Region], console: Console) -> Iterator[str]:
    from fusiondsl.engine.why.answer import groups_of
    from fusiondsl.engine.why.text import in_short

    first = regions[0]
    word = f"{first.state:{_WIDTH}}"
    for group in groups_of(region.site for region in regions):
        site = group.first
        more = f" and {counted(len(group.sites) - 1, 'more site')}" if group.sites[1:] else ""
        part = f" ({site.matched} of {counted(site.calls, 'op')})" if site.matched else ""
        line = f", {site.source}" if site.source else ""
        painted = console.paint(_STYLES[first.state], word)
        yield f"  {painted}{first.rule} at {site.node}{more}{part}{line}"
        mine = [region for region in regions if region.site in group.sites]
        if mine[0].cause is not None:
            yield f"  {'':{_WIDTH}}{in_short(mine[0].site)}"
        also = dict.fromkeys(rule for region in mine for rule in region.also)
        if also:
            yield f"  {'':{_WIDTH}}close as well: {', '.join(also)}"


# --- as data -------------------------------------------------------------------------------------


def audit_data(audit: Audit) -> dict[str, Any]:
    return {
        "regions": [_region_data(region) for region in audit.regions],
        "coverage": [asdict(line) for line in audit.coverage],
    }


def _region_data(region: Region) -> dict[str, Any]:
    from fusiondsl.engine.why.data import cause_data

    site = region.site
    return {
        "rule": region.rule,
        "state": region.state,
        "node": site.node,
        "nodes": list(site.nodes),
        "source": site.source,
        "matched": site.matched,
        "calls": site.calls,
        "cause": None if region.cause is None else cause_data(region.cause),
        "also": list(region.also),
    }
