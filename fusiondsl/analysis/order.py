"""The order of rules, computed from what they match; independent of files and of hashing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from fusiondsl.analysis.chains import check_chains
from fusiondsl.analysis.overlap import Candidate, demands_of, prefer, shadows
from fusiondsl.analysis.source import Source, contains, replacement_text, source_of
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.ir.program import OpDecl, Rule

MAX_REPORTS = 20
"""After so many pairs without an order the rest is only counted."""

MAX_PARTNERS = 20
"""How many rules with one and the same source are compared pair by pair with each of them."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A written `before` or `after`."""

    first: str
    second: str
    span: Span


def arrange(
    rules: Sequence[Rule],
    stated: Iterable[Stated],
    ops: Mapping[str, OpDecl],
    diagnostics: Diagnostics,
) -> tuple[Rule, ...]:
    return _Arrangement(rules, stated, ops, diagnostics).run()


class _Arrangement:
    def __init__(
        self,
        rules: Sequence[Rule],
        stated: Iterable[Stated],
        ops: Mapping[str, OpDecl],
        diagnostics: Diagnostics,
    ) -> None:
        self.rules = {rule.name: rule for rule in sorted(rules, key=lambda r: r.name)}
        known = self.rules.keys()
        self.stated = [s for s in stated if s.first in known and s.second in known]
        self.ops = ops
        self.diagnostics = diagnostics
        self._later: dict[str, set[str]] = defaultdict(set)
        for item in self.stated:
            self._later[item.first].add(item.second)
        self._edges: dict[str, set[str]] = defaultdict(set)
        self._undecided = 0
        self._dead: set[str] = set()
        self._sizes: dict[str, int] = {}

    def run(self) -> tuple[Rule, ...]:
        groups: dict[str, list[Source]] = defaultdict(list)
        for rule in self.rules.values():
            source = source_of(rule)
            groups[source.skeleton].append(source)
        check_chains((s for members in groups.values() for s in members), self.diagnostics)
        ordered = list(groups.values())
        for number, members in enumerate(ordered):
            self._frame(number, members)
            self._order_equals(members)
        for outer, inner in containing(ordered):
            self._edges[_end(outer)].add(_start(inner))
        for item in self.stated:
            self._edges[item.first].add(item.second)
        self._too_many()
        names = self._sorted()
        return tuple(replace(self.rules[name], order=i) for i, name in enumerate(names))

    def _frame(self, number: int, members: list[Source]) -> None:
        """A node before and one behind each group: few edges however many rules it has."""
        for source in members:
            self._edges[_start(number)].add(source.rule.name)
            self._edges[source.rule.name].add(_end(number))

    # --- equal sources -------------------------------------------------------------------------

    def _order_equals(self, members: list[Source]) -> None:
        if len(members) < 2:
            return
        candidates = {s.rule.name: self._candidate(s) for s in members}
        for a, b in meeting(members):
            self._order_pair(candidates[a.rule.name], candidates[b.rule.name])

    def _candidate(self, source: Source) -> Candidate:
        return Candidate(source, demands_of(source, self.ops), replacement_text(source))

    def _order_pair(self, a: Candidate, b: Candidate) -> None:
        one, other = a.source.rule.name, b.source.rule.name
        verdict = self._stated_order(one, other)
        if verdict is None:
            verdict = prefer(a, b)
        if verdict is None:
            self._report(a.source.rule, b.source.rule)
            return
        if verdict == 0:
            if a.replacement == b.replacement and shadows(a, b) and shadows(b, a):
                self._shadowed(a.source.rule, b.source.rule)
            return
        first, second = (a, b) if verdict < 0 else (b, a)
        self._edges[first.source.rule.name].add(second.source.rule.name)
        if shadows(first, second):
            self._shadowed(first.source.rule, second.source.rule)

    def _stated_order(self, one: str, other: str) -> int | None:
        if not self._later:
            return None
        if self._leads(one, other):
            return -1
        return 1 if self._leads(other, one) else None

    def _leads(self, start: str, goal: str) -> bool:
        seen, pending = {start}, [start]
        while pending:
            for name in self._later.get(pending.pop(), ()):
                if name == goal:
                    return True
                if name not in seen:
                    seen.add(name)
                    pending.append(name)
        return False

    def _report(self, a: Rule, b: Rule) -> None:
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
        )

    def _too_many(self) -> None:
        rest = self._undecided - MAX_REPORTS
        if rest > 0:
            self.diagnostics.error("FD401", f"{rest} more pairs of rules have no order", None)

    def _shadowed(self, first: Rule, second: Rule) -> None:
        if second.name in self._dead:
            return
        self._dead.add(second.name)
        labels = [Label(first.span, "this rule takes every such site")] if first.span else []
        self.diagnostics.warning(
            "FD404",
            f"`{second.name}` can never fire: `{first.name}` goes first and fits whenever it does",
            second.span,
            labels=labels,
        )

    # --- sorting -------------------------------------------------------------------------------

    def _sorted(self) -> list[str]:
        waiting = Counter(target for targets in self._edges.values() for target in targets)
        nodes = {*self.rules, *self._edges}
        ready = [self._key(n) for n in nodes if not waiting[n]]
        heapify(ready)
        names: list[str] = []
        done = set()
        while ready:
            name = heappop(ready)[-1]
            done.add(name)
            if name in self.rules:
                names.append(name)
            for target in self._edges.get(name, ()):
                waiting[target] -= 1
                if not waiting[target]:
                    heappush(ready, self._key(target))
        if len(done) < len(nodes):
            self._cycle(nodes - done)
            names.extend(sorted(self.rules.keys() - done))
        return names

    def _key(self, name: str) -> tuple[int, int, int, int, str]:
        """Larger and more special rules first, then by name; other nodes as early as possible."""
        rule = self.rules.get(name)
        if rule is None:
            return -1_000_000, 0, 0, 0, name
        calls, results, conditions, _ = _speciality(rule)
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


