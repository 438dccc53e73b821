"""Applies compiled rules to a graph: collect all sites, settle overlaps, rewrite, report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import torch
from torch import fx

from fusiondsl.engine.bases import opened_bases
from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.emit import Emitter
from fusiondsl.engine.formcheck import FormCheck
from fusiondsl.engine.judge import Judge, Verdict, Verdicts
from fusiondsl.engine.match import Near
from fusiondsl.engine.misfits import misfits
from fusiondsl.engine.pattern import Trie
from fusiondsl.engine.place import Place, find_place
from fusiondsl.engine.readers import misread
from fusiondsl.engine.recognise import Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.report import Fired, Refusal, RefusalKind, Report
from fusiondsl.engine.signatures import Signatures
from fusiondsl.engine.site import Site, assemble, form_names
from fusiondsl.engine.sizes import Sizes
from fusiondsl.engine.stops import Stop
from fusiondsl.engine.symbols import plain_reads
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View
from fusiondsl.engine.wide import differences, recogniser_of, refusals
from fusiondsl.pause import collection_paused

Judged: TypeAlias = tuple[Site, Verdict]
"""A site that may be rewritten."""


@dataclass(slots=True, eq=False)
class Plan:
    """Match programs of one compiled set, by stratum. Built once, used for every graph."""

    strata: list[Trie[CompiledRule]] = field(default_factory=list)
    rules: list[list[CompiledRule]] = field(default_factory=list)
    verdicts: Verdicts = field(default_factory=Verdicts)


def build_plan(compiled: Compiled) -> Plan:
    plan = Plan()
    for rule in compiled.rules:
        while len(plan.strata) <= rule.stratum:
            plan.strata.append(Trie())
            plan.rules.append([])
        plan.strata[rule.stratum].insert(rule.path, rule.literals, rule)
        plan.rules[rule.stratum].append(rule)
    return plan


def apply(
    compiled: Compiled,
    plan: Plan,
    graph: fx.Graph,
    *,
    tokens: range | None = None,
    rewrite: bool = True,
) -> Report:
    """Rewrites `graph` in place. With `rewrite` False only matches and reports."""
    before = len(graph.nodes)
    # What a run remembers is gone before the collector looks at new objects again.
    with collection_paused(), plain_reads():
        return _run(Run(compiled, plan, graph, tokens, rewrite), plan, graph, before)


def _run(run: Run, plan: Plan, graph: fx.Graph, before: int) -> Report:
    with opened_bases(graph, run.compiled.bindings):
        for trie in plan.strata:
            run.stratum(trie)
    return Report(
        tuple(run.fired),
        tuple(run.refused()),
        tuple(map(Stop.of, run.near)),
        run.compiled.ineligible,
        before,
        len(graph.nodes),
    )


class Candidate:
    """One complete structural match."""

    __slots__ = ("calls", "judged", "rule", "slots")

    def __init__(
        self,
        rule: CompiledRule,
        slots: tuple[Any, ...],
        calls: tuple[Recognised, ...],
        judged: Judged | None = None,
    ) -> None:
        self.rule = rule
        self.slots = slots
        self.calls = calls
        self.judged = judged
        """The site, where it was judged before."""

    @property
    def anchor(self) -> fx.Node:
        return self.calls[0].node


_Key: TypeAlias = tuple[Any, ...]
"""A rule and the nodes of its calls."""


class Run:
    """Matching and rewriting of one graph."""

    def __init__(
        self,
        compiled: Compiled,
        plan: Plan,
        graph: fx.Graph,
        tokens: range | None,
        rewrite: bool,
    ) -> None:
        self.compiled = compiled
        self._graph = graph
        self._rewrite = rewrite
        self.fired: list[Fired] = []
        self._refused: dict[tuple[str, str], Refusal] = {}
        self.near: list[Near[CompiledRule]] = []
        self.fake_mode, self.shape_env = _fake_mode_of(graph)
        self._sizes = Sizes(graph)
        signatures = Signatures(plan.verdicts.numbers)
        self._forms = FormCheck(compiled, self.shape_env, signatures)
        self._judge = Judge(
            compiled,
            self.shape_env,
            self.fake_mode,
            self._sizes,
            tokens,
            signatures,
            plan.verdicts,
        )
        self._emitter = Emitter(compiled, graph, self._sizes, self.fake_mode)
        self._differing: dict[tuple[str, str], tuple[str, ...]] = {}
        """By rule and anchor: what the spelling of a site differs by."""
        self._unplaced: set[_Key] = set()
        """Sites that found no place, when the graph was matched again for those they had beaten."""
        self._view: View | None = None
        """None once something is rewritten."""

    # --- one stratum -----------------------------------------------------------------------------

    def stratum(self, trie: Trie[CompiledRule]) -> None:
        while True:
            view = self.view()
            again = self._round(view, self.collect(view, trie))
            if not again:
                return

    def view(self) -> View:
        """The graph as it is now."""
        if self._view is None:
            self._view = View(self._graph, self.compiled.bindings)
            self._emitter.written = self._view.mutations.buffers
            self._forms.unfit.clear()
        return self._view

    def collect(self, view: View, trie: Trie[CompiledRule]) -> list[Candidate]:
        """Every complete structural match."""
        if self.fake_mode is None:
            return []
        recogniser = recogniser_of(view, self.compiled, self._forms)
        found: dict[_Key, Candidate] = {}

        def accept(rule: CompiledRule, slots: list[Any], calls: list[Recognised]) -> bool:
            key = (id(rule), *[call.node for call in calls])
            if key not in found and key not in self._unplaced:
                found[key] = Candidate(rule, tuple(slots), tuple(calls))
            return False

        matcher = recogniser.matcher(view, recogniser, accept, self.near)
        for op, children in trie.roots.items():
            live = [(args, node) for args, node in children if self._possible(recogniser, node)]
            if not live:
                continue
            for call in recogniser.all_of(op):
                matcher.run(live, call)
        for rule, node, problem in misfits(view, recogniser, self._forms, trie):
            self._refuse(rule, node, problem, problem.label, matched=1)
        if type(recogniser) is Recogniser:
            return list(found.values())
        return [candidate for candidate in found.values() if self._is_within(candidate)]

    def _is_within(self, candidate: Candidate) -> bool:
        """The rule allows what the spelling of a site differs by; else the site is refused."""
        rule, calls = candidate.rule, candidate.calls
        problem = next(refusals(rule, calls), None)
        if problem is not None:
            self._refuse(rule, candidate.anchor, problem, matched=len(calls))
            return False
        kinds = differences(calls)
        if kinds:
            self._differing[rule.name, candidate.anchor.name] = kinds
        return True

    def _possible(self, recogniser: Recogniser, node: Any) -> bool:
        """Some rule below has all the ops it requires in this graph."""
        return any(all(recogniser.occurs(op) for op in rule.required) for rule in node.members)

    def judged(self, view: View, candidates: Iterable[Candidate]) -> list[Judged]:
        """Those that may be rewritten, were they alone; the others are refused."""
        outcomes = (self._judged(view, candidate) for candidate in candidates)
        return [judged for judged in outcomes if judged is not None]

    def _judged(self, view: View, candidate: Candidate) -> Judged | None:
        rule, calls = candidate.rule, candidate.calls
        site = assemble(view, rule, candidate.slots, calls)
        if isinstance(site, Problem):
            self._refuse(rule, candidate.anchor, site, matched=len(calls))
            return None
        verdict = self._judge.judge(site)
        if verdict.problem is not None:
            self._refuse(rule, candidate.anchor, verdict.problem, verdict.label, matched=len(calls))
            return None
        return site, verdict

    # --- overlaps --------------------------------------------------------------------------------

    def settle(self, view: View, sites: Iterable[Judged]) -> bool:
        """Rewrites sites that do not overlap, best first. True: match again, the view is stale."""
        return self._round(view, [Candidate(s.rule, s.slots, s.calls, (s, v)) for s, v in sites])

    def _round(self, view: View, candidates: Iterable[Candidate]) -> bool:
        """The same for structural matches: what overlaps with a better site is not judged."""
        at_once = view.mutations.any and self._rewrite
        fired = len(self.fired)
        waiting = in_order(candidates)
        taken: dict[fx.Node, Site] = {}
        while waiting:
            lost: list[tuple[Candidate, Site]] = []
            # A view says nothing of nodes that are written later: judge first, then rewrite.
            chosen = list(self._choose(view, waiting, taken, lost))
            failed: set[Site] = set()
            for site, verdict in chosen:
                if not self._commit(view, site, verdict):
                    failed.add(site)
                elif at_once:
                    return True
            for candidate, winner in lost:
                if winner not in failed:
                    self._refuse_loser(candidate, winner, taken)
            waiting = [candidate for candidate, winner in lost if winner in failed]
            changed = self._rewrite and len(self.fired) > fired
            if changed and any(candidate.judged is None for candidate in waiting):
                self._unplaced.update((id(s.rule), *[c.node for c in s.calls]) for s in failed)
                return True
            taken = {node: site for node, site in taken.items() if site not in failed}
        return False

    def _choose(
        self,
        view: View,
        candidates: Iterable[Candidate],
        taken: dict[fx.Node, Site],
        lost: list[tuple[Candidate, Site]],
    ) -> Iterator[Judged]:
        """Sites that overlap with none before them; what they rewrite is `taken`."""
        for candidate in candidates:
            winner = taken.get(candidate.anchor)
            if winner is None:
                judged = candidate.judged or self._judged(view, candidate)
                if judged is None:
                    continue
                site = judged[0]
                winner = winner_over(site, taken)
                if winner is None:
                    taken.update(dict.fromkeys(site.claimed(), site))
                    yield judged
                    continue
            lost.append((candidate, winner))

    def loses(self, site: Site, taken: Mapping[fx.Node, Site]) -> bool:
        """A better site has some of these nodes; refused, unless it serves this one too."""
        winner = winner_over(site, taken)
        if winner is not None:
            self._refuse_loser(site, winner, taken)
        return winner is not None

    def _refuse_loser(
        self, loser: Site | Candidate, winner: Site, taken: Mapping[fx.Node, Site]
    ) -> None:
        if winner.rule is loser.rule and loser.anchor in taken:
            return
        rule, matched = loser.rule.rule, len(loser.calls)
        self._keep(
            Refusal(
                rule.name,
                loser.anchor.name,
                RefusalKind.LOST,
                winner.rule.rule.name,
                None,
                matched,
                len(rule.match),
            )
        )

    def place(self, view: View, site: Site) -> Place | Problem:
        """Where the new nodes may stand in the graph as it is now."""
        current = self._emitter.current

        def inputs() -> list[Any]:
            read = [current(value) for _, value in (*site.inputs, *site.kept)]
            return [*read, *site.layers()]

        return misread(view, site) or find_place(view, site, inputs)

    def _commit(self, view: View, site: Site, verdict: Verdict) -> bool:
        place = self.place(view, site)
        if isinstance(place, Problem):
            self.refuse(site, place)
            return False
        anchor = site.anchor.name
        new: tuple[fx.Node, ...] = ()
        if self._rewrite:
            new = self._emitter.rewrite(site, verdict, place)
            self._view = None
        name, forms, names = site.rule.name, _forms(site, verdict), tuple([n.name for n in new])
        if self._differing:
            kinds = self._differing.get((name, anchor), ())
            self.fired.append(Fired(name, anchor, forms, names, kinds))
        else:
            self.fired.append(Fired(name, anchor, forms, names))
        return True

    # --- refusals --------------------------------------------------------------------------------

    def refuse(self, site: Site, problem: Problem) -> None:
        """A site whose whole source stands there is left alone."""
        self._refuse(site.rule, site.anchor, problem, problem.label, matched=len(site.calls))

    def _refuse(
        self,
        rule: CompiledRule,
        node: fx.Node,
        problem: Problem,
        label: str | None = None,
        *,
        matched: int,
    ) -> None:
        kind, calls = RefusalKind(problem.kind), len(rule.rule.match)
        self._keep(Refusal(rule.name, node.name, kind, problem.message, label, matched, calls))

    def _keep(self, refusal: Refusal) -> None:
        """Of refusals of one rule at one node, the one that came closest counts."""
        place = refusal.rule, refusal.node
        known = self._refused.get(place)
        if known is None or known.matched <= refusal.matched:
            self._refused[place] = refusal

    def refused(self) -> Iterable[Refusal]:
        return self._refused.values()


_Match = TypeVar("_Match", Candidate, Site)


def in_order(matches: Iterable[_Match]) -> list[_Match]:
    """Best first: the computed order of rules, and of one rule the latest position."""
    latest = sorted(matches, key=lambda match: match.anchor, reverse=True)
    return sorted(latest, key=lambda match: match.rule.rule.order)


def winner_over(site: Site, taken: Mapping[fx.Node, Site]) -> Site | None:
    """The better site that has some node of this one."""
    if taken.keys().isdisjoint(site.own):
        return None
    return next(taken[node] for node in site.own if node in taken)


def _forms(site: Site, verdict: Verdict) -> tuple[str, ...]:
    """How the source is spelled, the same for a whole verdict."""
    known: tuple[str, ...] | None = verdict.memo.get("forms")
    if known is None:
        known = verdict.memo["forms"] = form_names(site)
    return known


def _fake_mode_of(graph: fx.Graph) -> tuple[Any, Any]:
    """The fake mode and the `ShapeEnv` behind the graph's values."""
    for node in graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (tuple, list)) else (values,):
            mode = getattr(value, "fake_mode", None)
            if isinstance(value, torch.Tensor) and mode is not None:
                return mode, mode.shape_env
    return None, None
