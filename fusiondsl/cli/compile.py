"""`fusiondsl compile`: the plan of a rule set for a target, and its artifact."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from fusiondsl import artifact, ir
from fusiondsl.cli.inputs import Rules, load_rules, refuse_input_as_output, refuse_one_file_for_two
from fusiondsl.cli.options import add_paths, add_target, common, console_of
from fusiondsl.cli.table import table
from fusiondsl.target import Answer, Target

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.engine import PlanRow


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile rules for a target and write an artifact",
        description="Prints each rule with its order, its token range, its proof, and the forms it "
        "matches or the reason why it cannot fire on the target.",
        parents=[common()],
    )
    add_paths(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the artifact to FILE")
    parser.add_argument(
        "--python", metavar="FILE", help="write a Python module to FILE whose `RULES` are the rules"
    )
    add_target(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for output in filter(None, (args.output, args.python)):
        refuse_input_as_output(args.paths, output)
    if args.output is not None and args.python is not None:
        refuse_one_file_for_two("the artifact and the module", args.output, args.python)
    rules = load_rules(args)
    from fusiondsl.engine import CompiledRules

    rows = CompiledRules(rules.program, rules.target).rows()
    written = _write(args, rules)
    _show(args, rules, rows, written)
    return console_of(args).exit_code()


def _write(args: argparse.Namespace, rules: Rules) -> dict[str, int]:
    """The files that were written, with their sizes; all are made before the first is written."""
    makers = ((args.output, artifact.dumps), (args.python, _python))
    made = {output: make(rules.program, rules.target) for output, make in makers if output}
    for output, data in made.items():
        artifact.write_atomically(output, data)
    return {output: len(data) for output, data in made.items()}


def _python(program: ir.Program, target: Target) -> bytes:
    return artifact.dump_python(program, target).encode("utf-8", "backslashreplace")


def _show(
    args: argparse.Namespace, rules: Rules, rows: list[PlanRow], written: dict[str, int]
) -> None:
    console = console_of(args)
    headers = ("order", "rule", "eligible", "tokens", "proof", "forms, or why not")
    if rows:
        console.print(table(headers, [_cells(row) for row in rows]))
        console.print()
    eligible = sum(row.eligible for row in rows)
    console.print(f"{eligible} of {len(rows)} rules eligible for {describe(rules.target)}")
    for output, size in written.items():
        console.print(f"wrote {output} ({size:,} bytes)")
    console.add(
        target=rules.target.known(),
        answers=[asdict(answer) for answer in rules.target.answers],
        rules=[asdict(row) for row in rows],
        output=args.output,
        python=args.python,
    )


def _cells(row: PlanRow) -> tuple[str, ...]:
    last = "\n".join(row.forms) if row.eligible else row.reason
    return str(row.order), row.rule, "yes" if row.eligible else "no", row.tokens, row.proof, last


def describe(target: Target) -> str:
    """The target in a sentence."""
    parts = [f"{name} = {_value(value)}" for name, value in target.known().items()]
    parts += [f"{_question(answer)} = {_value(answer.value)}" for answer in target.answers]
    return ", ".join(parts) or "a target of which nothing is known"


def _question(answer: Answer) -> str:
    if answer.args is None:
        return answer.predicate
    asked = (f"{name} = {_value(value)}" for name, value in answer.args.items())
    return f"{answer.predicate}({', '.join(asked)})"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
