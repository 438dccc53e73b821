"""What a subcommand says: for people, as one JSON document, or as a page.

For people, results go to standard output and diagnostics to standard error. With `--format json`
standard output is one object: `version`, `diagnostics`, and the parts the subcommand adds. With
`--format html` it is a page, and nothing where the subcommand comes to none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from fusiondsl.cli.exits import Exit
from fusiondsl.diagnostics.diagnostic import Diagnostic, Severity
from fusiondsl.diagnostics.documents import JSON_VERSION
from fusiondsl.diagnostics.source import Span

_STYLES = {"good": "\x1b[32m", "bad": "\x1b[31m", "dim": "\x1b[2m", "bold": "\x1b[1m"}
_RESET = "\x1b[0m"


class Console:
    def __init__(
        self, *, color: str = "auto", format: str = "pretty", strict: bool = False
    ) -> None:
        self.json = format == "json"
        self.html = format == "html"
        self.strict = strict
        self._color = color
        self._document: dict[str, Any] = {"version": JSON_VERSION, "diagnostics": []}
        self._seen: list[Diagnostic] = []
        self._page = ""

    # --- saying --------------------------------------------------------------------------------

    def print(self, text: str = "") -> None:
        """A line of the result, for people only."""
        if not (self.json or self.html):
            print(text)

    def page(self, page: str) -> None:
        """The page that is the result."""
        self._page = page

    def add(self, **parts: object) -> None:
        """Parts of the JSON document."""
        self._document.update(parts)

    def paint(self, style: str, text: str) -> str:
        """`text` in a style of standard output, where that shows colours."""
        return f"{_STYLES[style]}{text}{_RESET}" if self._colored(sys.stdout) else text

    def diagnostics(self, items: Iterable[Diagnostic]) -> None:
        found = list(items)
        self._seen += found
        if self.json:
            self._document["diagnostics"] += [diagnostic_data(item) for item in found]
        elif found:
            from fusiondsl.diagnostics.render import render_all  # most runs find nothing

            sys.stdout.flush()
            print(render_all(found, color=self._colored(sys.stderr)), end="", file=sys.stderr)

    def complain(self, text: str) -> None:
        """Says what stands in the way of the command and has no place in a file."""
        if self.json:
            self.add(error=text)
        else:
            print(f"fusiondsl: {text}", file=sys.stderr)

    def close(self) -> None:
        """Writes the JSON document or the page, once everything is in it."""
        if self.json:
            print(json.dumps(self._document, indent=2, ensure_ascii=False))
        elif self.html:
            print(self._page, end="")

    # --- asking --------------------------------------------------------------------------------

    def exit_code(self) -> int:
        """0, or with `--strict` the code for findings where there was a warning."""
        warned = any(item.severity is Severity.WARNING for item in self._seen)
        return Exit.FINDINGS if self.strict and warned else Exit.OK

    def _colored(self, stream: TextIO) -> bool:
        if self._color != "auto":
            return self._color == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain


def diagnostic_data(item: Diagnostic) -> dict[str, Any]:
    """A diagnostic as JSON; lines and columns count from 1, ends are exclusive."""
    return {
        "code": item.code,
        "severity": item.severity.value,
        "message": item.message,
        "location": _location(item.span),
        "labels": [{"message": x.message, "location": _location(x.span)} for x in item.labels],
        "notes": list(item.notes),
        "help": item.help,
        "witness": None
        if item.witness is None
        else {"graph": item.witness.graph, "target": dict(item.witness.target)},
    }


def _location(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }
