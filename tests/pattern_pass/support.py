"""Graphs rewritten by the graph pass and by the same rules in a `PatternMatcherPass`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import fx
from torch._inductor.pattern_matcher import PatternMatcherPass

from benchmarks.compare_graphs import compare
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.registration import Registration
from fusiondsl.engine.report import Refusal, RefusalKind, Report
from tests.engine.lab import shape_env, snapshot

MOST_RUNS = 5


@dataclass(frozen=True)
class Run:
    """What became of a graph in a pass."""

    gm: fx.GraphModule
    registration: Registration
    matches: tuple[int, ...]
    """What each run of the pass returned."""

    @property
    def counts(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for report in self.registration.reports:
            total.update(report.counts)
        return dict(sorted(total.items()))


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """The same nodes with the same values, in the same order."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return fx.GraphModule(gm, graph)


def in_pass(
    gm: fx.GraphModule,
    rules: CompiledRules,
    tokens: range | None = None,
    *,
    patterns: PatternMatcherPass | None = None,
) -> Run:
    """The rules in a pass of their own, or beside others, run until nothing more is expected."""
    patterns = PatternMatcherPass() if patterns is None else patterns
    registration = rules.register(patterns, tokens=tokens)
    before = snapshot(shape_env(gm.graph))
    matches = [patterns.apply(gm)]
    while registration.again:
        matches.append(patterns.apply(gm))
        assert len(matches) < MOST_RUNS
    assert snapshot(shape_env(gm.graph)) == before, "the ShapeEnv has changed"
    gm.graph.lint()
    assert len(registration.reports) == len(matches)
    assert registration.reports[-1].nodes_after == len(gm.graph.nodes)
    return Run(gm, registration, tuple(matches))


def same_as_graph_pass(
    gm: fx.GraphModule, rules: CompiledRules, tokens: range | None = None
) -> Run:
    """Both ways on copies of one graph; they fire at the same sites and end in the same graph."""
    ours = copied(gm)
    report = rules.apply(ours, tokens=tokens)
    run = in_pass(copied(gm), rules, tokens)
    assert not run.registration.needs_graph_pass
    assert run.counts == report.counts
    found = compare(ours, run.gm)
    assert found.equal, (found.only_left, found.only_right)
    if len(run.matches) == 1:
        (only,) = run.registration.reports
        assert {site.node for site in only.fired} == {site.node for site in report.fired}
        assert reasons(only, report) == reasons(report, report)
    return run


def reasons(report: Report, graph_pass: Report) -> dict[tuple[str, str], RefusalKind]:
    """Why sites were refused, but that the graph pass does not judge those it says have lost."""
    lost = {place(r) for r in graph_pass.refused if r.kind is RefusalKind.LOST}
    return {place(r): RefusalKind.LOST if place(r) in lost else r.kind for r in report.refused}


def place(refusal: Refusal) -> tuple[str, str]:
    return refusal.rule, refusal.node
