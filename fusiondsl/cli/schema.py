"""`fusiondsl schema`: the JSON Schema of YAML rule files, for editors."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import common, console_of
from fusiondsl.syntax.schema import json_schema

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "schema",
        help="print the JSON Schema of YAML rule files",
        description="Prints the JSON Schema of YAML rule files, which editors complete and check "
        "with. It describes keys and kinds of values; what the texts in them say is for `check`.",
        parents=[common()],
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    schema = json_schema()
    console.print(json.dumps(schema, indent=2))
    console.add(schema=schema)
    return Exit.OK
