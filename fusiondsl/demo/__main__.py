"""Prints the demo's outcome and fails if it is not what it should be."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fusiondsl.demo.model import ModelConfig
from fusiondsl.demo.run import TARGET, Measured, Outcome, run
from fusiondsl.demo.sites import SiteComparison
from fusiondsl.engine.report import Refusal, RefusalKind, Report
from fusiondsl.verify.numerics import Comparison, PackedComparison

MIN_FAMILIES = 3
MAX_SITE_FLIPS = 0.05
"""Share of a fused call's codes that may differ from those of what it replaces."""
MAX_SITE_ERROR = 0.01
"""Mean error of a fused call, dequantised, relative to the largest value."""
MAX_ERROR = 0.02
"""The same for the output of the whole decoder."""


def main() -> int:
    outcome = run(ModelConfig())
    for line in _lines(outcome):
        print(line)
    problems = list(_problems(outcome))
    for problem in problems:
        print(f"FAILED: {problem}")
    return int(bool(problems))


def _lines(outcome: Outcome) -> Iterator[str]:
    families = outcome.families
    yield f"{len(families)} rules of {len(set(families.values()))} families, compiled for"
    yield f"{TARGET.arch} and {TARGET.tp_size} ranks. References stand in for the GPU kernels."
    for report in outcome.reports:
        yield ""
        yield f"Graph: {report.nodes_before} nodes before, {report.nodes_after} after."
        yield ""
        fired = [(str(n), rule, families[rule]) for rule, n in report.counts.items()]
        yield from _table(("fired", "rule", "family"), fired)
        yield ""
        yield from _table(("refused", "rule", "because"), _refused(report))
    yield ""
    yield "Each fused call against what it replaces, on the same inputs (worst of its sites):"
    yield ""
    yield from _table(("rule", "result", "difference"), _site_rows(outcome.sites))
    yield ""
    yield "The whole decoder against eager:"
    yield ""
    compared = (row for measured in outcome.measured for row in _comparison(measured))
    yield from _table(("tokens", "output", "against eager"), compared)


def _refused(report: Report) -> Iterator[tuple[str, str, str]]:
    """One line a rule and kind of reason: how many sites, and the reason at the first."""
    sites: dict[tuple[str, RefusalKind], list[Refusal]] = {}
    for refusal in report.close():
        if refusal.kind is not RefusalKind.STRUCTURE:
            sites.setdefault((refusal.rule, refusal.kind), []).append(refusal)
    for (rule, kind), refusals in sorted(sites.items(), key=lambda item: item[0][0]):
        first = refusals[0]
        yield str(len(refusals)), rule, f"{kind.value}: {first.message} (at {first.node})"


def _site_rows(sites: Sequence[SiteComparison]) -> Iterator[tuple[str, str, str]]:
    worst: dict[tuple[str, str], SiteComparison] = {}
    for site in sites:
        key = (site.rule, site.results)
        if key not in worst or site.found.mean_error > worst[key].found.mean_error:
            worst[key] = site
    for (rule, results), site in sorted(worst.items()):
        yield rule, results, _difference(site.found)


def _difference(found: Comparison | PackedComparison) -> str:
    error = f"error {found.mean_error:.1e} on average, {found.max_error:.1e} at most"
    if isinstance(found, PackedComparison):
        return f"{found.code_flips:.2%} of the codes; dequantised {error}"
    return "none, bit for bit" if found.equal else f"{found.flip_rate:.2%} of the values; {error}"


def _comparison(measured: Measured) -> Iterator[tuple[str, str, str]]:
    tokens = str(measured.tokens)
    yield tokens, "fp8 codes and scales", _difference(measured.quantised)
    yield tokens, "bf16 norm inside", _difference(measured.norm)


def _problems(outcome: Outcome) -> Iterator[str]:
    fired = Counter(outcome.families[rule] for r in outcome.reports for rule in r.counts)
    if len(fired) < MIN_FAMILIES:
        yield f"rules of {len(fired)} families fired, expected at least {MIN_FAMILIES}"
    if not any(True for report in outcome.reports for _ in _refused(report)):
        yield "no site was refused, expected at least one"
    if len(outcome.reports) != 1:
        yield f"{len(outcome.reports)} graphs were compiled, expected one for all token counts"
    for site in outcome.sites:
        if site.found.mean_error > MAX_SITE_ERROR or _flips(site.found) > MAX_SITE_FLIPS:
            yield f"{site.rule}: {site.results}: {_difference(site.found)}"
    for measured in outcome.measured:
        if measured.quantised.mean_error > MAX_ERROR:
            yield f"at {measured.tokens} tokens the output is too far from eager's"


def _flips(found: Comparison | PackedComparison) -> float:
    return found.code_flips if isinstance(found, PackedComparison) else 0.0


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]])


if __name__ == "__main__":
    sys.exit(main())
