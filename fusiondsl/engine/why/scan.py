"""All places of one graph where rules fire or come close, with everything that is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import fx

from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.formcheck import FormCheck
from fusiondsl.engine.judge import Verdicts
from fusiondsl.engine.pattern import UNSET
from fusiondsl.engine.place import find_place
from fusiondsl.engine.readers import misread
from fusiondsl.engine.recognised import Recognised, absent
from fusiondsl.engine.signatures import Signatures
from fusiondsl.engine.site import Site, draft, find_ends, problems
from fusiondsl.engine.sizes import Sizes
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.why.answer import Cause
from fusiondsl.engine.why.causes import Teller, of_problem
from fusiondsl.engine.why.examine import Examiner
from fusiondsl.engine.why.nearest import Assignment, Nearest
from fusiondsl.engine.why.readings import Readings, TolerantView
from fusiondsl.engine.why.sketch import Sketch
from fusiondsl.engine.why.spelled import body_forms
from fusiondsl.engine.why.unread import Unseen
from fusiondsl.engine.wide import refusals

NEAR = 0.5
"""The part of a rule's source, by weight, that must stand somewhere for that to count as near."""
_FAR = 2
"""Places told where nothing is near."""
_MISFIT = 0.3
"""What a cause costs where assignments are told apart by them."""
_CLOSED = 0.35
"""An assignment this good settles for its calls that nothing better is around."""


@dataclass(frozen=True, eq=False)
class Place:
    """A place where all or much of a rule's source stands."""

    rule: CompiledRule
    anchor: str
    """As the engine would name it; where the anchor is missing, the first call there is."""
    causes: tuple[Cause, ...]
    matched: int
    cost: float
    nodes: tuple[str, ...]
    source: Any
    whole: bool
    """No call is missing."""
    part: float
    """How much of the source is there, by weight."""
    site: Site


