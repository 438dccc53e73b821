"""Tables: rows of constant keys, the first fitting one wins."""

from __future__ import annotations

from collections.abc import Callable

from fusiondsl.analysis.conditions import ExprChecker
from fusiondsl.analysis.modules import LoadedModule
from fusiondsl.analysis.names import Definitions
from fusiondsl.analysis.scope import Scope
from fusiondsl.dims.expr import Expr, Literal, Name, Wildcard
from fusiondsl.ir.program import Table, TableRow
from fusiondsl.syntax import ast


def build_tables(
    definitions: Definitions,
    scope_of: Callable[[LoadedModule], Scope],
) -> dict[str, Table]:
    tables = {}
    for name in sorted(definitions.tables):
        defined = definitions.tables[name]
        tables[name] = _build(defined.item, scope_of(defined.module))
    return tables


def _build(table: ast.Table, scope: Scope) -> Table:
    names = tuple(p.name for p in table.params)
    rows = []
    for row in table.rows:
        if len(row.keys) != len(names):
            continue  # the parser reported it
        keys = tuple(_key(key, scope) for key in row.keys)
        value, _ = ExprChecker(scope).check(row.value)
        rows.append(TableRow(keys, value))
    return Table(table.name.name, names, tuple(rows))


def _key(key: Expr, scope: Scope) -> Expr:
    """A bare word that means nothing else is a string: architectures read better so."""
    if isinstance(key, Wildcard):
        return key
    if isinstance(key, Name) and not _means_something(key.id, scope):
        return Literal(key.id, span=key.span)
    checked, _ = ExprChecker(scope).check(key)
    return checked


def _means_something(name: str, scope: Scope) -> bool:
    known = scope.is_dtype(name) or scope.dtype_set(name) is not None
    return known or scope.let(name) is not None
