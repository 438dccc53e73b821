"""Where the grammar and the shipped patterns lie: inside an installed package, or in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

SHIPPED = "fusiondsl:"
"""What the name of a shipped rule file starts with."""


def data_root() -> Path:
    """The directory that holds `grammar/` and `patterns/`."""
    installed = _PACKAGE / "_data"
    return installed if installed.is_dir() else _PACKAGE.parent


def grammar_file() -> Path:
    return data_root() / "grammar" / "fusion.lark"


def tables_file() -> Path:
    """The parser's tables, where the package was built with them."""
    return data_root() / "grammar" / "tables.json"


def patterns_root() -> Path:
    """What `import "fusiondsl:..."` is relative to."""
    return data_root() / "patterns"
