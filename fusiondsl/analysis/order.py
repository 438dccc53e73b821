"""The order of rules, computed from what they match; independent of files and of hashing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

from fusiondsl.analysis.chains import check_chains
from fusiondsl.analysis.containment import (
    containing,
    containing_spelled,
    meeting,
    speciality,
)
from fusiondsl.analysis.implication import implied, takes_all, whole_overlay
from fusiondsl.analysis.overlap import Candidate, demands_of, may_shadow, prefer
from fusiondsl.analysis.rivals import find_rivals
from fusiondsl.analysis.source import Source, replacement_text, source_of
from fusiondsl.analysis.trial import Disjoint, Trial, find_trial
from fusiondsl.analysis.unfinished import Unfinished
from fusiondsl.analysis.witness import witness_of
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.ir.program import Program, Rule
from fusiondsl.ir.strata import strata

MAX_REPORTS = 20
"""After so many pairs without an order the rest is only counted."""


MAX_LOOKS = 2_000
"""How many pairs with equal or contained sources are asked what follows from their conditions."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A written `before` or `after`."""

    first: str
    second: str
    span: Span


def arrange(
    rules: Sequence[Rule],
    stated: Iterable[Stated],
    program: Program,
    diagnostics: Diagnostics,
) -> tuple[Rule, ...]:
    """The rules in their order. `program` has everything else that the files declare."""
    return _Arrangement(rules, stated, program, diagnostics).run()


