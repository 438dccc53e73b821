"""What the analysis of a whole set did not look at, because there is too much of it."""

from __future__ import annotations

from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.ir.program import Rule

MOST_REPORTS = 20
"""After so many pairs the rest is only counted."""


class Unfinished:
    """Collects it, to be said at the end."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], tuple[Rule, Rule]] = {}
        self.unasked = 0
        """Pairs of which nobody asked whether one leaves nothing to the other."""
        self.unmet = 0
        """Pairs with equal sources that were not put in order."""

    def cut(self, one: Rule, other: Rule) -> None:
        """Not all ways to lay the source of one over that of the other were looked at."""
        first, second = sorted((one, other), key=lambda rule: rule.name)
        self._pairs[first.name, second.name] = first, second

    def report(self, diagnostics: Diagnostics) -> None:
        pairs = list(self._pairs.values())
        for first, second in pairs[:MOST_REPORTS]:
            diagnostics.warning(
                "FD407",
                f"`{first.name}` and `{second.name}` have too much in common to be compared to "
                "the end",
                second.span,
                labels=[] if first.span is None else [Label(first.span, f"`{first.name}`")],
                notes=["they may overlap, or one may leave nothing to the other, unnoticed"],
                help=f"write `before {first.name}` or `after {first.name}`: then they need not be "
                "compared",
            )
        rest = len(pairs) - MOST_REPORTS
        if rest > 0:
            diagnostics.warning("FD407", f"{rest} more pairs of rules like these", None)
        self._count(diagnostics, self.unmet, "with equal sources were not put in order")
        self._count(diagnostics, self.unasked, "were not asked whether one can never fire")

    def _count(self, diagnostics: Diagnostics, number: int, what: str) -> None:
        if number:
            diagnostics.warning("FD407", f"{number:,} pairs of rules {what}", None)
