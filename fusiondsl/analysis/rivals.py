"""Rules that may want the same ops of one graph although nothing says which goes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusiondsl.analysis.overlay import OnCut, Overlay, overlays
from fusiondsl.analysis.side import Side, side_of
from fusiondsl.analysis.source import Source
from fusiondsl.analysis.spelled import Spelling, spellings
from fusiondsl.analysis.trial import Disjoint, Trial, find_trial
from fusiondsl.analysis.witness import witness_of
from fusiondsl.decl.primitives import CHEAP
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.ir.program import Program, Rule
from fusiondsl.ir.strata import strata

MOST_REPORTS = 20
"""After so many pairs the rest is not looked for."""

MOST_TRIALS = 1_000
"""How many pairs may be asked whether anything fits both."""

MOST_COMPARED = 10_000
"""How many pairs of sources are laid over each other."""

MOST_PAIRS = 200_000
"""How many pairs are looked at at all."""

Settled = Callable[[str, str], bool]


def find_rivals(
    sources: Sequence[Source],
    settled: Settled,
    program: Program,
    diagnostics: Diagnostics,
    on_cut: OnCut,
) -> None:
    """Reports pairs of rules that overlap without an order; `sources` stand in the order."""
    _Rivals(sources, settled, program, diagnostics, on_cut).run()


@dataclass(frozen=True)
class Entry:
    """A rule and where it stands."""

    source: Source
    place: int
    stratum: int

    @property
    def rule(self) -> Rule:
        return self.source.rule

    @cached_property
    def side(self) -> Side:
        return side_of(self.rule)

    @cached_property
    def claims(self) -> frozenset[str]:
        """Ops that two rules cannot both have: a cast or a view simply stays."""
        return frozenset(self.side.by_op) - CHEAP

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for rules that differ in names and scalars only."""
        source = self.source
        kept = sorted(source.names.get(name, name) for name in source.rule.kept)
        allowed = sorted(f"{a.kind}:{a.value}" for a in source.rule.allow)
        survivors = tuple(sorted(source.survivors))
        return source.skeleton, survivors, tuple(kept), tuple(allowed), self.stratum


class TooMany(Exception):
    """Why not all pairs are compared."""


