"""`fusiondsl docs`: a page for every rule and op, as Markdown files in a directory."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fusiondsl.cli.inputs import load_program
from fusiondsl.cli.options import add_paths, common, console_of
from fusiondsl.cli.pages import MARK, pages
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError

if TYPE_CHECKING:
    from fusiondsl.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "docs",
        help="write a page for every rule and op",
        description="Writes Markdown pages for all rules and ops, and an index by source op and by "
        "target. The directory is new, or holds nothing but pages of an earlier run, which are "
        "replaced together.",
        parents=[common()],
    )
    add_paths(parser, artifacts=False)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the directory")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = console_of(args)
    made = pages(load_program(args))
    _replace(Path(args.output), made)
    console.print(f"wrote {len(made)} pages to {args.output}")
    console.add(output=args.output, pages=list(made))
    return console.exit_code()


def _replace(place: Path, made: Mapping[str, str]) -> None:
    """All pages or none: they are written beside `place`, which then changes at once."""
    try:
        place = place.resolve()
        _refuse_other_files(place)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as work:
            _write(Path(work, "new"), made)
            if place.exists():
                place.rename(Path(work, "old"))
            try:
                Path(work, "new").rename(place)
            except BaseException:
                shutil.move(Path(work, "old"), place)
                raise
    except (OSError, ValueError, RuntimeError) as error:
        _refuse("FD644", f"cannot write `{place}`: {getattr(error, 'strerror', None) or error}")


def _write(place: Path, made: Mapping[str, str]) -> None:
    for name, text in made.items():
        page = place / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8", newline="")


def _refuse_other_files(place: Path) -> None:
    """A directory is replaced only where nothing of anyone else is lost."""
    if not place.is_dir():
        if place.exists():
            _refuse("FD646", f"`{place}` is not a directory")
        return
    for folder, _, files in os.walk(place):
        for name in files:
            file = Path(folder, name)
            if not _is_page(file):
                _refuse("FD646", f"`{place}` holds `{file.relative_to(place)}`, which is no page")


def _is_page(file: Path) -> bool:
    with file.open("rb") as content:
        return not file.is_symlink() and content.read(len(MARK)) == MARK.encode()


def _refuse(code: str, message: str) -> NoReturn:
    diagnostics = Diagnostics()
    diagnostics.error(code, message, None)
    raise FusionError(diagnostics, 2)
