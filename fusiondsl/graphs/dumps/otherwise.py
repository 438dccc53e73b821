"""What a text without a graph is instead, as far as one can tell."""

from __future__ import annotations

import re

from fusiondsl.diagnostics.source import Source, Span

_KINDS = (
    (r"@triton\.jit|\btl\.(?:load|store|program_id)\(", "a Triton kernel"),
    (
        r"async_compile\b|^.*\bAOT ID: |\bassert_size_stride\(",
        "code that Inductor generated",
    ),
    (
        r"\b(?:(?:Fixed|Flexible)Layout|\w*Buffer|(?:Fallback|Extern)Kernel|\w*Box)\(\w+",
        "Inductor's IR",
    ),
    (r"__transformed_code_\d|__guard_\d+_for_|___check_\w+", "code and guards of a debugger"),
    (r"\bgraph\(%\w+[^)]*:.*", "TorchScript IR"),
    (r"\b(?:stablehlo|mhlo|linalg|arith|tensor|func|ttir|ttnn)\.\w+|^\s*module @?\w*\s*\{", "MLIR"),
    (r"^\s*HloModule\b|^\s*ENTRY %", "HLO"),
    (r"^\s*%\w+\s*(?:=|:)\s*", "IR of another tool"),
    (r"^\s*def pattern_?\w*\(\):|\bKeywordArg\(|\bCallFunction\(", "patterns of Inductor"),
    (r"^\s*(?:def|class|import|from) \w", "Python code"),
    (r"^Traceback \(most recent call last\)", "a traceback"),
)
_TABLE = tuple((re.compile(pattern, re.MULTILINE), name) for pattern, name in _KINDS)
_LOOKED_AT = 1 << 20


def what_else(source: Source) -> tuple[str, Span] | None:
    """What the text looks like, and the line that says so."""
    text = source.text[:_LOOKED_AT]
    for pattern, name in _TABLE:
        match = pattern.search(text)
        if match is not None:
            return name, _line_of(source, match.start(), match.end())
    return None


def _line_of(source: Source, start: int, end: int) -> Span:
    first = source.text.rfind("\n", 0, end) + 1
    start = max(start, first)
    last = source.text.find("\n", start)
    return Span(source, start, len(source.text) if last < 0 else last)
