"""Terms: what a value is computed by, shared wherever two are equal."""

from __future__ import annotations

from collections.abc import Container, Hashable
from dataclasses import dataclass

from fusiondsl.proof.size import Size

Shape = tuple[Size, ...]

REAL = "real"
"""The format of values whose roundings do not count."""

UNSETTLED = frozenset(("maybe_round", "empty", "unrounded"))
"""Operations that give one thing here and another there."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One node. Two equal terms of one pool are one object, so identity is equality.

    `format` is the dtype whose values it takes: arithmetic happens in that dtype, and a `cast`
    is the only place where something is rounded.
    """

    op: str
    args: tuple[Term, ...]
    attrs: tuple[Hashable, ...]
    format: str
    shape: Shape
    number: int
    """Order of creation: arguments have lower numbers."""
    settled: bool
    """Does it stand for one value? `round?`, fresh memory, and what reads them, do not."""


class Pool:
    """All terms of one proof."""

    def __init__(self) -> None:
        self._terms: dict[Hashable, Term] = {}

    def make(
        self,
        op: str,
        args: tuple[Term, ...] = (),
        attrs: tuple[Hashable, ...] = (),
        format: str = "",
        shape: Shape = (),
    ) -> Term:
        key = (op, args, attrs, tuple(map(type, attrs)), format, shape)
        term = self._terms.get(key)
        if term is None:
            settled = op not in UNSETTLED and all(arg.settled for arg in args)
            number = len(self._terms)
            term = self._terms[key] = Term(op, args, attrs, format, shape, number, settled)
        return term

    def scalar(self, value: Hashable) -> Term:
        """A number or another value that is no tensor; `value` is an attribute, see `attrs`."""
        return self.make("scalar", attrs=(value,))

    def unknown(self, op: str, format: str, shape: Shape) -> Term:
        """A term that is equal to nothing else."""
        return self.make(op, attrs=(len(self._terms),), format=format, shape=shape)


def subterms(term: Term, known: Container[Term] = ()) -> list[Term]:
    """`term` and all below it, each once, arguments first; nothing below what is `known`."""
    seen: set[Term] = set()
    order: list[Term] = []
    pending: list[tuple[Term, bool]] = [(term, False)]
    while pending:
        node, done = pending.pop()
        if done:
            order.append(node)
        elif node not in seen and node not in known:
            seen.add(node)
            pending.append((node, True))
            pending.extend((arg, False) for arg in reversed(node.args))
    return order


def shape_of(*shapes: Shape) -> Shape | None:
    """The shape of operands broadcast together; None where that depends on the sizes."""
    result: list[Size] = []
    rank = max(map(len, shapes))
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis}
        wide = [size for size in sizes if size.value != 1]
        if len(wide) > 1:
            return None
        result.append(wide[0] if wide else next(iter(sizes)))
    return tuple(result)
