"""Contracts: how many sites graphs must show. They are tests, and no part of what rules do."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from fusiondsl.diagnostics.source import Span
from fusiondsl.target import Fact

Given: TypeAlias = tuple[tuple[str, Fact], ...]

_NUMBERED = re.compile(r"(?P<file>.+)#(?P<number>\d{1,9})")


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect norm_quant == 61 in graph "graphs/decoder.txt#3" { env.arch = "gfx950" }`."""

    rule: str
    sites: int
    """That fire or are fused already."""
    graph: str
    """As it is written."""
    path: str
    """The same from where the process runs; it may end in `#` and a number."""
    given: Given = ()
    """Facts of the target and answers of predicates, by name."""
    tokens: tuple[int, int] | None = None
    """With how many tokens the graph runs, both included."""
    span: Span | None = field(default=None, compare=False, repr=False)
    graph_span: Span | None = field(default=None, compare=False, repr=False)


def file_of(name: str) -> str:
    """The file that is read for `name`. A file whose name ends as a number does goes first."""
    numbered = _NUMBERED.fullmatch(name)
    # `os.path`, because `Path.exists` raises where a name is too long
    return name if numbered is None or os.path.exists(name) else numbered["file"]  # noqa: PTH110
