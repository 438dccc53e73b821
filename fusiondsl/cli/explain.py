"""`fusiondsl explain FD###`: what a diagnostic code means and what to do about it."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import common, console_of
from fusiondsl.cli.table import table
from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.suggest import nearest

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers

_WIDTH = 88


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="explain a diagnostic code",
        description="Prints what a diagnostic code means; without a code, the list of all.",
        parents=[common()],
    )
    parser.add_argument("code", nargs="?", metavar="CODE", help="as FD101")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    if args.code is None:
        console.print(table(("code", "meaning"), [(code, CODES[code].title) for code in CODES]))
        console.add(codes={code: CODES[code].title for code in CODES})
        return Exit.OK
    code = args.code.strip().upper()
    if code not in CODES:
        return _unknown(console_of(args), args.code, code)
    info = CODES[code]
    console.print(_text(code))
    console.add(code=code, title=info.title, explanation=info.explanation, example=info.example)
    return Exit.OK


def _unknown(console: Console, written: str, code: str) -> int:
    near = nearest(code, CODES)
    hint = f"did you mean `{near}`?" if near else "`fusiondsl explain` lists all"
    console.complain(f"no diagnostic has the code `{written}`; {hint}")
    return Exit.USAGE


def _text(code: str) -> str:
    info = CODES[code]
    parts = [f"{code}: {info.title}"]
    parts += [_wrapped(paragraph) for paragraph in info.explanation.split("\n\n")]
    if info.example is not None:
        example = textwrap.indent(info.example.strip("\n"), "    ")
        parts.append(f"A text that provokes it:\n\n{example}")
    return "\n\n".join(parts)


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, _WIDTH, break_long_words=False, break_on_hyphens=False)
