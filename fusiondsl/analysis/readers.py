"""`read_as(value, op.parameter, ...)` in the `where` of a rule: who may read what it replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from fusiondsl.analysis.exprs import show
from fusiondsl.analysis.scope import Scope
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Call, Expr, Keyword, Name
from fusiondsl.ir.program import READ_AS, OpDecl, Readers
from fusiondsl.syntax import ast


def is_about_readers(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.func == READ_AS


class ReadersChecker:
    """Checks the `read_as` conditions of one rule."""

    def __init__(
        self,
        scope: Scope,
        signatures: Mapping[str, OpDecl],
        matched: Mapping[str, str],
        replaced: Collection[str],
    ) -> None:
        self.scope = scope
        self.signatures = signatures
        self.matched = matched
        """The names that `match` gives values, with what they are called inside."""
        self.replaced = replaced

    def check(self, written: Iterable[ast.Condition]) -> tuple[Readers, ...]:
        return tuple(self._checked(written))

    def _checked(self, written: Iterable[ast.Condition]) -> Iterator[Readers]:
        for item in written:
            expr = item.expr
            if not isinstance(expr, Call) or not is_about_readers(expr):
                continue
            value = self._value(expr)
            roles = tuple(self._role(arg, expr) for arg in expr.args[1:])
            if value is None or None in roles:
                continue
            known = tuple(role for role in roles if role is not None)
            given = tuple(self._given(keyword, known) for keyword in expr.kwargs)
            if None in given:
                continue
            scalars = tuple(pair for pair in given if pair is not None)
            label = item.label.name if item.label else None
            yield Readers(label, value, known, scalars, item.span)

    def _value(self, expr: Call) -> str | None:
        if len(expr.args) < 2:
            self._error(f"`{READ_AS}` takes a value and what it may be read as", expr.span)
            return None
        first = expr.args[0]
        name = first.id if isinstance(first, Name) else None
        inside = None if name is None else self.matched.get(name)
        if inside is None:
            self._error(f"`{show(first)}` is no value that `match` names", first.span)
            return None
        if inside not in self.replaced:
            self._error(f"`{show(first)}` is not replaced", first.span)
            return None
        return inside

    def _role(self, arg: Expr, expr: Call) -> tuple[str, str] | None:
        name = arg.id if isinstance(arg, Name) else ""
        op, _, parameter = name.rpartition(".")
        visible = self.scope.visible
        ops = visible.definitions.ops
        if not op:
            self._error(f"`{show(arg)}` is no parameter of an op", arg.span or expr.span)
            return None
        if visible.find(ops, op) is None:
            seen = [n for n, d in ops.items() if d.module.key in visible.module.reachable]
            visible.unknown("FD112", "op", op, arg.span or expr.span, seen, ops)
            return None
        decl = self.signatures.get(op)
        if decl is None:
            return None  # reported where it is declared
        known = [p.name for p in decl.call_params]
        if parameter not in known:
            help = did_you_mean(parameter, known)
            self._error(f"`{op}` reads no `{parameter}`", arg.span or expr.span, help)
            return None
        return op, parameter

    def _given(
        self, keyword: Keyword, roles: tuple[tuple[str, str], ...]
    ) -> tuple[str, str] | None:
        """`l = layer`: the reader has that scalar of the rule for its parameter `l`."""
        scalar = keyword.value.id if isinstance(keyword.value, Name) else None
        if scalar not in self.scope.scalars:
            self._error(f"`{show(keyword.value)}` is no scalar of the rule", keyword.value.span)
            return None
        for op, _ in roles:
            known = [p.name for p in self.signatures[op].call_params]
            if keyword.name not in known:
                help = did_you_mean(keyword.name, known)
                self._error(f"`{op}` reads no `{keyword.name}`", keyword.span, help)
                return None
        assert scalar is not None
        self.scope.used.add(scalar)
        return keyword.name, scalar

    def _error(self, message: str, span: Span | None, help: str | None = None) -> None:
        self.scope.diagnostics.error(
            "FD235",
            message,
            span,
            help=help or f"a condition is `{READ_AS}(value, op.parameter)`",
        )
