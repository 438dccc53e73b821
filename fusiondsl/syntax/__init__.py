"""Text to abstract syntax and back: `.fuse` and YAML rule files.

Importing this imports neither readers nor the syntax tree: a compiled artifact needs none of them.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from fusiondsl.diagnostics.codes.syntax import UNREADABLE
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.syntax.files import SUFFIXES, is_unreadable, read_source
from fusiondsl.syntax.structure import structure

if TYPE_CHECKING:
    from fusiondsl.syntax import ast

__all__ = [
    "SUFFIXES",
    "UNREADABLE",
    "is_unreadable",
    "parse",
    "parse_file",
    "print_module",
    "read_source",
    "structure",
]


def parse(source: Source, diagnostics: Diagnostics) -> ast.Module:
    """Reads a source; the suffix of its name decides between YAML and `.fuse`.

    Always returns a module, with the items that could be read.
    """
    if PurePath(source.name).suffix in (".yaml", ".yml"):
        from fusiondsl.syntax.yaml_reader import parse_module
    else:
        from fusiondsl.syntax.fuse import parse_module
    before = len(diagnostics)
    module = parse_module(source, diagnostics)
    if not module.items and len(diagnostics) == before:
        diagnostics.warning("FD006", "the file declares nothing", Span(source, 0, 0))
    return module


def parse_file(path: str | os.PathLike[str], diagnostics: Diagnostics) -> ast.Module | None:
    """Reads a file; None if it cannot be read at all (a diagnostic of `UNREADABLE` says why)."""
    source = read_source(path, diagnostics)
    return None if source is None else parse(source, diagnostics)


def print_module(module: ast.Module, style: Literal["fuse", "yaml"]) -> str:
    """The canonical text of a module in one of the two spellings, with its comments."""
    from fusiondsl.syntax import printer

    return printer.print_module(module, style)
