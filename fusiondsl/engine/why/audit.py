"""What is fused in a graph and what is not: the answers of `why`, region by region."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusiondsl.engine.why.answer import Answer, Cause, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.scan import NEAR

FIRES, FUSED, OPEN = "fires", "already fused", "not fused"


@dataclass(frozen=True, slots=True)
class Region:
    """Operations of a graph that a rule fuses, has fused, or comes close to."""

    rule: str
    state: str
    """`FIRES`, `FUSED` or `OPEN`."""
    site: SiteAnswer
    also: tuple[str, ...] = ()
    """Other rules that come close at the same operations."""

    @property
    def cause(self) -> Cause | None:
        """Why it is not fused: the first cause."""
        return self.site.causes[0] if self.state == OPEN else None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often a rule does what in a graph."""

    rule: str
    fires: int = 0
    fused: int = 0
    """Places where what the rule writes stands already."""
    taken: int = 0
    """Sites another rule fuses instead."""
    close: int = 0
    """Sites where more than half of the source stands and something is in the way."""

    @property
    def sites(self) -> int:
        """Fused once the rules are applied."""
        return self.fires + self.fused

    @property
    def is_empty(self) -> bool:
        return not (self.fires or self.fused or self.taken or self.close)


@dataclass(frozen=True)
class Audit:
    """One graph and all rules."""

    regions: tuple[Region, ...]
    """What is fused or will be first, then what is not, nearest first."""
    coverage: tuple[Coverage, ...]
    """A line for every rule."""

    def of(self, rule: str) -> Coverage:
        return next(line for line in self.coverage if line.rule == rule)

    def count(self, state: str) -> int:
        return sum(region.state == state for region in self.regions)


def audit_of(answer: Answer) -> Audit:
    """The regions and the table of what `why` has answered."""
    told = [(rule.rule, _sites(rule)) for rule in answer.rules]
    settled = [
        Region(rule, FIRES if site.fired else FUSED, site)
        for rule, sites in told
        for site in sites
        if site.fired or site.is_fused
    ]
    close = [(rule, site) for rule, sites in told for site in sites if _is_close(site)]
    coverage = tuple(_coverage(rule, sites) for rule, sites in told)
    return Audit(tuple(_regions(settled, close)), coverage)


def _sites(rule: RuleAnswer) -> list[SiteAnswer]:
    """Best first; what is nothing but part of a site that fires is none of its own."""
    found: dict[str, SiteAnswer] = {}
    fired = [frozenset(site.nodes) for site in rule.fired]
    for site in rule.sites:
        if site.fired or not any(fires.issuperset(site.nodes) for fires in fired):
            found.setdefault(site.node, site)
    return list(found.values())


def _coverage(rule: str, sites: list[SiteAnswer]) -> Coverage:
    return Coverage(
        rule,
        fires=sum(site.fired for site in sites),
        fused=sum(site.is_fused for site in sites),
        taken=sum(site.is_near and _is_taken(site) for site in sites),
        close=sum(map(_is_close, sites)),
    )


def _is_taken(site: SiteAnswer) -> bool:
    return bool(site.causes) and site.causes[0].code == "lost-to-rule"


def _is_close(site: SiteAnswer) -> bool:
    """Where only views and slices stand, nothing can be fused."""
    return site.is_near and site.part >= NEAR and not _is_taken(site)


def _regions(settled: list[Region], close: list[tuple[str, SiteAnswer]]) -> Iterable[Region]:
    """Regions without overlap among those that are not fused.

    A place that shares operations with a region is no region of its own: they are fused once.
    """
    found = list(settled)
    owner = {node: index for index, region in enumerate(found) for node in region.site.nodes}
    also: dict[int, dict[str, None]] = {}
    for rule, site in sorted(close, key=_nearest):
        owners = {owner[node] for node in site.nodes if node in owner}
        for index in owners:
            also.setdefault(index, {})[rule] = None
        if not owners:
            owner.update(dict.fromkeys(site.nodes, len(found)))
            found.append(Region(rule, OPEN, site))
    for index, region in enumerate(found):
        others = tuple(rule for rule in also.get(index, ()) if rule != region.rule)
        yield Region(region.rule, region.state, region.site, others)


def _nearest(near: tuple[str, SiteAnswer]) -> tuple[float, int, int]:
    """Most of the source first; of those the one with the fewest causes, then the largest."""
    site = near[1]
    return -site.matched / max(site.calls, 1), len(site.causes), -site.calls
