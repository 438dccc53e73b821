"""Rules that had to fire and did not, with what kept each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fusiondsl.engine.report import Refusal, Report

_SHOWN = 3
"""Reasons a rule, the closest sites first."""


class RequiredRuleError(RuntimeError):
    """A required rule fired in no graph; the message says why."""


def check_required(required: Iterable[str], reports: Sequence[Report]) -> None:
    """Raises `RequiredRuleError` where a required rule fired in none of the graphs."""
    fired = {rule for report in reports for rule in report.counts}
    missing = [rule for rule in required if rule not in fired]
    if missing:
        lines = [f"required, but fired in none of {len(reports)} graphs:" if reports else _NONE]
        lines += [f"  {rule}: {reason}" for rule in missing for reason in why_not(rule, reports)]
        raise RequiredRuleError("\n".join(lines))


_NONE = "required, but no graph was compiled:"


def why_not(rule: str, reports: Sequence[Report]) -> tuple[str, ...]:
    """Why the rule fired in none of the graphs, one line a reason."""
    for report in reports:
        for item in report.ineligible:
            if item.rule == rule:
                return (item.message,)
    near = sorted(_refusals(rule, reports), key=lambda refusal: -refusal.matched)
    if not near:
        return ("nothing like its source stands in a graph",) if reports else ("nothing ran it",)
    shown = [_reason(refusal) for refusal in near[:_SHOWN]]
    rest = len(near) - len(shown)
    return (*shown, f"and at {rest} more sites") if rest else tuple(shown)


def _refusals(rule: str, reports: Iterable[Report]) -> Iterator[Refusal]:
    for report in reports:
        yield from report.refusals_of(rule)


def _reason(refusal: Refusal) -> str:
    return f"at {refusal.node}: {refusal.kind.value}: {refusal.message}"
