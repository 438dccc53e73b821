"""`fusiondsl prove`: what the two sides of each rule are equal up to."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fusiondsl.artifact import write_atomically
from fusiondsl.cli.inputs import load_rules, refuse_input_as_output
from fusiondsl.cli.options import add_paths, common, console_of
from fusiondsl.cli.table import table
from fusiondsl.proof import Prover
from fusiondsl.proof.page import page

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.proof import Verdict


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "prove",
        help="show what is proved about rules",
        description="Replaces every op of a rule by its meaning and compares both sides: they are "
        "equal exactly, or up to named differences, or the first place where they part is shown.",
        parents=[common()],
    )
    add_paths(parser)
    parser.add_argument("--markdown", metavar="FILE", help="write the table to FILE")
    parser.set_defaults(run=run, target=None, tp=None, tp_group=None, fact=[], answer=[])


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    if args.markdown is not None:
        refuse_input_as_output(args.paths, args.markdown)
    program = load_rules(args).program
    prover = Prover(program)
    verdicts = [(rule.name, prover.rule(rule)) for rule in program.rules]
    if verdicts:
        rows = [(name, _outputs(verdict), str(verdict)) for name, verdict in verdicts]
        console.print(table(("rule", "by result", "proof"), rows))
    if args.markdown is not None:
        write_atomically(args.markdown, page(program).encode())
        console.print(f"wrote {args.markdown}")
    console.add(rules=[{"rule": name, **_data(verdict)} for name, verdict in verdicts])
    return console.exit_code()


def _outputs(verdict: Verdict) -> str:
    """What the meanings alone say about each result."""
    return "\n".join(
        f"{output.name}: {', '.join(output.differences) or 'exact'}" for output in verdict.outputs
    )


def _data(verdict: Verdict) -> dict[str, Any]:
    return {
        "level": verdict.level.value,
        "differences": list(verdict.differences),
        "outputs": {output.name: list(output.differences) for output in verdict.outputs},
        "because": None if verdict.because is None else verdict.because.message,
    }
