"""Answers of a run as JSON, a document and a line for every graph."""

from __future__ import annotations

import json
from collections.abc import Callable

from torch import fx

from fusiondsl.diagnostics.documents import JSON_VERSION
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.live import Foreign
from fusiondsl.engine.why.data import answer_data


def addition(
    rules: CompiledRules, graph: fx.Graph, name: str, tokens: range | None
) -> Callable[[bytes], bytes]:
    """Puts the document of this graph behind the others."""
    answer = rules.why(graph, tokens=tokens)
    graphs = [{"name": name, **answer_data(answer)}]
    document = {"version": JSON_VERSION, "diagnostics": [], "graphs": graphs}
    line = json.dumps(document, ensure_ascii=False) + "\n"
    return lambda before: _checked(before) + line.encode("utf-8", "backslashreplace")


def _checked(before: bytes) -> bytes:
    """What is no line of such a document is left alone."""
    last = before.removesuffix(b"\n").rpartition(b"\n")[2]
    try:
        known = not before or json.loads(last)["version"] == JSON_VERSION
    except (ValueError, TypeError, KeyError):
        known = False
    if not known or (before and not before.endswith(b"\n")):
        raise Foreign(f"it has no lines of version {JSON_VERSION}")
    return before