def _speciality(rule: Rule) -> tuple[int, int, int, str]:
    return -len(rule.match), len(rule.outputs) + len(rule.kept), -len(rule.where), rule.name


def _start(number: int) -> str:
    return f"<{number}"


def _end(number: int) -> str:
    return f">{number}"


# --- pairs without comparing all with all --------------------------------------------------------


def meeting(members: list[Source]) -> Iterator[tuple[Source, Source]]:
    """Pairs of one skeleton whose literals do not exclude each other."""
    by_mask: dict[tuple[int, ...], list[Source]] = defaultdict(list)
    for source in members:
        by_mask[tuple(sorted(source.literal_positions))].append(source)
    masks = sorted(by_mask)
    for index, mask in enumerate(masks):
        yield from _within(by_mask[mask], mask)
        for other in masks[index + 1 :]:
            common = tuple(sorted(set(mask) & set(other)))
            yield from _between(by_mask[mask], by_mask[other], common)


def _within(members: list[Source], mask: tuple[int, ...]) -> Iterator[tuple[Source, Source]]:
    for same in _by_literals(members, mask).values():
        for index, source in enumerate(same):
            yield from ((source, other) for other in same[index + 1 : index + 1 + MAX_PARTNERS])


def _between(
    left: list[Source], right: list[Source], common: tuple[int, ...]
) -> Iterator[tuple[Source, Source]]:
    others = _by_literals(right, common)
    for literals, sources in _by_literals(left, common).items():
        for source in sources:
            yield from ((source, other) for other in others.get(literals, ())[:MAX_PARTNERS])


def _by_literals(
    members: list[Source], positions: tuple[int, ...]
) -> dict[tuple[str | None, ...], list[Source]]:
    found: dict[tuple[str | None, ...], list[Source]] = defaultdict(list)
    for source in members:
        found[tuple(source.scalars[i] for i in positions)].append(source)
    for same in found.values():
        same.sort(key=lambda source: _speciality(source.rule))
    return found


def containing(groups: Sequence[Sequence[Source]]) -> Iterator[tuple[int, int]]:
    """Pairs (outer, inner) of groups where one source contains the other."""
    count = Counter(op for members in groups for op in members[0].ops)
    by_rarest: dict[str, list[int]] = defaultdict(list)
    for number, members in enumerate(groups):
        rarest = min(members[0].ops, key=lambda op: (count[op], op), default="")
        by_rarest[rarest].append(number)
    for number, members in enumerate(groups):
        outer = members[0]
        for op in sorted(outer.ops):
            for other in by_rarest[op]:
                inner = groups[other][0]
                if len(inner.calls) < len(outer.calls) and contains(outer, inner):
                    yield number, other
