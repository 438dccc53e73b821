"""Prints modules in either spelling, canonically: printing twice changes nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fusiondsl.syntax import ast, print_fuse, print_yaml
from fusiondsl.syntax.comments import Comments

Style: TypeAlias = Literal["fuse", "yaml"]


def print_module(module: ast.Module, style: Style) -> str:
    """The text of `module`; comments of its source are kept where they belong.

    YAML groups items by kind, so there the order of a mixed module changes; nothing depends on it.
    """
    if style == "yaml":
        return print_yaml.module(module, Comments(module, for_yaml=True))
    return print_fuse.module(module, Comments(module))
