"""Entry point: parses arguments, runs one subcommand, turns every failure into an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

import fusiondsl
from fusiondsl.cli.console import Console
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import common
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.pause import collection_paused

COMMANDS: dict[str, str] = {
    "check": "check rule files",
    "fmt": "print rule files in canonical form, or convert them",
    "compile": "compile rules for a target and write an artifact",
    "plan": "say what rules can do in a vLLM engine",
    "prove": "show what is proved about rules",
    "test": "run the examples of rules",
    "apply": "apply rules to a graph dump",
    "graphs": "list the graphs in a log, a trace or another text",
    "why": "say why rules do not fire on a graph dump",
    "audit": "list what a graph dump has fused, and what not",
    "ops": "list declared ops, or show one",
    "docs": "write a page for every rule and op",
    "schema": "print the JSON Schema of YAML rule files",
    "explain": "explain a diagnostic code",
}
"""Every subcommand with its summary; each is a module `fusiondsl.cli.<name>`."""

_TRACEBACK = "FUSIONDSL_TRACEBACK"
_EXIT_CODES = """\
exit codes: 0 fine, 1 findings, 2 usage or unreadable input, 3 rules do not compile,
4 the environment lacks what was required, 101 internal error"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with collection_paused():  # for the imports, which keep what they make
            parser = _parser(words)
        args = parser.parse_args(words)
        if args.format == "html" and not hasattr(args, "html"):
            parser.error(f"`fusiondsl {args.command}` draws no page: --format is pretty or json")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else Exit.USAGE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal need not know every character
            stream.reconfigure(errors="backslashreplace")
    args.console = Console(color=args.color, format=args.format, strict=args.strict)
    try:
        code = _run(args)
        args.console.close()
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered would raise again when the interpreter exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except OSError as error:
        print(f"fusiondsl: cannot write the output: {error.strerror}", file=sys.stderr)
        return Exit.ENVIRONMENT
    return code


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except FusionError as error:
        args.console.diagnostics(error.diagnostics)
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "fusiondsl":
            return _internal_error(args.console, error)
        args.console.complain(f"`fusiondsl {args.command}` needs the package `{error.name}`")
        return Exit.ENVIRONMENT
    except Exception as error:
        return _internal_error(args.console, error)


def _internal_error(console: Console, error: Exception) -> int:
    if os.environ.get(_TRACEBACK) == "1":
        raise error
    line = f"{type(error).__name__}: {error}".splitlines()[0]
    console.complain(
        f"internal error: {line}\n"
        f"This is a bug in fusiondsl {fusiondsl.__version__}. Please report it with the input and "
        f"the output of the same command with {_TRACEBACK}=1."
    )
    return Exit.INTERNAL


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; of subcommands that `words` does not name, only the summary is loaded."""
    parser = argparse.ArgumentParser(
        prog="fusiondsl",
        description="Rules that fuse operations in PyTorch graphs, written as data.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common("html")],
    )
    parser.set_defaults(color="auto", format="pretty", strict=False)
    version = f"fusiondsl {fusiondsl.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name in words:
            import_module(f"fusiondsl.cli.{name}").add_parser(commands)
        else:
            commands.add_parser(name, help=summary)
    return parser
