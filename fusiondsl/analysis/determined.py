"""Which sizes of a declaration follow from others, and the parts of a split that tell none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusiondsl.analysis.scope import Scope
from fusiondsl.dims.expr import Expr, Name
from fusiondsl.dims.names import names
from fusiondsl.ir.program import Call, Computed, Param, Step, TensorType


def determined(sizes: Iterable[Expr], scope: Scope) -> set[str]:
    """The names that `sizes` can be solved for, where each is a number that is known."""
    known = set(scope.scalars) | scope.spreads
    given = list(sizes)
    while True:
        solved = {
            unknown[0]
            for size in given
            if len(unknown := sorted(names(size) & scope.dims - known)) == 1
            and scope.sizes.solve(size, unknown[0], Name("size")) is not None
        }
        if not solved:
            return known
        known |= solved


def without_dropped_parts(
    steps: Sequence[Step], params: Iterable[Param], scope: Scope
) -> tuple[Step, ...]:
    """A part of a split that `_` drops need not stand in a graph, unless a size is read from it."""
    inputs = [
        size for param in params if isinstance(param.type, TensorType) for size in param.type.dims
    ]
    left = list(steps)
    for step in steps:
        if not _is_dropped(step):
            continue
        others = [other for other in left if other is not step]
        sizes = [*inputs, *(size for other in others for size in _limits(other))]
        wanted = {name for size in _limits(step) for name in names(size)}
        if wanted & scope.dims <= determined(sizes, scope):
            left = others
    return tuple(left)


def _is_dropped(step: Step) -> bool:
    return isinstance(step, Call) and step.op == "prim.slice" and step.results == (None,)


def _limits(step: Step) -> list[Expr]:
    if not isinstance(step, Call) or step.op != "prim.slice":
        return []
    return [arg.expr for arg in step.args if isinstance(arg, Computed)]
