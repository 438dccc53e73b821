"""Moving what a condition has to permit: out of a padding, and into an op that works by groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusiondsl.decl.axioms import GROUPED, Grouped
from fusiondsl.proof import attrs
from fusiondsl.proof.known import Known
from fusiondsl.proof.size import Size
from fusiondsl.proof.terms import Shape, Term
from fusiondsl.proof.values import Context

_LAST = Size.const(-1)


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice of a padded tensor that is the tensor, where neither end was cut off instead."""

    inner: Term
    added: tuple[Size, Size]

    def missing(self, known: Known) -> str | None:
        """The first fact that the move needs and nobody states."""
        open = next((size for size in self.added if not known.is_natural(size)), None)
        return None if open is None else f"nothing says that `{open}` is not negative"


@dataclass(frozen=True, slots=True)
class Regrouping:
    """A view of a result of `call` that is the result for a view of its operand."""

    call: Term
    group: Size
    shape: Shape
    """That of the operand's view."""

    def missing(self, known: Known) -> str | None:
        """The first fact that the move needs and nobody states."""
        rows = (self.call.args[0].shape[-1], self.shape[-1])
        open = next((row for row in rows if not known.divides(self.group, row)), None)
        return None if open is None else f"nothing says that `{self.group}` divides `{open}`"


Move = Cut | Regrouping


def move(context: Context, term: Term) -> Move | None:
    """What `term` is where the facts permit it."""
    find = _MOVES.get((term.op, term.args[0].op)) if term.args else None
    return None if find is None else find(context, term)


def _cut(context: Context, term: Term) -> Cut | None:
    (padded,) = term.args
    (x,) = padded.args
    before, after = (attrs.size(mark) for mark in padded.attrs[:2] if isinstance(mark, tuple))
    axis, start, stop = (mark[1] for mark in term.attrs if isinstance(mark, tuple))
    if before is None or after is None or (axis, start) != (_LAST, before):
        return None
    return Cut(x, (before, after)) if stop == before + x.shape[-1] else None


def _regrouping(context: Context, term: Term) -> Regrouping | None:
    (call,) = term.args
    (_, name), *given, (_, position) = (mark for mark in call.attrs if isinstance(mark, tuple))
    grouped = GROUPED.get(name)
    if grouped is None or not term.shape or not context.ops[name].axiom:
        return None
    passed = {mark[0]: mark[1] for mark in given}
    group = _group(grouped, passed)
    if group is None or any(passed.get(p) != ("bool", v) for p, v in grouped.only_where.items()):
        return None
    per_element = grouped.per_element[position]
    row = term.shape[-1] * (group if per_element is None else Size.const(per_element))
    return Regrouping(call, group, (*term.shape[:-1], row))


def _group(grouped: Grouped, passed: Mapping[str, attrs.Attr]) -> Size | None:
    if isinstance(grouped.group, int):
        return Size.const(grouped.group)
    mark = passed.get(grouped.group)
    return attrs.size(mark) if isinstance(mark, tuple) else None


_MOVES: Mapping[tuple[str, str], Callable[[Context, Term], Move | None]] = {
    ("slice", "pad"): _cut,
    ("view", "call"): _regrouping,
}
