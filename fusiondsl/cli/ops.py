"""`fusiondsl ops`: the ops that rule files declare, or all that is said about one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusiondsl import ir
from fusiondsl.cli.declaration import (
    condition_text,
    declaration_data,
    details,
    differences_text,
    kind_of,
    signature,
)
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.inputs import load_rules
from fusiondsl.cli.options import SHIPPED, common, console_of
from fusiondsl.cli.table import table
from fusiondsl.diagnostics.suggest import nearest

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console
    from fusiondsl.cli.options import Subparsers

_FILE_SUFFIXES = (".fuse", ".yaml", ".yml", ".fused")


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "ops",
        help="list declared ops, or show one",
        description="Lists the ops that the files declare (the shipped patterns where no file is "
        "given). With names of ops, prints their declarations in full.",
        parents=[common()],
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PATH | NAME",
        help="rule files, directories, an artifact; or names of ops",
    )
    parser.add_argument(
        "--kind",
        choices=("extern", "axiom", "semantic", "target", "op"),
        help="list only these",
    )
    parser.add_argument(
        "--check-aiter",
        nargs="?",
        const="",
        metavar="PATH",
        help="compare what the ops call in AITER with its source: of the installed package, or of "
        "the tree at PATH (as --check-aiter=PATH); nothing of it is imported",
    )
    parser.set_defaults(run=run, target=None, tp=None, tp_group=None, fact=[], answer=[])


def run(args: argparse.Namespace) -> int:
    names = [word for word in args.words if not _is_path(word)]
    args.paths = [word for word in args.words if _is_path(word)] or [SHIPPED]
    ops = load_rules(args).program.ops
    for name in names:
        if name not in ops:
            return _unknown(console_of(args), name, ops)
    wanted = names or [name for name, op in ops.items() if args.kind in (None, kind_of(op))]
    chosen = {name: ops[name] for name in wanted}
    if args.check_aiter is not None:
        from fusiondsl.cli.drift import show_drift  # most runs compare nothing

        return show_drift(console_of(args), chosen.values(), args.check_aiter)
    if names:
        _show(args, chosen)
    else:
        _list(args, chosen)
    return console_of(args).exit_code()


def _is_path(word: str) -> bool:
    """Names of ops have dots, so only a known suffix, a separator or an existing file is a path."""
    if word.startswith(SHIPPED) or word.endswith(_FILE_SUFFIXES):
        return True
    return "/" in word or Path(word).exists()


def _unknown(console: Console, name: str, ops: dict[str, ir.OpDecl]) -> int:
    near = nearest(name, ops)
    hint = f"; did you mean `{near}`?" if near else ""
    console.complain(f"no op is called `{name}`{hint}")
    return Exit.USAGE


def _list(args: argparse.Namespace, ops: dict[str, ir.OpDecl]) -> None:
    console = console_of(args)
    rows = [(n, kind_of(op), _forms(op), _availability(op), _kernels(op)) for n, op in ops.items()]
    console.print(table(("op", "kind", "forms", "available", "kernels"), rows))
    console.print()
    console.print(f"{len(ops)} ops; `fusiondsl ops NAME` shows one")
    console.add(ops=[_summary(name, op) for name, op in ops.items()])


def _forms(op: ir.OpDecl) -> str:
    return " ".join(form.name for form in op.forms)


def _availability(op: ir.OpDecl) -> str:
    return "\n".join(map(condition_text, op.available))


def _kernels(op: ir.OpDecl) -> str:
    return "\n".join(impl.location for impl in op.impls)


def _summary(name: str, op: ir.OpDecl) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind_of(op),
        "torch_name": op.torch_name,
        "overload": op.overload,
        "signature": signature(op),
        "doc": op.doc,
        "forms": [form.name for form in op.forms],
        "available": [condition_text(condition) for condition in op.available],
        "impls": [impl.location for impl in op.impls],
        "differs": differences_text(op.differs),
        "declared": None if op.span is None else str(op.span),
    }


def _show(args: argparse.Namespace, ops: dict[str, ir.OpDecl]) -> None:
    console = console_of(args)
    console.print("\n\n".join("\n".join(details(op)) for op in ops.values()))
    console.add(
        ops=[{**_summary(n, op), "declaration": declaration_data(op)} for n, op in ops.items()]
    )
