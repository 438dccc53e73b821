"""Extern predicates: questions about scalars whose answers come from outside."""

from __future__ import annotations

from collections.abc import Callable

from fusiondsl.analysis.modules import LoadedModule
from fusiondsl.analysis.names import Definitions
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.signature import Signature
from fusiondsl.diagnostics.diagnostic import Label
from fusiondsl.ir.program import Predicate
from fusiondsl.syntax import ast


def build_predicates(
    definitions: Definitions, scope_of: Callable[[LoadedModule], Scope]
) -> dict[str, Predicate]:
    built = {}
    for name in sorted(definitions.predicates):
        defined = definitions.predicates[name]
        scope = scope_of(defined.module)
        table = definitions.tables.get(name)
        if table is not None:
            scope.diagnostics.error(
                "FD101",
                f"the predicate `{name}` has the name of a table",
                defined.span,
                labels=[Label(table.span, "first defined here")],
            )
        built[name] = _build(defined.item, scope)
    return built


def _build(predicate: ast.Predicate, scope: Scope) -> Predicate:
    for param in predicate.params:
        kind = param.type
        plain = isinstance(kind, ast.ScalarType) and not kind.is_list and not kind.optional
        if not plain or param.kind != "read" or param.default is not None:
            scope.diagnostics.error(
                "FD221", "a predicate's parameter is one scalar, without a default", param.span
            )
    scalars = tuple(p for p in predicate.params if isinstance(p.type, ast.ScalarType))
    return Predicate(predicate.name.name, Signature(scope).params(scalars))
