"""`fusiondsl fmt`: prints rule files in canonical form, or converts them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fusiondsl.artifact import replace_file
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.options import common, console_of
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source
from fusiondsl.syntax import ast, is_unreadable, parse, parse_file, print_module, structure
from fusiondsl.syntax.files import directory_files
from fusiondsl.syntax.yaml_keys import check_keys

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers


@dataclass(frozen=True)
class _Output:
    source: Path
    path: Path
    """Where the text goes; another file than `source` where the spelling changes."""
    text: str
    changed: bool


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "fmt",
        help="print rule files in canonical form, or convert them",
        description="Rewrites rule files in their canonical form; comments are kept. With `--to` "
        "the other spelling is written to a new file beside the old one. Nothing is written if "
        "any file has a syntax error.",
        parents=[common()],
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="rule files or directories")
    parser.add_argument("--to", choices=("fuse", "yaml"), help="convert to this spelling")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if something would change"
    )
    group.add_argument("--stdout", action="store_true", help="print the text, write no file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    diagnostics = Diagnostics()
    outputs = list(_outputs(_files(args.paths), args.to, diagnostics))
    if not (args.check or args.stdout):
        _refuse_overwriting(outputs, diagnostics)
    if diagnostics.has_errors:
        raise FusionError(diagnostics, Exit.USAGE if _is_usage(diagnostics) else Exit.COMPILE)
    console.diagnostics(diagnostics)
    changed = [output for output in outputs if output.changed]
    console.add(changed=[str(output.path) for output in changed])
    if args.stdout:
        console.add(texts={str(output.path): output.text for output in outputs})
        for output in outputs:
            console.print(output.text.removesuffix("\n"))
        return console.exit_code()
    if args.check:
        for output in changed:
            console.print(f"would change {output.path}")
        return Exit.FINDINGS if changed else console.exit_code()
    for output in changed:
        _write(output)
        console.print(f"wrote {output.path}")
    return console.exit_code()


def _write(output: _Output) -> None:
    try:
        replace_file(output.path.resolve(), output.text.encode())
    except OSError as error:
        diagnostics = Diagnostics()
        message = f"cannot write `{output.path}`: {error.strerror or error}"
        diagnostics.error("FD008", message, None)
        raise FusionError(diagnostics, Exit.ENVIRONMENT) from None


def _is_usage(diagnostics: Diagnostics) -> bool:
    return is_unreadable(diagnostics) or any(item.code == "FD007" for item in diagnostics)


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name)
        # `Path.is_dir` has no answer for a name that is too long.
        yield from directory_files(path) if os.path.isdir(path) else [path]  # noqa: PTH112


def _outputs(
    files: Iterable[Path], to: Literal["fuse", "yaml"] | None, diagnostics: Diagnostics
) -> Iterator[_Output]:
    for path in files:
        found = Diagnostics()
        module = parse_file(path, found)
        if module is not None and to == "yaml":
            check_keys(module, found)
        diagnostics.extend(found)
        if module is not None and not found.has_errors:
            yield _output(path, module, to)


def _output(path: Path, module: ast.Module, to: Literal["fuse", "yaml"] | None) -> _Output:
    own: Literal["fuse", "yaml"] = "fuse" if path.suffix == ".fuse" else "yaml"
    style = to or own
    text = print_module(module, style)
    _prove_same(module, text, style)
    if style != own:
        return _Output(path, path.with_suffix(f".{style}"), text, True)
    return _Output(path, path, text, path.read_bytes() != text.encode())


def _prove_same(module: ast.Module, text: str, style: str) -> None:
    """A file is only replaced by text that says the same."""
    diagnostics = Diagnostics()
    again = parse(Source(f"printed.{style}", text), diagnostics)
    if diagnostics.has_errors or _in_any_order(module) != _in_any_order(again):
        raise AssertionError(f"the printed text of {module.source.name} does not read back")


def _in_any_order(module: ast.Module) -> list[str]:
    return sorted(repr(structure(item)) for item in module.items)


def _refuse_overwriting(outputs: Iterable[_Output], diagnostics: Diagnostics) -> None:
    for output in outputs:
        if output.path != output.source and output.path.exists():
            fix = "remove it first, or print with `--stdout`"
            message = f"`{output.path}` already exists"
            diagnostics.error("FD007", message, None, help=fix)
