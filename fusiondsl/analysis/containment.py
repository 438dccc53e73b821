"""Which sources can meet, and which contain others, without comparing all with all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from fusiondsl.analysis.side import Side, side_of
from fusiondsl.analysis.source import Source, contains, contains_calls
from fusiondsl.analysis.spelled import Spelling, spellings
from fusiondsl.ir.program import OpDecl, Rule

MAX_PARTNERS = 20
"""How many rules with one and the same source are compared pair by pair with each of them."""


def speciality(rule: Rule) -> tuple[int, int, int, str]:
    return -len(rule.match), len(rule.outputs) + len(rule.kept), -len(rule.where), rule.name


def meeting(
    members: list[Source], on_skip: Callable[[int], None]
) -> Iterator[tuple[Source, Source]]:
    """Pairs of one skeleton whose literals do not exclude each other.

    `on_skip` is told how many pairs are left out.
    """
    by_mask: dict[tuple[int, ...], list[Source]] = defaultdict(list)
    for source in members:
        by_mask[tuple(sorted(source.literal_positions))].append(source)
    masks = sorted(by_mask)
    for index, mask in enumerate(masks):
        yield from _within(by_mask[mask], mask, on_skip)
        for other in masks[index + 1 :]:
            common = tuple(sorted(set(mask) & set(other)))
            yield from _between(by_mask[mask], by_mask[other], common, on_skip)


def _within(
    members: list[Source], mask: tuple[int, ...], on_skip: Callable[[int], None]
) -> Iterator[tuple[Source, Source]]:
    for same in _by_literals(members, mask).values():
        for index, source in enumerate(same):
            yield from _some(source, same[index + 1 :], on_skip)


def _between(
    left: list[Source],
    right: list[Source],
    common: tuple[int, ...],
    on_skip: Callable[[int], None],
) -> Iterator[tuple[Source, Source]]:
    others = _by_literals(right, common)
    for literals, sources in _by_literals(left, common).items():
        for source in sources:
            yield from _some(source, others.get(literals, []), on_skip)


def _some(
    source: Source, others: list[Source], on_skip: Callable[[int], None]
) -> Iterator[tuple[Source, Source]]:
    yield from ((source, other) for other in others[:MAX_PARTNERS])
    if len(others) > MAX_PARTNERS:
        on_skip(len(others) - MAX_PARTNERS)


def _by_literals(
    members: list[Source], positions: tuple[int, ...]
) -> dict[tuple[str | None, ...], list[Source]]:
    found: dict[tuple[str | None, ...], list[Source]] = defaultdict(list)
    for source in members:
        found[tuple(source.scalars[i] for i in positions)].append(source)
    for same in found.values():
        same.sort(key=lambda source: speciality(source.rule))
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


def containing_spelled(
    groups: Sequence[Sequence[Source]], ops: Mapping[str, OpDecl]
) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of groups where one contains the other once an op is written out.

    What is written out goes before what stands for it, where both sources are as large.
    """
    sides = [side_of(members[0].rule) for members in groups]
    pairs = set(_spelled_pairs(sides, ops))
    yield from (pair for pair in sorted(pairs) if pair[::-1] not in pairs)


def _spelled_pairs(sides: Sequence[Side], ops: Mapping[str, OpDecl]) -> Iterator[tuple[int, int]]:
    by_op: dict[str, list[int]] = defaultdict(list)
    for number, side in enumerate(sides):
        for op in side.by_op:
            by_op[op].append(number)
    for number, side in enumerate(sides):
        for spelling in spellings(side, ops):
            around = Counter(c.op for i, c in enumerate(side.calls) if i != spelling.index)
            body = Counter(call.op for call in spelling.form.body)
            for other in _near(body, around, sides, by_op):
                if other != number:
                    yield from _spelled_pair(number, spelling, other, sides[other])


def _near(
    body: Counter[str], around: Counter[str], sides: Sequence[Side], by_op: Mapping[str, list[int]]
) -> Iterator[int]:
    """Sources with an op of a form that either fit into a spelled source or hold it."""
    rarest = min(body, key=lambda op: (len(by_op.get(op, ())), op))
    whole = body + around
    found = {number for op in body for number in by_op.get(op, ()) if not sides[number].ops - whole}
    found.update(number for number in by_op.get(rarest, ()) if not whole - sides[number].ops)
    yield from sorted(found)


def _spelled_pair(
    number: int, spelling: Spelling, other: int, written: Side
) -> Iterator[tuple[int, int]]:
    spelled = spelling.side_of()
    if spelled is None:
        return
    if contains_calls(spelled.calls, written.calls):
        larger = len(spelled.calls) > len(written.calls)
        yield (number, other) if larger else (other, number)
    elif contains_calls(written.calls, spelled.calls):
        yield other, number
