"""The demo's outcome in lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fusiondsl.demo.limits import U32, Limit, limit_of, share, steps, whole_limit
from fusiondsl.demo.run import TOKENS, Measured, Outcome
from fusiondsl.demo.sites import Quantity, SiteComparison
from fusiondsl.engine.report import Refusal, RefusalKind, Report
from fusiondsl.verify.numerics import Comparison, PackedComparison

_FOUND = ("differ", "by at most", "scales differ by", "mean error", "largest error")
_UNITS: dict[Quantity, str] = {"f32": " ulp", "bf16": " ulp", "fp8": " step", "mxfp4": " step"}


def lines(outcome: Outcome, families: Mapping[str, str]) -> Iterator[str]:
    yield outcome.config.title
    for report in outcome.reports:
        yield ""
        yield f"Graph: {report.nodes_before} nodes before, {report.nodes_after} after."
        yield ""
        fired = [(str(n), rule, families[rule]) for rule, n in report.counts.items()]
        yield from _table(("fired", "rule", "family"), fired)
        refused = list(_refused(report))
        if refused:
            yield ""
            yield from _table(("refused", "rule", "because"), refused)
    yield ""
    yield from _control(outcome)
    yield ""
    yield "Each fused call against what it replaces, on the same inputs: the worst of a rule's"
    yield "calls / limit. Errors are of values, dequantised, relative to the largest. Limits follow"
    yield "from counting roundings; of shares and mean errors they are expectations, else bounds."
    yield ""
    yield from _table(("rule", "result", *_FOUND), _site_rows(outcome))
    yield ""
    yield "The whole decoder against eager / limit to first order, and eager whose inputs are moved"
    yield "by one ulp:"
    yield ""
    yield from _table(("tokens", "output", "of", *_FOUND), _whole_rows(outcome))
    if outcome.config.output == "none":
        yield ""
        yield from _in_ulps(outcome)


def _refused(report: Report) -> Iterator[tuple[str, str, str]]:
    """One line a rule and kind of reason: how many sites, and the reason at the first."""
    sites: dict[tuple[str, RefusalKind], list[Refusal]] = {}
    for refusal in report.close():
        if refusal.kind is not RefusalKind.STRUCTURE:
            sites.setdefault((refusal.rule, refusal.kind), []).append(refusal)
    for (rule, kind), refusals in sorted(sites.items(), key=lambda item: item[0][0]):
        first = refusals[0]
        yield str(len(refusals)), rule, f"{kind.value}: {first.message} (at {first.node})"


def _control(outcome: Outcome) -> Iterator[str]:
    differ = {tokens: m for tokens, m in outcome.control.items() if not m.equal}
    if not differ:
        at = " and ".join(map(str, outcome.control))
        yield f"Compiled without rules, against eager: equal bit for bit at {at} tokens."
        return
    yield "Compiled without rules, against eager:"
    yield ""
    rows = [row for tokens in differ for row in _measured_rows(tokens, "control", differ[tokens])]
    yield from _table(("tokens", "output", "of", *_FOUND), rows)


def _site_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    calls: dict[tuple[str, str], list[SiteComparison]] = {}
    for tokens in TOKENS:
        for site in outcome.sites[tokens]:
            calls.setdefault((site.rule, site.results), []).append(site)
    for (rule, results), sites in sorted(calls.items()):
        worst = _worst([site.found for site in sites])
        unit = _UNITS.get(sites[0].quantity, "")
        yield rule, results, *_cells(worst, limit_of(sites[0]), unit)


def _worst(found: Sequence[Any]) -> Any:
    """The largest of each number, over comparisons of one kind."""
    names = [field.name for field in fields(found[0])]
    numbers = {name: max(getattr(f, name) for f in found) for name in names if name != "equal"}
    if "equal" in names:
        numbers["equal"] = all(f.equal for f in found)
    return type(found[0])(**numbers)


def _whole_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for tokens in TOKENS:
        sites, nudge, nudged = outcome.sites[tokens], outcome.nudge[tokens], outcome.nudged[tokens]
        limits = (
            whole_limit(sites, nudge, nudged.output),
            whole_limit(sites, nudge, nudged.norm),
        )
        yield from _measured_rows(tokens, "fused", outcome.fused[tokens], limits)
        yield from _measured_rows(tokens, "moved", nudged)


def _in_ulps(outcome: Outcome) -> Iterator[str]:
    """An ulp of the largest value is at least `U32` of it."""
    for tokens in TOKENS:
        found = outcome.fused[tokens].output
        if isinstance(found, Comparison):
            limit = whole_limit(
                outcome.sites[tokens], outcome.nudge[tokens], outcome.nudged[tokens].output
            )
            ulps, most = found.max_error / U32, limit.max_error / U32
            yield f"{tokens} tokens: within {ulps:.1f} ulp of the largest value, limit {most:.1f}"


_NONE = (Limit(math.inf, scale=math.inf),) * 2


def _measured_rows(
    tokens: int, of: str, measured: Measured, limits: tuple[Limit, Limit] = _NONE
) -> Iterator[tuple[str, ...]]:
    packed = isinstance(measured.output, PackedComparison)
    name = "codes, scales" if packed else "last norm"
    yield str(tokens), name, of, *_cells(measured.output, limits[0])
    yield str(tokens), "norm inside", of, *_cells(measured.norm, limits[1])


def _cells(found: Comparison | PackedComparison, limit: Limit, unit: str = "") -> tuple[str, ...]:
    if found.equal:
        return ("none", "", "", "", "")
    scales = found.scale_error if isinstance(found, PackedComparison) else None
    return (
        _cell(f"{share(found):.2%}", f"{limit.share:.1%}", limit.share < 1),
        _cell(f"{steps(found)}", f"{limit.steps}{unit}", math.isfinite(limit.steps))
        if unit
        else "",
        "" if scales is None else _number(scales, limit.scale),
        _number(found.mean_error, limit.mean_error),
        _number(found.max_error, limit.max_error),
    )


def _number(value: float, limit: float) -> str:
    return _cell(f"{value:.1e}", f"{limit:.1e}", limit < 1)


def _cell(value: str, limit: str, limited: bool) -> str:
    return f"{value} / {limit}" if limited else value


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
