"""`why` and the engine never disagree, whatever the graph."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from torch import fx

from fusiondsl.engine.apply import Run
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind
from fusiondsl.engine.symbols import plain_reads
from fusiondsl.engine.why.causes import code_of
from fusiondsl.engine.why.copies import copy_of
from fusiondsl.engine.why.scan import Place, Scan
from tests.engine.lab import rules
from tests.properties.graphs import RULES, random_graphs

CHECKS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
Drawn = tuple[fx.GraphModule, list[str]]


def all_rules() -> CompiledRules:
    return rules("".join(RULES.values()))


@CHECKS
@given(random_graphs(plants=4))
def test_what_fires_and_what_is_refused(drawn: Drawn) -> None:
    gm, _ = drawn
    text = str(gm.graph)
    answer = all_rules().why(gm)
    assert str(gm.graph) == text, "the graph is left as it is"
    copied = copy_of(gm.graph)
    report = all_rules().apply(copied)
    fired = {(site.rule, site.node) for site in report.fired}
    assert {(rule.rule, site.node) for rule in answer.rules for site in rule.fired} == fired
    for refusal in report.settled:
        if (refusal.rule, refusal.node) in fired or refusal.matched < refusal.calls:
            continue
        sites = [s for s in answer.of(refusal.rule).near if s.node == refusal.node]
        first = [site.causes[0] for site in sites]
        codes = {"fp8-flavour": "dtype"}
        told = {codes.get(cause.code, cause.code) for cause in first}
        assert code_of(refusal.kind.value) in told, refusal


@CHECKS
@given(random_graphs(plants=4))
def test_places_without_causes_are_the_candidates_of_the_engine(drawn: Drawn) -> None:
    gm, _ = drawn
    compiled = all_rules()
    run = Run(compiled.compiled, compiled.plan, gm.graph, None, rewrite=False)
    places: list[Place] = []
    with plain_reads():
        scan = Scan(compiled.compiled, gm.graph, None, run.fake_mode, run.shape_env)
        first = [rule for rule in compiled.compiled.rules if rule.stratum == 0]
        places = [place for rule in first for place in scan.places(rule)]
        run.stratum(compiled.plan.strata[0])
    free = {(p.rule.name, p.anchor) for p in places if p.whole and not p.causes}
    fired = {(site.rule, site.node) for site in run.fired}
    # Overlaps are settled among all sites, and what moves one may be in the way of another.
    settled: set[tuple[str, str]] = {
        (r.rule, r.node)
        for r in run.refused()
        if r.kind in (RefusalKind.LOST, RefusalKind.EFFECT, RefusalKind.STRUCTURE)
    }
    assert fired <= free
    served = _twins(places, fired)
    assert free <= fired | settled | served


def _twins(places: list[Place], fired: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Sites that repeat a call of one that fired, on the same values: that serves both."""
    done = [p for p in places if (p.rule.name, p.anchor) in fired]
    return {
        (p.rule.name, p.anchor)
        for p in places
        for other in done
        if p.rule is other.rule and not set(p.nodes).isdisjoint(other.nodes)
    }
