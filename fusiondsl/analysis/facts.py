"""What `where` says, as facts for the comparison of types."""

from __future__ import annotations

from collections.abc import Iterable

from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import conjuncts
from fusiondsl.analysis.scope import Scope
from fusiondsl.dims.expr import Binary, Expr, Literal, Name, Sequence
from fusiondsl.ir.program import Condition


def assume(conditions: Iterable[Condition], scope: Scope, dtypes: DTypes) -> None:
    """Learns from conditions that have to hold; what they are too complicated for is left out."""
    for condition in conditions:
        for part in conjuncts(condition.expr):
            if isinstance(part, Binary):
                _assume_one(part, scope, dtypes)


def _assume_one(part: Binary, scope: Scope, dtypes: DTypes) -> None:
    match part:
        case Binary(op="==", left=Name(id="env.arch"), right=Literal(value=str() as arch)):
            dtypes.assume_archs([arch])
        case Binary(op="in", left=Name(id="env.arch"), right=Sequence() as archs):
            names = [a.value for a in archs.items if isinstance(a, Literal)]
            dtypes.assume_archs([n for n in names if isinstance(n, str)])
        case Binary(op="==", left=Binary(op="%") as rest, right=Literal(value=0)):
            scope.sizes.assume_multiple(rest.left, rest.right)
        case Binary(op="!=", left=Name() as name, right=Literal(value=None)):
            scope.present.add(name.id)
        case Binary(op="==", left=left, right=right):
            _assume_equal(left, right, scope, dtypes)
        case Binary(op="in", left=Name() as name, right=Sequence() as members):
            _assume_member(name, members, scope, dtypes)


def _assume_equal(left: Expr, right: Expr, scope: Scope, dtypes: DTypes) -> None:
    a, b = _dtype(left, scope), _dtype(right, scope)
    if a is not None and b is not None:
        dtypes.assume_equal(a, b)
    elif a is None and b is None:
        scope.sizes.assume_equal(left, right)


def _assume_member(name: Name, members: Sequence, scope: Scope, dtypes: DTypes) -> None:
    names = [_dtype(m, scope) for m in members.items]
    if _dtype(name, scope) is None or None in names:
        return
    dtypes.assume_in(name.id, frozenset(n for n in names if n is not None))


def _dtype(expr: Expr, scope: Scope) -> str | None:
    if not isinstance(expr, Name):
        return None
    known = scope.is_dtype(expr.id) or scope.is_dtype_param(expr.id)
    return expr.id if known else None