class _Arrangement:
    def __init__(
        self,
        rules: Sequence[Rule],
        stated: Iterable[Stated],
        program: Program,
        diagnostics: Diagnostics,
    ) -> None:
        self.rules = {rule.name: rule for rule in sorted(rules, key=lambda r: r.name)}
        known = self.rules.keys()
        self.stated = [s for s in stated if s.first in known and s.second in known]
        self.program = program
        self.ops = program.ops
        self.diagnostics = diagnostics
        self._later: dict[str, set[str]] = defaultdict(set)
        for item in self.stated:
            self._later[item.first].add(item.second)
        self._edges: dict[str, set[str]] = defaultdict(set)
        self._undecided = 0
        self._looks = 0
        self._dead: set[str] = set()
        self._unfinished = Unfinished()
        self._sizes: dict[str, int] = {}
        self._done: list[str] = []
        """All nodes in an order that the edges allow."""
        self._levels: dict[str, int] = {}

    def run(self) -> tuple[Rule, ...]:
        groups: dict[str, list[Source]] = defaultdict(list)
        for rule in self.rules.values():
            source = source_of(rule)
            groups[source.skeleton].append(source)
        self._levels = strata(tuple(self.rules.values()), self.ops)
        check_chains(
            (s for members in groups.values() for s in members), self.ops, self.diagnostics
        )
        ordered = list(groups.values())
        for number, members in enumerate(ordered):
            self._frame(number, members)
            self._order_equals(members)
        for outer, inner in (*containing(ordered), *containing_spelled(ordered, self.ops)):
            self._contain(ordered, outer, inner)
        for item in self.stated:
            self._edges[item.first].add(item.second)
        self._too_many()
        names = self._sorted()
        if not self.diagnostics.has_errors:
            sources = {s.rule.name: s for members in ordered for s in members}
            in_order = [sources[name] for name in names]
            cut = self._unfinished.cut
            find_rivals(in_order, self._settled, self.program, self.diagnostics, cut)
            self._unfinished.report(self.diagnostics)
        return tuple(replace(self.rules[name], order=i) for i, name in enumerate(names))

    def _frame(self, number: int, members: list[Source]) -> None:
        """A node before and one behind each group: few edges however many rules it has."""
        for source in members:
            self._edges[_start(number)].add(source.rule.name)
            self._edges[source.rule.name].add(_end(number))

    def _contain(self, groups: Sequence[Sequence[Source]], outer: int, inner: int) -> None:
        """Larger sources first, unless a statement or a chain has it the other way round."""
        larger, smaller = groups[outer], groups[inner]
        if not self._reversed(larger, smaller):
            self._edges[_end(outer)].add(_start(inner))
            return
        for one in larger:
            for other in smaller:
                if self._leads(other.rule.name, one.rule.name) or self._sooner(other, one):
                    self._hide(other.rule, one.rule)
                else:
                    self._edges[one.rule.name].add(other.rule.name)

    def _reversed(self, larger: Sequence[Source], smaller: Sequence[Source]) -> bool:
        """Some rule with the smaller source goes before one with the larger."""
        if max(self._level(s) for s in larger) > min(self._level(s) for s in smaller):
            return True
        names = {source.rule.name for source in larger}
        return any(
            names & _reach(source.rule.name, self._later)
            for source in smaller
            if source.rule.name in self._later
        )

    def _sooner(self, one: Source, other: Source) -> bool:
        return self._level(one) < self._level(other)

    def _level(self, source: Source) -> int:
        return self._levels[source.rule.name]

    def _hide(self, first: Rule, second: Rule) -> None:
        """Reports `second` if `first`, tried before it, takes all of its sites."""
        self._looks += 1
        if second.name in self._dead:
            return
        if self._looks > MAX_LOOKS:
            self._unfinished.unasked += 1
            return
        overlay = takes_all(first, second, self.program, self._unfinished.cut)
        if overlay is not None:
            self._dead.add(second.name)
            self._shadowed(first, second, find_trial(overlay, self.program))

    # --- equal sources -------------------------------------------------------------------------

    def _order_equals(self, members: list[Source]) -> None:
        if len(members) < 2:
            return
        candidates = {s.rule.name: self._candidate(s) for s in members}
        for a, b in meeting(members, self._not_met):
            self._order_pair(candidates[a.rule.name], candidates[b.rule.name])

    def _not_met(self, pairs: int) -> None:
        self._unfinished.unmet += pairs

    def _candidate(self, source: Source) -> Candidate:
        return Candidate(source, demands_of(source, self.program), replacement_text(source))

    def _order_pair(self, a: Candidate, b: Candidate) -> None:
        one, other = a.source.rule.name, b.source.rule.name
        verdict = self._stated_order(one, other)
        if verdict is None:
            verdict = prefer(a, b)
        if verdict is None:
            verdict = self._by_what_follows(a.source.rule, b.source.rule)
        if verdict is None:
            return
        first, second = (a, b) if verdict <= 0 else (b, a)
        if verdict != 0:
            self._edges[first.source.rule.name].add(second.source.rule.name)
        elif a.replacement != b.replacement:
            return
        if may_shadow(first, second):
            self._hide(first.source.rule, second.source.rule)

    def _by_what_follows(self, a: Rule, b: Rule) -> int | None:
        """As `prefer`, by what conditions imply; None where nothing decides, which is reported."""
        self._looks += 1
        overlay = whole_overlay(a, b) if self._looks <= MAX_LOOKS else None
        if overlay is None:
            self._report(a, b, None)
            return None
        rarer = implied(overlay.mirrored(), self.program)
        if rarer != implied(overlay, self.program):
            return -1 if rarer else 1
        trial = find_trial(overlay, self.program)
        if not isinstance(trial, Disjoint):
            self._report(a, b, trial)
        return None

    def _stated_order(self, one: str, other: str) -> int | None:
        if not self._later:
            return None
        if self._leads(one, other):
            return -1
        return 1 if self._leads(other, one) else None

    def _leads(self, start: str, goal: str) -> bool:
        return goal in _reach(start, self._later)

    def _report(self, a: Rule, b: Rule, trial: Trial | None) -> None:
        self._undecided += 1
        if self._undecided > MAX_REPORTS:
            return
        labels = [Label(a.span, f"`{a.name}`")] if a.span is not None else []
        self.diagnostics.error(
            "FD401",
            f"`{b.name}` and `{a.name}` match the same, and neither is the more special one",
            b.span,
            labels=labels,
            help=f"write `before {a.name}` or `after {a.name}`, or make their `where` exclude "
            "each other",
            witness=None if trial is None else witness_of(trial, self.program),
        )

    def _too_many(self) -> None:
        rest = self._undecided - MAX_REPORTS
        if rest > 0:
            self.diagnostics.error("FD401", f"{rest} more pairs of rules have no order", None)

    def _shadowed(self, first: Rule, second: Rule, trial: Trial | Disjoint | None) -> None:
        labels = [Label(first.span, "this rule takes every such site")] if first.span else []
        self.diagnostics.warning(
            "FD404",
            f"`{second.name}` can never fire: `{first.name}` goes first and fits whenever it does",
            second.span,
            labels=labels,
            witness=witness_of(trial, self.program) if isinstance(trial, Trial) else None,
        )

    def _settled(self, first: str, second: str) -> bool:
        """Something says that `first` goes before `second`: what they match, or a statement."""
        return bool(self._behind[first] >> self._places[second] & 1)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.rules)}

    @cached_property
    def _behind(self) -> dict[str, int]:
        """For each node the rules that some way leads to, a bit each."""
        found: dict[str, int] = {}
        for node in reversed(self._done):
            mask = 0
            for target in self._edges.get(node, ()):
                mask |= found[target]
                if target in self._places:
                    mask |= 1 << self._places[target]
            found[node] = mask
        return found

    # --- sorting -------------------------------------------------------------------------------

    def _sorted(self) -> list[str]:
        waiting = Counter(target for targets in self._edges.values() for target in targets)
        nodes = {*self.rules, *self._edges}
        ready = [self._key(n) for n in nodes if not waiting[n]]
        heapify(ready)
        names: list[str] = []
        done = self._done
        while ready:
            name = heappop(ready)[-1]
            done.append(name)
            if name in self.rules:
                names.append(name)
            for target in self._edges.get(name, ()):
                waiting[target] -= 1
                if not waiting[target]:
                    heappush(ready, self._key(target))
        if len(done) < len(nodes):
            self._cycle(nodes - set(done))
            names.extend(sorted(self.rules.keys() - set(done)))
        return names

    def _key(self, name: str) -> tuple[int, int, int, int, str]:
        """Larger and more special rules first, then by name; other nodes as early as possible."""
        rule = self.rules.get(name)
        if rule is None:
            return -1_000_000, 0, 0, 0, name
        calls, results, conditions, _ = speciality(rule)
        size = sum(self._spelled(call.op) for call in rule.match)
        return calls, -size, results, conditions, name

    def _spelled(self, op: str) -> int:
        """How many calls the longest spelling of an op has: an add and a norm beat a norm."""
        known = self._sizes.get(op)
        if known is None:
            self._sizes[op] = 1
            forms = self.ops[op].forms if op in self.ops else ()
            bodies = [sum(self._spelled(call.op) for call in form.body) for form in forms]
            known = self._sizes[op] = max(bodies, default=1)
        return known

    def _cycle(self, left: set[str]) -> None:
        """Follows what waits for each other until a node comes again."""
        before: dict[str, str] = {}
        for name in sorted(left):
            for target in self._edges.get(name, ()):
                if target in left:
                    before.setdefault(target, name)
        path = [min(left)]
        while before[path[-1]] not in path:
            path.append(before[path[-1]])
        circle = path[path.index(before[path[-1]]) :][::-1]
        names = [n for n in circle if n in self.rules]
        spans = [s for s in self.stated if s.first in names or s.second in names]
        self.diagnostics.error(
            "FD402",
            "the order of rules runs in a circle",
            spans[0].span if spans else self.rules[names[0]].span,
            notes=[
                " before ".join(f"`{n}`" for n in [*names, names[0]]),
                "a rule goes before those whose source its own source contains",
            ],
        )


def _reach(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """All that some way leads to."""
    seen, pending = {start}, [start]
    while pending:
        for name in edges.get(pending.pop(), ()):
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return seen - {start}


def _start(number: int) -> str:
    return f"<{number}"


def _end(number: int) -> str:
    return f">{number}"
