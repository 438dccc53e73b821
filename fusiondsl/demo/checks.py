"""What the demo's outcome has to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from fusiondsl.demo.limits import exceeded, limit_of, whole_limit
from fusiondsl.demo.run import TOKENS, Outcome
from fusiondsl.engine.report import RefusalKind

MIN_FAMILIES = 3


def quantised_problems(outcome: Outcome, families: Mapping[str, str]) -> Iterator[str]:
    """Families of rules and refusals are this decoder's part."""
    fired = {families[rule] for report in outcome.reports for rule in report.counts}
    if len(fired) < MIN_FAMILIES:
        yield f"rules of {len(fired)} families fired, expected at least {MIN_FAMILIES}"
    refused = [refusal.kind for report in outcome.reports for refusal in report.close()]
    if all(kind is RefusalKind.STRUCTURE for kind in refused):
        yield "no site was refused, expected at least one"
    yield from problems(outcome)


def problems(outcome: Outcome) -> Iterator[str]:
    if len(outcome.reports) != 1:
        yield f"{len(outcome.reports)} graphs were compiled, expected one for all token counts"
    if not any(report.fired for report in outcome.reports):
        yield "no rule fired"
    for tokens in TOKENS:
        for problem in chain(_of_sites(outcome, tokens), _of_decoder(outcome, tokens)):
            yield f"{outcome.config.dtype}, {tokens} tokens: {problem}"


def _of_sites(outcome: Outcome, tokens: int) -> Iterator[str]:
    sites = outcome.sites[tokens]
    compared = {(site.rule, site.node) for site in sites}
    for report in outcome.reports:
        for fired in report.fired:
            if (fired.rule, fired.node) not in compared:
                yield f"{fired.rule} at {fired.node}: nothing to compare it with"
    for site in sites:
        for problem in exceeded(site.found, limit_of(site)):
            yield f"{site.rule} at {site.node}: {site.results}: {problem}"


def _of_decoder(outcome: Outcome, tokens: int) -> Iterator[str]:
    if not outcome.control[tokens].equal:
        yield "compiled without rules, the decoder is not eager's"
    sites, nudge = outcome.sites[tokens], outcome.nudge[tokens]
    fused, nudged = outcome.fused[tokens], outcome.nudged[tokens]
    for what, found, moved in (
        ("output", fused.output, nudged.output),
        ("norm inside", fused.norm, nudged.norm),
    ):
        for problem in exceeded(found, whole_limit(sites, nudge, moved)):
            yield f"{what}: {problem}"