class Scan:
    """One graph as it is now."""

    def __init__(
        self,
        compiled: Compiled,
        graph: fx.Graph,
        tokens: range | None,
        fake_mode: Any,
        shape_env: Any,
        unseen: Unseen | None = None,
    ) -> None:
        self._compiled = compiled
        self._unseen = unseen or Unseen({}, ())
        known = Verdicts()
        signatures = Signatures(known.numbers)
        self._view = TolerantView(graph, compiled)
        check = FormCheck(compiled, shape_env, signatures)
        self._readings = Readings(compiled, self._view, check)
        sizes = Sizes(graph)

        def examiner_for(tokens: range | None) -> Examiner:
            return Examiner(compiled, shape_env, fake_mode, sizes, tokens, signatures, known)

        self._examiner_for = examiner_for
        self._examiner = examiner_for(tokens)
        self._examiners: dict[range, Examiner] = {}
        self._calls: dict[str, list[Recognised]] = {}
        self._places: dict[Assignment, Place] = {}
        self._graph = graph

    @cached_property
    def _nodes(self) -> dict[str, fx.Node]:
        return {node.name: node for node in self._graph.nodes}

    def calls_of(self, op: str) -> list[Recognised]:
        if op not in self._calls:
            self._calls[op] = list(self._readings.recogniser.all_of(op))
        return self._calls[op]

    def spellings(self, op: str) -> list[str]:
        """What else counts as an op: other ops, and that it may be written out."""
        found = list(self._compiled.forms.spellings.get(op, ()))
        written = any(True for _ in body_forms(self._compiled, op, 0))
        return [*found, "its decomposition"] if written else found

    # --- places ----------------------------------------------------------------------------------

    def places(self, rule: CompiledRule) -> list[Place]:
        """Where the rule fires or comes close, best first."""
        sketch = Sketch.of_rule(rule, self._compiled.forms)
        found = self._assignments(rule, sketch)
        parts = [_part(sketch, assignment) for assignment in found]
        near = [a for a, part in zip(found, parts, strict=True) if part >= NEAR]
        # Where nothing is near, the nearest there is says most.
        return [self._place(rule, sketch, assignment) for assignment in near or found[:_FAR]]

    def _assignments(self, rule: CompiledRule, sketch: Sketch) -> list[Assignment]:
        nearest = Nearest(sketch, self._view, self._readings)
        found: list[tuple[bool, float, Assignment]] = []
        closed: set[tuple[int, Any]] = set()
        for index in self._starts(sketch):
            for call in self.calls_of(sketch.body[index].op):
                if (index, _identity(call)) in closed:
                    continue
                ways = nearest.around(index, call)
                if not ways:
                    continue
                near = _part(sketch, ways[0]) >= NEAR
                tells = sketch.has_sizes and near
                cost, best = self._best(rule, sketch, ways) if tells else (ways[0].cost, ways[0])
                # of what is far, nobody knows how well the sizes fit
                found.append((sketch.has_sizes and not near, cost, best))
                if best.cost <= _CLOSED:
                    closed |= _pairs(best)
        return _without_worse(found)

    def _best(
        self, rule: CompiledRule, sketch: Sketch, ways: list[Assignment]
    ) -> tuple[float, Assignment]:
        """The one that fits best when the sizes are looked at as well, with what that costs."""
        misfits = [len(self._place(rule, sketch, way).causes) for way in ways]
        costs = [way.cost + _MISFIT * count for way, count in zip(ways, misfits, strict=True)]
        return min(zip(costs, ways, strict=True), key=lambda pair: pair[0])

    def _starts(self, sketch: Sketch) -> list[int]:
        """The calls to look around, rarest first."""
        occurs = self._readings.recogniser.occurs
        there = [i for i, call in enumerate(sketch.body) if occurs(call.op)]
        ops = [i for i in there if not sketch.body[i].op.startswith("prim.")]
        plain = [i for i in there if sketch.body[i].op not in ("prim.view", "prim.cast")]
        return sorted(ops or plain or there, key=lambda i: len(self.calls_of(sketch.body[i].op)))

    # --- everything that is in the way -----------------------------------------------------------

    def _place(self, rule: CompiledRule, sketch: Sketch, assignment: Assignment) -> Place:
        found = self._places.get(assignment)
        if found is None:
            found = self._places[assignment] = self._placed(rule, sketch, assignment)
        return found

    def _placed(self, rule: CompiledRule, sketch: Sketch, assignment: Assignment) -> Place:
        order = rule.path.order
        first = next(assignment.calls[i].node for i in order if i in assignment.calls)
        calls = [assignment.calls.get(i) or absent(sketch.body[i].op, first) for i in order]
        whole = len(assignment.calls) == len(order)
        told = Teller(sketch, assignment, self.spellings).causes()
        causes = [self._unseen.explained(cause, self._nodes) for cause in told]
        site = self._site(rule, assignment, calls)
        found = [*causes, *self._refusals(site, assignment, whole=whole)]
        nodes = [n.name for call in assignment.calls.values() for n in call.nodes]
        return Place(
            rule,
            calls[0].node.name,
            tuple(dict.fromkeys(found)),
            len(assignment.calls),
            assignment.cost,
            tuple(dict.fromkeys(nodes)),
            calls[0].node,
            whole,
            _part(sketch, assignment),
            site,
        )

    def _site(self, rule: CompiledRule, assignment: Assignment, calls: list[Recognised]) -> Site:
        slots = assignment.slots
        known = tuple(None if slot is UNSET else slot for slot in slots)
        site = draft(self._view, rule, known, tuple(calls))
        site.slots = tuple(slots)
        return site

    def holds(self, place: Place, tokens: range) -> bool:
        """Whether the conditions hold for a range of tokens, as far as they can be asked."""
        if tokens not in self._examiners:
            self._examiners[tokens] = self._examiner_for(tokens)
        problems = self._examiners[tokens].problems(place.site, whole=False)
        return not any(problem.kind.startswith("predicate") for problem in problems)

    def _refusals(self, site: Site, assignment: Assignment, *, whole: bool) -> Iterator[Cause]:
        rule = site.rule
        passed = {node.name for gap in assignment.gaps for node in gap.between}
        clean = whole and not assignment.gaps
        for problem in self._problems(site, whole=whole, clean=clean):
            if problem.kind == "extra user" and problem.about in passed:
                continue
            if problem.kind == "effect":
                problem = replace(problem, about=_name_of(site, problem.about))
            cause = of_problem(problem, rule.rule, site.anchor, self._nodes)
            node = self._nodes.get(cause.node or "")
            place = -1 if node is None else site.own.get(node, -1)
            if cause.code == "extra-user" and place >= 0:
                made = rule.path.order[place]
                cause = replace(cause, call=made, span=rule.rule.match[made].span)
            yield cause

    def _problems(self, site: Site, *, whole: bool, clean: bool) -> Iterator[Problem]:
        if whole:
            yield from problems(self._view, site)
            find_ends(site)
        yield from refusals(site.rule, site.calls)
        yield from self._examiner.problems(site, whole=clean)
        if not clean:
            return
        other = misread(self._view, site)
        if other is not None:
            yield other
        place = find_place(self._view, site, lambda: _inputs(site))
        if isinstance(place, Problem):
            yield place


def _name_of(site: Site, node: str | None) -> str | None:
    """What the rule calls a node, where it is one of its inputs."""
    return next((name for name, value in site.inputs if value.name == node), node)


def _inputs(site: Site) -> list[Any]:
    return [*(value for _, value in (*site.inputs, *site.kept)), *site.layers()]


def _part(sketch: Sketch, assignment: Assignment) -> float:
    """How much of the source is there, by weight."""
    there = sum(sketch.weights[index] for index in assignment.calls)
    return there / sum(sketch.weights)


def _identity(call: Recognised) -> Any:
    return call.node, call.result(0)


def _pairs(assignment: Assignment) -> set[tuple[int, Any]]:
    return {(index, _identity(call)) for index, call in assignment.calls.items()}


def _without_worse(found: list[tuple[bool, float, Assignment]]) -> list[Assignment]:
    """Best first; of those that share a call only the best, unless all of the source is there."""
    kept: list[Assignment] = []
    taken: set[tuple[int, Any]] = set()
    known: set[frozenset[tuple[int, Any]]] = set()
    for *_, assignment in sorted(found, key=lambda one: one[:2]):
        pairs = frozenset(_pairs(assignment))
        if pairs in known or (assignment.gaps and not taken.isdisjoint(pairs)):
            continue
        known.add(pairs)
        taken |= pairs
        kept.append(assignment)
    return kept
