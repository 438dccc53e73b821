"""`fusiondsl test`: every rule matches its own source, and does what its examples say."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from fusiondsl.cli.contracts import show_held, summarise_held
from fusiondsl.cli.dumps import add_tokens
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.inputs import load_rules
from fusiondsl.cli.options import add_paths, add_target, common, console_of
from fusiondsl.diagnostics.suggest import nearest

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.verify.examples import Outcome

_SHOWN = {True: ("good", "ok     "), False: ("bad", "FAILED "), None: ("dim", "skipped")}
_COUNTED = {True: "passed", False: "failed", None: "skipped"}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "test",
        help="run the examples and contracts of rules",
        description="Builds the source of every rule as its examples say and applies the rule to "
        "it, alone; also checks that each rule matches its own source. Then reads the graphs of "
        "contracts and counts the sites of all rules together. What an example or a contract does "
        "not say of the environment is taken from the target options.",
        parents=[common()],
    )
    add_paths(parser)
    parser.add_argument("--rule", metavar="NAME", help="only this rule")
    parser.add_argument("--all", action="store_true", help="print what passed, too")
    add_tokens(parser, "token counts that the graphs of contracts run with, both included")
    add_target(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    loaded = load_rules(args)
    names = [rule.name for rule in loaded.program.rules]
    if args.rule is not None and args.rule not in names:
        return _unknown(console_of(args), args.rule, names)
    from fusiondsl.engine import CompiledRules
    from fusiondsl.graphs.externs import define_missing
    from fusiondsl.verify.contracts import run_contracts
    from fusiondsl.verify.examples import run_rule

    define_missing(loaded.program)
    compiled = CompiledRules(loaded.program, loaded.target)
    outcomes: list[Outcome] = []
    for rule in sorted(loaded.program.rules, key=lambda rule: rule.name):
        if args.rule in (None, rule.name):
            found = list(run_rule(compiled, rule))
            _show(console, found, everything=args.all)
            outcomes += found
    asked = [e for e in loaded.program.expects if args.rule in (None, e.rule)]
    held = list(run_contracts(loaded.program, loaded.target, asked, args.tokens))
    show_held(console, held)
    _summarise(console, outcomes)
    summarise_held(console, held)
    failed = any(outcome.passed is False for outcome in outcomes)
    failed |= not all(one.passed for one in held)
    return Exit.FINDINGS if failed else console.exit_code()


def _unknown(console: Console, name: str, names: list[str]) -> int:
    near = nearest(name, names)
    hint = f"; did you mean `{near}`?" if near else ""
    console.complain(f"no rule is called `{name}`{hint}")
    return Exit.USAGE


def _show(console: Console, outcomes: list[Outcome], *, everything: bool) -> None:
    shown = [outcome for outcome in outcomes if everything or not outcome.passed]
    if shown:
        console.print(console.paint("bold", shown[0].rule))
    for outcome in shown:
        style, word = _SHOWN[outcome.passed]
        at = f" ({outcome.at})" if outcome.at else ""
        console.print(f"  {console.paint(style, word)} {outcome.title}{at}")
        if outcome.message:
            console.print(f"          {outcome.message}")


def _summarise(console: Console, outcomes: list[Outcome]) -> None:
    counts = Counter(_COUNTED[outcome.passed] for outcome in outcomes)
    rules = len({outcome.rule for outcome in outcomes})
    parts = ", ".join(f"{counts[word]} {word}" for word in _COUNTED.values())
    console.print(f"{rules} rules: {parts}")
    console.add(outcomes=[asdict(outcome) for outcome in outcomes], counts=dict(counts))
