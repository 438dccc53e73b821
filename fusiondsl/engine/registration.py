"""The rules as registrations of an Inductor `PatternMatcherPass`, beside patterns of other kinds.

The pass visits nodes from the end of the graph and offers each to its entries in order. When it
first comes to one of ours, the whole graph is matched and settled as the graph pass does it; each
node then has its answer. Where another entry has rewritten something, the graph is matched again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import wraps
from typing import Any

from torch import fx

from fusiondsl.engine.anchors import anchor_targets
from fusiondsl.engine.apply import Plan, Run
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.report import Fired, Refusal, RefusalKind, Report
from fusiondsl.engine.stops import Stop
from fusiondsl.engine.symbols import plain_reads
from fusiondsl.engine.torch_matcher import (
    FailedMatch,
    Match,
    MatchContext,
    PatternExpr,
    PatternMatcherPass,
    created,
    register_graph_pattern,
    rewrites,
    skips,
)
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.units import Unit, units
from fusiondsl.engine.view import View
from fusiondsl.pause import collection_paused


class Registration:
    """What `CompiledRules.register` put into a pass, and what has come of it."""

    def __init__(self, compiled: Compiled, plan: Plan, tokens: range | None) -> None:
        self.reports: list[Report] = []
        """A report for every run of the pass."""
        self.again = False
        """Another run of the pass may rewrite more of the graph it has just been over.

        A run applies rules of one stratum: those on targets of others come in the next one. So do
        sites that other patterns have made behind the back of the pass; with a pattern that fires
        in every run, this need never become False.
        """
        self._compiled = compiled
        self._plan = plan
        self._tokens = tokens
        self._targets = dict.fromkeys(anchor_targets(compiled))
        self._walk: _Walk | None = None

    @property
    def needs_graph_pass(self) -> tuple[Refusal, ...]:
        """Sites of the last run that the pass did not let the rules rewrite, with the reason."""
        last = self.reports[-1].settled if self.reports else ()
        return tuple(refusal for refusal in last if refusal.kind is RefusalKind.GRAPH_PASS)

    def add_to(self, patterns: PatternMatcherPass, *, prepend: bool) -> None:
        pattern = _Offer(self, self._targets)
        register_graph_pattern(pattern, _holds, pass_dict=patterns, prepend=prepend)(_rewrite)
        # The pass tells its patterns of no beginning and no end, and of no node that it skips.
        patterns.apply = self._watched(patterns.apply)  # type: ignore[assignment, method-assign]

    def _watched(self, apply: Callable[[Any], int]) -> Callable[[Any], int]:
        @wraps(apply)
        def watched(gm: fx.GraphModule | fx.Graph) -> int:
            graph = gm.graph if isinstance(gm, fx.GraphModule) else gm
            walk = self._walk = self._start(graph)
            try:
                count = apply(gm)
            finally:
                self._walk = None
            self.reports.append(walk.close(graph))
            self.again = walk.again(graph)
            return count

        return watched

    def _start(self, graph: fx.Graph) -> _Walk:
        return _Walk(self._compiled, self._plan, graph, self._tokens, self._targets)

    def visit(self, node: fx.Node) -> _Walk:
        """The run of the pass that has come to this node."""
        if self._walk is None:
            self._walk = self._start(node.graph)
        return self._walk


class _Walk:
    """One run of the pass over one graph."""

    def __init__(
        self,
        compiled: Compiled,
        plan: Plan,
        graph: fx.Graph,
        tokens: range | None,
        targets: Collection[Any],
    ) -> None:
        self._compiled = compiled
        self._plan = plan
        self._tokens = tokens
        self._targets = targets
        self._visited: set[fx.Node] = set()
        self._before = len(graph.nodes)
        self._state: tuple[int, ...] | None = None
        """Of the graph, when it was matched; None where it has to be matched anew."""
        self._matched: tuple[Run, View] | None = None
        self._offers: dict[fx.Node, Unit] = {}
        self._waiting: dict[Unit, bool] = {}
        """Units not decided yet; True once the pass has been told of one."""
        self._later = False
        """There are rules of a later stratum."""
        self._writes = False
        """The graph writes its buffers, so that it is matched anew after each rewrite."""
        self._fired: list[Fired] = []
        self._refused: dict[tuple[str, str], Refusal] = {}

    # --- answers ---------------------------------------------------------------------------------

    def unit(self, node: fx.Node) -> Unit | None:
        """What is to be rewritten when the pass is at this node."""
        self._visited.add(node)
        if self._state != _state(node.graph):
            self._match(node.graph)
        unit = self._offers.get(node)
        if unit is None or unit not in self._waiting or self._comes_later(unit, node):
            return None
        self._waiting[unit] = True
        return unit

    def _comes_later(self, unit: Unit, node: fx.Node) -> bool:
        """The pass will be at the first result, where patterns of its own are anchored."""
        anchor = unit.anchor
        if anchor is None or anchor is node or not anchor < node:
            return False
        return self._is_offered(anchor)

    def holds(self, unit: Unit) -> bool:
        """Some site of the unit can be rewritten in the graph as it is now."""
        assert self._matched is not None
        run, view = self._matched
        if any(not isinstance(run.place(view, site), Problem) for site, _ in unit.sites):
            return True
        run.settle(view, unit.sites)  # refuses each
        del self._waiting[unit]
        return False

    def rewrite(self, unit: Unit, graph: fx.Graph) -> None:
        assert self._matched is not None
        run, view = self._matched
        run.settle(view, unit.sites)
        del self._waiting[unit]
        # The pass counts the match once it is through.
        count, *rest = _state(graph)
        self._state = None if self._writes else (count + 1, *rest)

    # --- matching --------------------------------------------------------------------------------

    def _match(self, graph: fx.Graph) -> None:
        self._keep()
        self._offers.clear()
        self._waiting.clear()
        self._state = _state(graph)
        run = Run(self._compiled, self._plan, graph, self._tokens, True)
        with collection_paused(), plain_reads():
            for stratum, trie in enumerate(self._plan.strata):
                view = run.view()
                self._matched = run, view
                self._later = stratum + 1 < len(self._plan.strata)
                self._writes = view.mutations.any
                judged = run.judged(view, run.collect(view, trie))
                for unit in units(run, view, judged, self._is_offered):
                    self._waiting[unit] = False
                    self._offers.update(dict.fromkeys(unit.nodes, unit))
                if self._waiting:
                    return

    def _is_offered(self, node: fx.Node) -> bool:
        return node.target in self._targets and not skips(node)

    def _keep(self) -> None:
        """What the last matching has led to."""
        if self._matched is not None:
            run, _ = self._matched
            self._fired += run.fired
            self._refused.update(_by_place(run.refused()))

    # --- the end ---------------------------------------------------------------------------------

    def close(self, graph: fx.Graph) -> Report:
        if self._matched is None and _occur(graph, self._targets):
            self._match(graph)
        self._keep()
        self._refused.update(_by_place(self._left()))
        near = () if self._matched is None else tuple(map(Stop.of, self._matched[0].near))
        return Report(
            tuple(self._fired),
            tuple(self._refused.values()),
            near,
            self._compiled.ineligible,
            self._before,
            len(graph.nodes),
        )

    def again(self, graph: fx.Graph) -> bool:
        """After the end: more may stand there than when the graph was last matched."""
        if self._fired and (self._later or self._writes):
            return True
        changed = self._matched is not None and self._state not in (None, _state(graph))
        return changed or any(map(self._is_late, self._waiting))

    def _left(self) -> Iterator[Refusal]:
        """Sites the pass did not let the rules rewrite."""
        for unit in self._waiting:
            why = self._why(unit)
            for site, _ in unit.sites:
                yield Refusal(
                    site.rule.name,
                    site.anchor.name,
                    RefusalKind.GRAPH_PASS,
                    why,
                    matched=len(site.calls),
                    calls=len(site.calls),
                )

    def _why(self, unit: Unit) -> str:
        if self._waiting[unit]:
            return "the pass drops matches across writes to memory and across streams"
        if self._is_late(unit):
            return "the pass was past it when the whole source stood there; run the pass again"
        skipped = next((node for node in sorted(unit.nodes) if skips(node)), None)
        if skipped is not None:
            return f"the pass skips {skipped.name} for the kind of tensors it reads or makes"
        return "the pass visits none of its nodes: their ops were not known at registration"

    def _is_late(self, unit: Unit) -> bool:
        """The pass has been at one of the nodes before there was anything to rewrite."""
        return not self._waiting[unit] and not self._visited.isdisjoint(unit.nodes)


def _occur(graph: fx.Graph, targets: Iterable[Any]) -> bool:
    return any(graph.find_nodes(op="call_function", target=t, sort=False) for t in targets)


def _state(graph: fx.Graph) -> tuple[int, ...]:
    """Differs wherever another pattern may have changed the graph."""
    return rewrites(), created(graph), len(graph.nodes)


def _by_place(refusals: Iterable[Refusal]) -> dict[tuple[str, str], Refusal]:
    return {(refusal.rule, refusal.node): refusal for refusal in refusals}


# --- patterns and entries ------------------------------------------------------------------------


class _Offer(PatternExpr):
    """Matches the nodes of what the rules would rewrite at a node."""

    op = "call_function"

    def __init__(self, registration: Registration, targets: Collection[Any]) -> None:
        self.registration = registration
        self.fns = tuple(targets)

    def _match(self, node: fx.Node, ctx: MatchContext) -> Match | FailedMatch:
        walk = self.registration.visit(node)
        unit = walk.unit(node)
        if unit is None:
            return FailedMatch("no rule rewrites this node")
        match = _UnitMatch(ctx, self)
        match.walk = walk
        match.unit = unit
        match.nodes = sorted(unit.nodes)
        return match


class _UnitMatch(Match):
    walk: _Walk
    unit: Unit


def _holds(match: Match) -> bool:
    assert isinstance(match, _UnitMatch)
    return match.walk.holds(match.unit)


def _rewrite(match: Match) -> None:
    assert isinstance(match, _UnitMatch)
    match.walk.rewrite(match.unit, match.graph)
