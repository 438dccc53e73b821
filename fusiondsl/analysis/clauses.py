"""Clauses that ops and rules share: conditions, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusiondsl.analysis.conditions import ExprChecker
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.readers import is_about_readers
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.sizes import Sizes
from fusiondsl.diagnostics.diagnostic import Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Binary, Expr, Name
from fusiondsl.ir.program import UNREAD, Condition, Difference, TensorType, Type
from fusiondsl.syntax import ast

DIFFERENCES = (
    "round",
    "assoc",
    "recip",
    "reduce_order",
    "neg_zero",
    "amax_floor",
    "saturate",
    "relayout",
    UNREAD,
    "unproved",
)


def conditions(
    written: Iterable[ast.Condition], scope: Scope, *, about_readers: bool = False
) -> tuple[Condition, ...]:
    """Checked conditions, lets put in; labels are unique.

    With `about_readers` those about readers are left to who knows the values of the rule.
    """
    labels: dict[str, Span] = {}
    checked: list[Condition] = []
    for item in written:
        if item.label is not None:
            _claim_label(item.label, labels, scope)
        if about_readers and is_about_readers(item.expr):
            continue
        expr = ExprChecker(scope).condition(item.expr)
        checked.append(Condition(item.label.name if item.label else None, expr, item.span))
    return tuple(checked)


def _claim_label(label: ast.Ident, labels: dict[str, Span], scope: Scope) -> None:
    first = labels.setdefault(label.name, label.span)
    if first is not label.span:
        scope.diagnostics.error(
            "FD107",
            f"the label `{label.name}` stands twice",
            label.span,
            labels=[Label(first, "first here")],
        )


def learned(
    dtypes: DTypes, sizes: Sizes, known: Iterable[Condition], optional: set[str]
) -> tuple[Condition, ...]:
    """What a pattern takes for granted, as conditions that nobody has to write.

    `optional` holds the dtypes of inputs that may be `none`: they have no dtype then.
    """
    written = {c.expr for c in known}
    pairs: list[tuple[Expr, Expr]] = [
        (Name(a), Name(b)) for a, b in dtypes.learned if a not in optional and b not in optional
    ]
    pairs.extend(sizes.learned)
    made = (Condition(None, Binary("==", a, b)) for a, b in pairs)
    return tuple(dict.fromkeys(c for c in made if c.expr not in written))


def optional_dtypes(types: Iterable[Type | None]) -> set[str]:
    return {t.dtype for t in types if isinstance(t, TensorType) and t.optional}


def differences(
    written: Iterable[ast.Difference],
    scope: Scope,
    is_value: Callable[[str], bool],
    *,
    of_rule: bool = False,
) -> tuple[Difference, ...]:
    checked: list[Difference] = []
    for item in written:
        kind = item.kind.name
        if kind not in DIFFERENCES:
            scope.diagnostics.error(
                "FD116",
                f"unknown difference `{kind}`",
                item.kind.span,
                notes=[f"differences are {', '.join(DIFFERENCES)}"],
                help=did_you_mean(kind, DIFFERENCES),
            )
            continue
        if kind == UNREAD and (item.value is None or not of_rule):
            scope.diagnostics.error(
                "FD236",
                f"`{UNREAD}` is said about one value that a rule replaces",
                item.span,
                help=f"write `allow {{ {UNREAD}: value }}`",
            )
            continue
        if item.value is not None and not is_value(item.value.name):
            scope.diagnostics.error("FD110", f"unknown value `{item.value.name}`", item.value.span)
            continue
        checked.append(Difference(kind, item.value.name if item.value else None))
    return tuple(checked)
