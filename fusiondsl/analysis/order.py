"""The order of rules."""

from __future__ import annotations

from dataclasses import replace

from fusiondsl.analysis.rules import Built
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.ir.program import Rule


def arrange(built: list[Built], diagnostics: Diagnostics) -> tuple[Rule, ...]:
    rules = sorted((b.rule for b in built), key=lambda r: (-len(r.match), r.name))
    return tuple(replace(r, order=i) for i, r in enumerate(rules))
