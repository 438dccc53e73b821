"""Applies compiled rules to a graph: collect all sites, settle overlaps, rewrite, report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.emit import Emitter
from fusiondsl.engine.formcheck import FormCheck
from fusiondsl.engine.judge import Judge, Verdict, Verdicts
from fusiondsl.engine.match import Matcher, Near
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
from fusiondsl.pause import collection_paused


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
        plan.strata[rule.stratum].insert(rule.path, compiled.forms.literals(rule.path), rule)
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
    run = Run(compiled, plan, graph, tokens, rewrite)
    with collection_paused(), plain_reads():
        for trie in plan.strata:
            run.stratum(trie)
    return Report(
        tuple(run.fired),
        tuple(run.refused()),
        tuple(map(Stop.of, run.near)),
        compiled.ineligible,
        before,
        len(graph.nodes),
    )


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
        self._compiled = compiled
        self._graph = graph
        self._rewrite = rewrite
        self.fired: list[Fired] = []
        self._refused: dict[tuple[str, str], Refusal] = {}
        self.near: list[Near[CompiledRule]] = []
        self._fake_mode, self._shape_env = _fake_mode_of(graph)
        self._sizes = Sizes(graph)
        signatures = Signatures(plan.verdicts.numbers)
        self._forms = FormCheck(compiled, self._shape_env, signatures)
        self._judge = Judge(
            compiled,
            self._shape_env,
            self._fake_mode,
            self._sizes,
            tokens,
            signatures,
            plan.verdicts,
        )
        self._emitter = Emitter(compiled, graph, self._sizes, self._fake_mode)
        self._view: View | None = None
        """None once something is rewritten."""

    # --- one stratum -----------------------------------------------------------------------------

    def stratum(self, trie: Trie[CompiledRule]) -> None:
        while True:
            view = self.view()
            again = self.settle(view, self.collect(view, trie))
            if not again:
                return

    def view(self) -> View:
        """The graph as it is now."""
        if self._view is None:
            self._view = View(self._graph, self._compiled.bindings)
            self._emitter.written = self._view.mutations.buffers
        return self._view

    def collect(self, view: View, trie: Trie[CompiledRule]) -> list[tuple[Site, Verdict]]:
        if self._fake_mode is None:
            return []
        recogniser = Recogniser(view, self._compiled.forms, self._forms)
        found: list[tuple[Site, Verdict]] = []
        seen: set[tuple[int, tuple[fx.Node, ...]]] = set()

        def accept(rule: CompiledRule, slots: list[Any], calls: list[Recognised]) -> bool:
            key = (id(rule), tuple([call.node for call in calls]))
            if key in seen:
                return False
            seen.add(key)
            candidate = self._candidate(view, rule, slots, calls)
            if candidate is not None:
                found.append(candidate)
            return False

        matcher: Matcher[CompiledRule] = Matcher(view, recogniser, accept, self.near)
        for op, children in trie.roots.items():
            live = [(args, node) for args, node in children if self._possible(recogniser, node)]
            if not live:
                continue
            for call in recogniser.all_of(op):
                matcher.run(live, call)
        return found

    def _possible(self, recogniser: Recogniser, node: Any) -> bool:
        """Some rule below has all the ops it requires in this graph."""
        return any(all(recogniser.occurs(op) for op in rule.required) for rule in node.members)

    def _candidate(
        self, view: View, rule: CompiledRule, slots: list[Any], calls: list[Recognised]
    ) -> tuple[Site, Verdict] | None:
        site = assemble(view, rule, slots, calls)
        if isinstance(site, Problem):
            self._refuse(rule, calls[0].node, site, matched=len(calls))
            return None
        verdict = self._judge.judge(site)
        if verdict.problem is not None:
            self._refuse(rule, site.anchor, verdict.problem, verdict.label, matched=len(calls))
            return None
        return site, verdict

    # --- overlaps --------------------------------------------------------------------------------

    def settle(self, view: View, sites: list[tuple[Site, Verdict]]) -> bool:
        """Rewrites what does not overlap, best first. True: match again, the view is stale."""
        taken: dict[fx.Node, str] = {}
        for site, verdict in in_order(sites):
            if self.loses(site, taken):
                continue
            claimed = site.claimed()
            if self._commit(view, site, verdict):
                taken.update(dict.fromkeys(claimed, site.rule.name))
                if view.mutations.any and self._rewrite:
                    return True
        return False

    def loses(self, site: Site, taken: Mapping[fx.Node, str]) -> bool:
        """A better site has some of these nodes; refused, unless it serves this one too."""
        if taken.keys().isdisjoint(site.own):
            return False
        winner = next(taken[node] for node in site.own if node in taken)
        if site.anchor not in taken or winner != site.rule.name:
            self.refuse(site, Problem("lost to rule", winner))
        return True

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
        self.fired.append(
            Fired(site.rule.name, anchor, _forms(site, verdict), tuple([n.name for n in new]))
        )
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
        refusal = Refusal(
            rule.name,
            node.name,
            RefusalKind(problem.kind),
            problem.message,
            label,
            matched,
            len(rule.rule.match),
        )
        known = self._refused.get((rule.name, node.name))
        if known is None or known.matched <= matched:
            self._refused[(rule.name, node.name)] = refusal

    def refused(self) -> Iterable[Refusal]:
        return self._refused.values()


def in_order(sites: Iterable[tuple[Site, Verdict]]) -> list[tuple[Site, Verdict]]:
    """Best first: the computed order of rules, and of one rule the latest position."""
    latest = sorted(sites, key=lambda item: item[0].anchor, reverse=True)
    return sorted(latest, key=lambda item: item[0].rule.rule.order)


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
