"""`fusiondsl check`: everything that can be known about rule files without running them."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import add_paths, common, console_of
from fusiondsl.diagnostics.diagnostic import Diagnostics, Severity
from fusiondsl.rules import check, exit_code_of, in_text_order

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers
    from fusiondsl.ir.program import Program


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "check",
        help="check rule files",
        description="Names, types, shapes, lints, and the order of rules. Needs no torch; with "
        "`--torch` also compares declared ops with those that are installed, and looks whether "
        "every rule matches its own source.",
        parents=[common()],
    )
    add_paths(parser, artifacts=False)
    parser.add_argument(
        "--torch", action="store_true", help="compare with the ops of the installed torch libraries"
    )
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="with --torch: import this first, so that its ops exist (vllm, vllm._custom_ops)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    diagnostics = Diagnostics()
    program = check(args.paths, diagnostics)
    installed = args.torch and not diagnostics.has_errors
    if installed:
        for module in args.modules:
            import_module(module)
        _check_installed(program, diagnostics)
    console.diagnostics(in_text_order(diagnostics))
    errors = [item for item in diagnostics if item.severity is Severity.ERROR]
    console.add(ops=len(program.ops), rules=len(program.rules), files=list(program.files))
    if errors:
        return Exit.FINDINGS if installed else exit_code_of(diagnostics)
    console.print(_summary(program))
    return console.exit_code()


def _check_installed(program: Program, diagnostics: Diagnostics) -> None:
    from fusiondsl.verify.installed import check_installed

    check_installed(program, diagnostics)


def _summary(program: Program) -> str:
    counts = ((program.files, "file"), (program.ops, "op"), (program.rules, "rule"))
    told = (*counts, (program.expects, "contract")) if program.expects else counts
    parts = [f"{len(items)} {noun}{'' if len(items) == 1 else 's'}" for items, noun in told]
    return f"checked {', '.join(parts)}"