class _Rivals:
    def __init__(
        self,
        sources: Sequence[Source],
        settled: Settled,
        program: Program,
        diagnostics: Diagnostics,
        on_cut: OnCut,
    ) -> None:
        levels = strata([source.rule for source in sources], program.ops)
        self.entries = [Entry(s, i, levels[s.rule.name]) for i, s in enumerate(sources)]
        self.spelled = Spelled(program)
        self.settled = settled
        self.program = program
        self.diagnostics = diagnostics
        self.on_cut = on_cut
        self._seen = 0
        self._compared = 0
        self._trials = 0
        self._found = 0

    def run(self) -> None:
        try:
            for first, second in self._groups():
                self._compare_groups(first, second)
        except TooMany as reason:
            self.diagnostics.warning("FD405", f"{reason}: further overlaps are not reported", None)

    def _groups(self) -> Iterator[tuple[list[Entry], list[Entry]]]:
        """Pairs of groups of one shape each that may share an op."""
        shapes: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            shapes[entry.shape].append(entry)
        by_op: dict[str, dict[int, list[Entry]]] = defaultdict(dict)
        for number, members in enumerate(shapes.values()):
            meets = self.spelled.meets(members[0])
            for op in meets:
                by_op[op][number] = members
            partners = {n: other for op in meets for n, other in by_op[op].items()}
            for partner in sorted(partners):
                self._look()
                yield partners[partner], members

    def _look(self) -> None:
        self._seen += 1
        if self._seen > MOST_PAIRS:
            raise TooMany(self._too_many())

    def _too_many(self) -> str:
        return f"{len(self.entries)} rules are too many to compare each with each"

    def _compare_groups(self, one: list[Entry], other: list[Entry]) -> None:
        if len(one) == len(other) == 1:
            if one is not other:
                self._compare(*_in_order(one[0], other[0]))
            return
        if not self._may_meet(one[0], other[0]):
            return
        for index, first in enumerate(one):
            for second in other[index + 1 :] if one is other else other:
                self._look()
                self._compare(*_in_order(first, second))

    def _may_meet(self, one: Entry, other: Entry) -> bool:
        """Could rules of these shapes overlap, whatever their scalars are?"""
        cut: list[Rule] = []
        found = any(
            contested(overlay) or contested(overlay.mirrored())
            for left, right in self.spelled.pairs(one, other)
            for overlay in overlays(left, right, lambda a, _: cut.append(a), literals=False)
        )
        return found or bool(cut)

    def _compare(self, first: Entry, second: Entry) -> None:
        if first.stratum != second.stratum or self.settled(first.rule.name, second.rule.name):
            return
        self._compared += 1
        if self._compared > MOST_COMPARED:
            raise TooMany(self._too_many())
        for left, right in self.spelled.pairs(first, second):
            for overlay in overlays(left, right, self.on_cut):
                if contested(overlay):
                    trial = self._trial(overlay)
                    if not isinstance(trial, Disjoint):
                        self._report(overlay, trial)
                        return

    def _trial(self, overlay: Overlay) -> Trial | Disjoint | None:
        self._trials += 1
        if self._trials > MOST_TRIALS:
            raise TooMany(self._too_many())
        if self._found == MOST_REPORTS:
            raise TooMany(f"{MOST_REPORTS} pairs of rules overlap")
        return find_trial(overlay, self.program)

    def _report(self, overlay: Overlay, trial: Trial | None) -> None:
        self._found += 1
        first, second = overlay.left.rule, overlay.right.rule
        shared = dict.fromkeys(overlay.left.calls[i].op for i in overlay.shared)
        ops = ", ".join(f"`{op.removeprefix('prim.')}`" for op in shared)
        notes = [f"both match {ops}, and neither source contains the other"]
        witness = None if trial is None else witness_of(trial, self.program)
        if trial is None:
            notes.append("no sizes were found for which both fit, nor a reason why there are none")
        elif witness is None:
            notes.append("something fits both, but FX has no text for a call in it")
        self.diagnostics.warning(
            "FD405",
            f"`{first.name}` takes ops from `{second.name}`, but no order is stated",
            second.span,
            labels=[] if first.span is None else [Label(first.span, "goes first")],
            notes=notes,
            help=f"write `before {first.name}` or `after {first.name}`, or make their `where` "
            "exclude each other",
            witness=witness,
        )


def contested(overlay: Overlay) -> bool:
    """Both fire alone, and the left one takes from the right one.

    Inside a form, a cast or a view that happens to be what another rule reads makes no pair.
    """
    if not (overlay.partial and overlay.left_wins and overlay.both_fire):
        return False
    shared = (overlay.left.calls[i].op for i in overlay.shared)
    written = not (overlay.left.spelled or overlay.right.spelled)
    return written or any(op not in CHEAP for op in shared)


def _in_order(one: Entry, other: Entry) -> tuple[Entry, Entry]:
    return (one, other) if one.place < other.place else (other, one)


class Spelled:
    """The spellings of sources, each made when it is first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[int, list[tuple[frozenset[str], Spelling]]] = {}
        self._sides: dict[int, Side | None] = {}

    def pairs(self, first: Entry, second: Entry) -> Iterator[tuple[Side, Side]]:
        """Both sources as written, then either with an op written out so that they may meet."""
        yield first.side, second.side
        for left in self._forms(first, second):
            yield left, second.side
        for right in self._forms(second, first):
            yield first.side, right

    def meets(self, entry: Entry) -> frozenset[str]:
        """Ops through which a source may meet another, in any spelling."""
        found = frozenset().union(*(ops for ops, _ in self._spellings(entry))) - CHEAP
        return found.union(entry.side.by_op)

    def _forms(self, entry: Entry, other: Entry) -> Iterator[Side]:
        for ops, spelling in self._spellings(entry):
            if ops & other.claims:
                if id(spelling) not in self._sides:
                    self._sides[id(spelling)] = spelling.side_of()
                side = self._sides[id(spelling)]
                if side is not None:
                    yield side

    def _spellings(self, entry: Entry) -> list[tuple[frozenset[str], Spelling]]:
        known = self._known.get(entry.place)
        if known is None:
            found = spellings(entry.side, self._program.ops)
            known = self._known[entry.place] = [(s.ops, s) for s in found]
        return known
