"""Makes items of the abstract syntax from the records that YAML mappings are read into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims import expr as ex
from fusiondsl.syntax import ast
from fusiondsl.syntax.build import (
    Parameter,
    check_bodies,
    check_rows,
    make_fuse,
    make_op,
    make_rule,
)


@dataclass(frozen=True, slots=True)
class Record:
    """The values of a `Shape`, by key; keys that could not be read are missing."""

    values: dict[str, Any]
    rest: tuple[tuple[ast.Ident, Any], ...]
    span: Span
    complete: bool
    """Whether every required key is there and readable."""

    def get(self, key: str, otherwise: Any = ()) -> Any:
        value = self.values.get(key)
        return otherwise if value is None else value

    def is_broken(self, key: str) -> bool:
        """The key is there, and what it holds is already reported."""
        return key in self.values and self.values[key] is None


@dataclass(frozen=True, slots=True)
class _Given:
    """The clauses of an op or rule under the names `.fuse` has for them."""

    clauses: dict[str, Any]

    def once(self, kind: str, otherwise: Any = None) -> Any:
        value = self.clauses.get(kind)
        return otherwise if value is None else value

    def every(self, kind: str) -> tuple[Any, ...]:
        return tuple(self.clauses.get(kind) or ())

    def joined(self, kind: str) -> tuple[Any, ...]:
        return self.every(kind)


class ItemMaker:
    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    def items(self, module: Record) -> Iterator[ast.Item]:
        """The items of a file, in the order of the keys of `shapes.MODULE`."""
        for path in module.get("imports"):
            yield ast.Import(path.value, path.span)
        yield from _lets(module.get("lets"))
        for name, members in module.get("dtypes"):
            yield ast.DTypeSet(name, tuple(members), _over(name.span, members))
        for name, record in module.get("tables"):
            if record.complete:
                yield self._table(name, record)
        for name, params in module.get("predicates"):
            found = self._params(params or ())
            yield ast.Predicate(name, found, _over(name.span, found))
        yield from (self._op(record) for record in module.get("ops") if record.complete)
        yield from (self._rule(record) for record in module.get("rules") if record.complete)
        yield from (_fuse(record) for record in module.get("fuse") if record.complete)
        yield from (_expect(record) for record in module.get("expect") if record.complete)

    def _table(self, name: ast.Ident, record: Record) -> ast.Table:
        params = tuple(record.get("params"))
        rows = [self._row(cells, name) for cells in record.get("rows")]
        found = tuple(row for row in rows if row is not None)
        check_rows(name, params, found, self._diagnostics)
        return ast.Table(name, params, found, name.span.to(record.span))

    def _row(self, cells: list[ex.Expr], name: ast.Ident) -> ast.TableRow | None:
        if not cells:
            self._diagnostics.error("FD020", f"a row of `{name.name}` is empty", name.span)
            return None
        *keys, value = cells
        return ast.TableRow(tuple(keys), value, _over(_span(cells[0]), cells))

    def _op(self, record: Record) -> ast.Op:
        axiom, means = record.get("axiom", False), record.get("means", None)
        if axiom and means is not None:
            message = "`axiom` says that the meaning is a Python reference; `means` gives another"
            self._diagnostics.error("FD016", message, record.get("name").span)
        clauses = {
            "means": "axiom" if axiom else means,
            "form": [_form(form) for form in record.get("forms") if form.complete],
            "where": tuple(_conditions(record.get("where"))),
            "available": tuple(_conditions(record.get("available"))),
            "impl": [_impl(impl) for impl in record.get("impls") if impl.complete],
            "effect": record.get("effects"),
            "unread": record.get("unread"),
            "differs": tuple(_differences(record.get("differs"))),
            "doc": _prose(record),
        }
        params = self._params(record.get("params"))
        results = tuple(_results(record.get("results")))
        extern = record.get("extern", False)
        return make_op(record.get("name"), extern, params, results, _Given(clauses), record.span)

    def _rule(self, record: Record) -> ast.Rule:
        bodies = {"match": record.get("match"), "replace": record.get("replace")}
        clauses = {**_rule_clauses(record), **bodies}
        params = self._params(record.get("inputs"))
        rule = make_rule(record.get("name"), params, _Given(clauses), record.span)
        if not record.is_broken("match") and not record.is_broken("replace"):
            check_bodies(rule, self._diagnostics)
        return rule

    def _params(self, found: Iterable[tuple[ast.Ident, Parameter]]) -> tuple[ast.Param, ...]:
        params: list[ast.Param] = []
        for name, part in found:
            if params and params[-1].keyword_only and not part.keyword_only:
                message = f"`{name.name}` follows a keyword-only parameter"
                fix = "start its type with `*`, or move it to the front"
                self._diagnostics.error("FD020", message, name.span, help=fix)
            span = name.span.to(part.span)
            params.append(
                ast.Param(name, part.type, part.kind, part.default, part.keyword_only, span)
            )
        return tuple(params)


def _rule_clauses(record: Record) -> dict[str, Any]:
    """What a rule and a `fuse` both have."""
    return {
        "let": list(_lets(record.get("lets"))),
        "where": tuple(_conditions(record.get("where"))),
        "allow": tuple(_differences(record.get("allow"))),
        "before": _names(record.get("before")),
        "after": _names(record.get("after")),
        "example": [_example(item) for item in record.get("examples") if item.complete],
        "doc": _prose(record),
    }


def _fuse(record: Record) -> ast.Fuse:
    fixed = tuple(ast.Binding(name, value) for name, value in record.get("fixed"))
    clauses = {**_rule_clauses(record), "keep": _names(record.get("keep"))}
    given = _names(record.get("given"))
    name = record.get("name", None)
    return make_fuse(record.get("target"), name, given, fixed, _Given(clauses), record.span)


def _span(node: Any) -> Span:
    span: Span = node.span
    return span


def _over(first: Span, rest: Iterable[Any]) -> Span:
    span = first
    for node in rest:
        span = span.to(_span(node))
    return span


def _prose(record: Record) -> str | None:
    doc = record.get("doc", None)
    return None if doc is None else str(doc.value)


def _lets(found: Iterable[tuple[ast.Ident, ex.Expr]]) -> Iterator[ast.Let]:
    for name, value in found:
        yield ast.Let(name, value, name.span.to(_span(value)))


def _results(found: Any) -> Iterator[ast.Result]:
    if isinstance(found, ast.TensorType | ast.ScalarType):
        yield ast.Result(ast.Ident("result", found.span), found, found.span)
        return
    for name, type_ in found:
        yield ast.Result(name, type_, name.span.to(type_.span))


def _conditions(found: Any) -> Iterator[ast.Condition]:
    """From `{label: cond}`, `[cond, {label: cond}]`, or one condition."""
    match found:
        case ast.Condition():
            yield found
        case (ast.Ident() as label, expr):
            yield ast.Condition(label, expr, label.span.to(_span(expr)))
        case _:
            for part in found:
                yield from _conditions(part)


def _differences(found: Any) -> Iterator[ast.Difference]:
    match found:
        case ast.Difference():
            yield found
        case (ast.Ident() as kind, ast.Ident() as value):
            yield ast.Difference(kind, value, kind.span.to(value.span))
        case _:
            for part in found:
                yield from _differences(part)


def _names(found: Any) -> tuple[ast.Ident, ...]:
    return (found,) if isinstance(found, ast.Ident) else tuple(found)


def _form(record: Record) -> ast.Form:
    where = tuple(_conditions(record.get("where")))
    differs = tuple(_differences(record.get("differs")))
    return ast.Form(record.get("name"), record.get("body"), where, differs, record.span)


def _impl(record: Record) -> ast.Impl:
    call: ast.Impl = record.get("call")
    when = record.get("when", None)
    return ast.Impl(call.location, call.args, call.kwargs, call.results, when, record.span)


def _expect(record: Record) -> ast.Expect:
    rule, sites, graph = (record.get(key) for key in ("rule", "sites", "graph"))
    return ast.Expect(rule, sites, graph, _bindings(record), record.span)


def _bindings(record: Record) -> tuple[ast.Binding, ...]:
    return tuple(ast.Binding(name, value) for name, value in record.rest)


def _example(record: Record) -> ast.Example:
    fires, because = record.get("fires", True), record.get("because", None)
    return ast.Example(_bindings(record), fires, because, record.span)
