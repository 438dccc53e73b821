"""`why`: the engine's run over a copy of a graph, with all that it refuses spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import fx

from fusiondsl import ir
from fusiondsl.engine.apply import Plan, Run
from fusiondsl.engine.bases import opened_bases
from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.report import Fired, Refusal
from fusiondsl.engine.symbols import plain_reads
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.why.answer import Answer, Cause, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.causes import code_of, of_problem
from fusiondsl.engine.why.copies import copy_of
from fusiondsl.engine.why.edits import Runs, Trial, with_edits
from fusiondsl.engine.why.fused import AlreadyFused
from fusiondsl.engine.why.lenient import compile_leniently
from fusiondsl.engine.why.scan import Place, Scan
from fusiondsl.engine.why.show import model_line
from fusiondsl.engine.why.unread import Unseen, not_lowered, undeclared, unopened_text
from fusiondsl.pause import collection_paused


def why(
    compiled: Compiled,
    plan: Plan,
    graph: fx.Graph,
    *,
    tokens: range | None = None,
    rules: Iterable[str] | None = None,
    site: str | None = None,
    top: int = 3,
) -> Answer:
    """What every rule does in `graph`, which is left as it is.

    Edits are looked for at the first `top` kinds of near miss of a rule.
    """
    asked = None if rules is None else frozenset(rules)
    with collection_paused(), plain_reads():
        return _Inquiry(compiled, plan, graph, tokens, asked, site, top).answer()


class _Inquiry:
    """One graph and the rules that are asked about."""

    def __init__(
        self,
        compiled: Compiled,
        plan: Plan,
        graph: fx.Graph,
        tokens: range | None,
        asked: frozenset[str] | None,
        site: str | None,
        top: int,
    ) -> None:
        self._top = top
        self._graph = graph
        self._copy = copy_of(graph)
        self._plan = plan
        self._tokens = tokens
        self._asked = asked
        self._site = site
        self._lenient = compile_leniently(compiled)
        self._run = Run(compiled, plan, self._copy, tokens, rewrite=True)
        self._compiled = compiled
        self._fused = AlreadyFused(compiled, graph)
        self._scans: dict[str, Scan] = {}
        self._places: dict[str, list[Place]] = {}
        self._unseen = Unseen({}, ())
        self._edits = Runs(graph, self._holds)

    def answer(self) -> Answer:
        with opened_bases(self._copy, self._compiled.bindings) as unopened:
            self._unseen = Unseen(self._compiled.forms.spellings, unopened)
            return self._answer()

    def _answer(self) -> Answer:
        rules = self._lenient.compiled.rules
        for level in range(max((rule.stratum for rule in rules), default=-1) + 1):
            mine = [r for r in rules if r.stratum == level and self._is_asked(r.name)]
            if mine and self._run.fake_mode is not None:
                run = self._run
                scan = Scan(
                    self._lenient.compiled,
                    self._copy,
                    self._tokens,
                    run.fake_mode,
                    run.shape_env,
                    self._unseen,
                )
                self._scans.update({rule.name: scan for rule in mine})
                self._places.update({rule.name: scan.places(rule) for rule in mine})
            if level < len(self._plan.strata):
                self._run.stratum(self._plan.strata[level])
        done = {(fired.rule, fired.node): fired for fired in self._run.fired}
        refused = {(refusal.rule, refusal.node): refusal for refusal in self._run.refused()}
        program = self._compiled.program
        wants = {rule.name: frozenset(c.op for c in rule.match) for rule in program.rules}
        taken = {new: (f.rule, wants[f.rule]) for f in self._run.fired for new in f.new_nodes}
        verdicts = _Verdicts(done, refused, self._lenient.lacks, taken)
        return Answer(
            tuple(
                self._rule(rule.name, verdicts)
                for rule in program.rules
                if self._is_asked(rule.name)
            )
        )

    def _is_asked(self, rule: str) -> bool:
        return self._asked is None or rule in self._asked

    def _rule(self, name: str, verdicts: _Verdicts) -> RuleAnswer:
        rule = next(r for r in self._compiled.program.rules if r.name == name)
        places = self._places.get(name, ())
        sites = _fired_once(s for place in places for s in verdicts.site(place))
        sites += verdicts.rest(rule, {s.node for s in sites})
        sites += self._fused_already(rule)
        if self._site is not None:
            sites = [s for s in sites if _concerns(s, self._site)]
        causes = self._lenient.lacks.get(name, ())
        if not causes and not sites:
            causes = tuple(self._nowhere(name))
        answer = RuleAnswer(name, tuple(sorted(sites, key=_rank)), causes, span=rule.span)
        trial = Trial(self._compiled.program, self._compiled.target, self._tokens, name)
        return with_edits(answer, trial, self._edits, self._top)

    def _holds(self, rule: str, node: str, tokens: range) -> bool:
        """Whether the conditions of a rule may hold at a node for a range of tokens."""
        places = [p for p in self._places.get(rule, ()) if p.anchor == node and p.whole]
        return not places or any(self._scans[rule].holds(p, tokens) for p in places)

    def _nowhere(self, name: str) -> Iterable[Cause]:
        """What to say of a rule that is near nowhere."""
        never = next((i for i in self._compiled.ineligible if i.rule == name), None)
        rule = next(r for r in self._compiled.program.rules if r.name == name)
        if never is not None:
            yield Cause("difference", never.message, label=never.label, span=rule.span)
            return
        where = "" if self._site is None else f" around {self._site}"
        wanted = tuple(dict.fromkeys(call.op for call in rule.match))
        node, hint = self._in_another_form(wanted)
        yield Cause(
            "structure",
            f"no half of the source stands anywhere{where} in the graph{hint}",
            None if node is None else node.name,
            expected=", ".join(wanted),
            span=rule.span,
            source=None if node is None else model_line(node),
        )

    def _in_another_form(self, wanted: tuple[str, ...]) -> tuple[fx.Node | None, str]:
        """What may stand there all the same, in a form that no rule sees."""
        unopened = self._unseen.of(wanted)
        if unopened is not None:
            return self._graph_node(unopened.call), f": {unopened_text(unopened)}"
        other = undeclared(self._graph, self._compiled.bindings, wanted)
        if other is not None:
            node, name, like = other
            return node, f": {name}, which {like} may be, is declared nowhere"
        early = not_lowered(self._graph)
        if early is not None:
            return early, f", which is not lowered to aten operations, such as {early.name}"
        return None, ""

    def _graph_node(self, name: str) -> fx.Node | None:
        return next((node for node in self._graph.nodes if node.name == name), None)

    def _fused_already(self, rule: ir.Rule) -> Iterator[SiteAnswer]:
        """Where the graph has what the rule writes."""
        for place in self._fused.places(rule):
            first = place[0]
            line = model_line(first.node)
            message = f"{' and '.join(map(str, place))} already"
            cause = Cause(
                "already-fused", message, first.node.name, first.op, span=rule.span, source=line
            )
            nodes = tuple(standing.node.name for standing in place)
            yield SiteAnswer(first.node.name, False, 0, len(rule.match), (cause,), (), nodes, line)


class _Verdicts:
    """What the engine says about the places that were found."""

    def __init__(
        self,
        fired: dict[tuple[str, str], Fired],
        refused: dict[tuple[str, str], Refusal],
        lacks: dict[str, tuple[Cause, ...]],
        taken: dict[str, tuple[str, frozenset[str]]],
    ) -> None:
        self._fired = fired
        self._refused = refused
        self._lacks = lacks
        self._taken = taken
        """By new node the rule that wrote it, and the ops that the rule replaces."""

    def site(self, place: Place) -> Iterable[SiteAnswer]:
        rule = place.rule
        key = (rule.name, place.anchor)
        if place.whole and key in self._fired:
            if not place.causes:
                answer = self._answer(place, fired=True, causes=())
                yield replace(answer, differs=self._fired[key].differs)
            return
        told = sorted(map(self._starved, place.causes), key=lambda c: c.code != "lost-to-rule")
        causes = (*self._lacks.get(rule.name, ()), *told)
        if place.whole and rule.name not in self._lacks:
            causes = self._agreed(place, causes)
        if causes:
            yield self._answer(place, fired=False, causes=causes)

    def _starved(self, cause: Cause) -> Cause:
        """What an earlier stratum has replaced was there before."""
        winner, ops = self._taken.get(cause.node or "", ("", frozenset()))
        if cause.code != "structure" or cause.expected not in ops:
            return cause
        message = f"{winner} has taken the {cause.expected} that stood there"
        return replace(cause, code="lost-to-rule", message=message, field=winner, because=())

    def _agreed(self, place: Place, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
        """With what the engine names first in front."""
        refusal = self._refused.get((place.rule.name, place.anchor))
        if refusal is None or refusal.matched < refusal.calls:
            return causes
        first = _told(refusal, place.rule, place.source)
        same = [c for c in causes if c.message == first.message]
        if same:
            first = same[0]
        return (first, *(c for c in causes if c is not first))

    def _answer(self, place: Place, *, fired: bool, causes: tuple[Cause, ...]) -> SiteAnswer:
        return SiteAnswer(
            place.anchor,
            fired,
            place.matched,
            len(place.rule.rule.match),
            causes,
            (),
            place.nodes,
            model_line(place.source),
            part=place.part,
        )

    def rest(self, rule: Any, known: set[str]) -> list[SiteAnswer]:
        """Sites only the engine has, such as those that came up while it rewrote."""
        count = len(rule.match)
        found = [
            SiteAnswer(node, True, count, count, nodes=(node,), differs=site.differs)
            for (name, node), site in self._fired.items()
            if name == rule.name and node not in known
        ]
        for (name, node), refusal in self._refused.items():
            if name == rule.name and node not in known and (name, node) not in self._fired:
                code = code_of(refusal.kind.value)
                cause = Cause(
                    code, refusal.message, node, refusal.label, label=refusal.label, span=rule.span
                )
                found.append(SiteAnswer(node, False, refusal.matched, count, (cause,), (), (node,)))
        return found


def _told(refusal: Refusal, rule: CompiledRule, node: Any) -> Cause:
    problem = Problem(refusal.kind.value, refusal.message, refusal.label)
    return of_problem(problem, rule.rule, node, {})


def _concerns(site: SiteAnswer, node: str) -> bool:
    return node == site.node or node in site.nodes or any(c.node == node for c in site.causes)


def _fired_once(sites: Iterable[SiteAnswer]) -> list[SiteAnswer]:
    """A site that fires is one, in however many ways it reads as the source."""
    found: dict[object, SiteAnswer] = {}
    for site in sites:
        found.setdefault(site.node if site.fired else id(site), site)
    return list(found.values())


def _rank(site: SiteAnswer) -> tuple[bool, float, int]:
    part = site.matched / max(site.calls, 1)
    return not site.fired, -part, len(site.causes)
