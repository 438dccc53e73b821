"""Python files as trees of syntax, whatever they hold."""

from __future__ import annotations

import ast
import stat
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_BYTES = 4 << 20
"""Of a file; AITER's largest has a tenth of that."""


class Unreadable(Exception):
    """Why a file is not Python that can be read."""


def statements(path: Path) -> list[ast.stmt]:
    """The statements of a module, those under `if`, `try` and `with` among them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the style of what is read
            tree = ast.parse(_text(path))
        return list(_flat(tree.body))
    except OSError as error:
        raise Unreadable(error.strerror or type(error).__name__) from None
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply") from None
    except ValueError as error:
        raise Unreadable(str(error)[:200]) from None


def _text(path: Path) -> bytes:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("no file")
    if found.st_size > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES >> 20} MiB")
    with path.open("rb") as file:
        return file.read(MAX_BYTES)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat((*node.body, *node.orelse))
        elif isinstance(node, ast.With):
            yield from _flat(node.body)
        elif isinstance(node, ast.Try):
            handled = (statement for handler in node.handlers for statement in handler.body)
            yield from _flat((*node.body, *handled, *node.orelse, *node.finalbody))
        else:
            yield node
