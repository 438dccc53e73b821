"""From calls back to statements: a body with ops put in, as an author would write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fusiondsl.analysis.body import TEMPORARY
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import rewrite, walk
from fusiondsl.analysis.lift import Lifted, literal
from fusiondsl.analysis.lower import Lowering, Results
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.values import TensorValue, Value
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Call, Expr, Name
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.ir.program import Computed, Const, ListOf, OpDecl, Operand, Ref
from fusiondsl.syntax import ast


class Recorder(Lowering):
    """Lowers a body and remembers which expression became which value."""

    def __init__(self, scope: Scope, dtypes: DTypes, signatures: Mapping[str, OpDecl]) -> None:
        super().__init__(scope, dtypes, signatures, assume=True)
        self.made: dict[int, str] = {}
        """Values by the identity of their expressions."""

    def value(self, expr: Expr) -> Value | None:
        value = super().value(expr)
        if isinstance(value, TensorValue):
            self.made.setdefault(id(expr), value.name)
        return value

    def results(self, expr: Expr) -> Results | None:
        values = super().results(expr)
        if values is not None and len(values) == 1 and isinstance(values[0], TensorValue):
            self.made.setdefault(id(expr), values[0].name)
        return values


class Unlowering:
    """Writes down what some values need, and nothing else."""

    def __init__(
        self, recorder: Recorder, means: Sequence[ast.Assign], lifted: Iterable[Lifted]
    ) -> None:
        self._body = recorder.body
        self._params = recorder.scope.tensors
        self._made = recorder.made
        self._signatures = recorder.signatures
        self._means = means
        self._lifted = {
            name: item for item in lifted for name in item.call.results if name is not None
        }
        self._expressions = self._found_expressions()
        self._statement_of = self._found_statements()
        self._taken = {*recorder.scope.spans, *recorder.bound}
        self._labels: dict[str, str] = {}
        self._done: dict[int, ast.Assign] = {}
        self._read: set[str] = set()
        self.used: list[Lifted] = []

    def _found_expressions(self) -> Mapping[str, Expr]:
        found: dict[str, Expr] = {}
        for statement in self._means:
            for expr in walk(statement.value):
                name = self._made.get(id(expr))
                if name is not None and not isinstance(expr, Name):
                    found.setdefault(self._body.resolve(name), expr)
        return found

    def _found_statements(self) -> Mapping[str, ast.Assign]:
        found: dict[str, ast.Assign] = {}
        for statement in self._means:
            for target in statement.targets:
                if not isinstance(statement.value, Name):
                    found.setdefault(self._body.resolve(target.name.name), statement)
        return found

    # --- statements ----------------------------------------------------------------------------

    def statements(self, results: Sequence[str]) -> tuple[ast.Assign, ...]:
        for statement in self._means:
            if not statement.targets:
                self._done[id(statement)] = self._written(statement)
            elif self._has_effect(statement.value):
                self._reference(self._body.resolve(statement.targets[0].name.name), statement.span)
            for target in statement.targets:
                if target.name.name in results:
                    self._result(target.name)
        self._read.update(results)
        return tuple(self._shortened(statement) for statement in self._done.values())

    def _result(self, ident: ast.Ident) -> None:
        value = self._body.resolve(ident.name)
        written = self._reference(value, ident.span)
        if not isinstance(written, Name) or written.id != ident.name:
            statement = ast.Assign((ast.Target(ident, None),), written, ident.span)
            self._done[id(ident)] = statement

    def _written(self, statement: ast.Assign) -> ast.Assign:
        return replace(statement, value=self._rebuilt(statement.value))

    def _has_effect(self, expr: Expr) -> bool:
        """What others can notice belongs to the source, whether or not its value is read."""
        called = (part.func for part in walk(expr) if isinstance(part, Call))
        decls = (self._signatures.get(name) for name in called)
        return any(
            decl is not None and (decl.effects or any(p.kind == "inout" for p in decl.params))
            for decl in decls
        )

    def _shortened(self, statement: ast.Assign) -> ast.Assign:
        """Results that nothing reads are left out."""
        targets = tuple(
            t if t.name.name in self._read else ast.Target(ast.Ident("_", t.name.span), None)
            for t in statement.targets
        )
        return replace(statement, targets=targets)

    # --- values --------------------------------------------------------------------------------

    def _reference(self, value: str, span: Span | None) -> Expr:
        """A value inside an expression: its name, or how it is computed."""
        if value in self._params:
            return Name(value, span=span)
        if value in self._lifted:
            self._lift(self._lifted[value])
            return self._name(self._labels[value], span)
        statement = self._statement_of.get(value)
        if statement is None:
            return self._rebuilt(self._expressions[value])
        if id(statement) not in self._done:
            self._done[id(statement)] = self._written(statement)
        name = next(t for t in statement.targets if self._body.resolve(t.name.name) == value)
        return self._name(name.name.name, span)

    def _name(self, name: str, span: Span | None) -> Name:
        self._read.add(name)
        return Name(name, span=span)

    def _rebuilt(self, expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            made = None if part is expr else self._made.get(id(part))
            return None if made is None else self._reference(self._body.resolve(made), part.span)

        return rewrite(expr, change)

    # --- ops in place of what spells them --------------------------------------------------------

    def _lift(self, item: Lifted) -> None:
        if item in self.used:
            return
        self.used.append(item)
        span = item.call.span or self._means[0].span
        args = tuple(self._operand(arg, span) for arg in item.call.args)
        targets = tuple(self._target(name, span) for name in item.call.results)
        value = Call(item.call.op, args, span=span, func_span=span)
        self._done[id(item)] = ast.Assign(targets, value, span)

    def _target(self, value: str | None, span: Span) -> ast.Target:
        if value is None:
            return ast.Target(ast.Ident("_", span), None)
        label = self._label(value)
        self._labels[value] = label
        return ast.Target(ast.Ident(label, self._body.spans.get(label, span)), None)

    def _label(self, value: str) -> str:
        if not value.startswith(TEMPORARY):
            return value
        number = 0
        while f"v{number}" in self._taken:
            number += 1
        self._taken.add(f"v{number}")
        return f"v{number}"

    def _operand(self, operand: Operand, span: Span) -> Expr:
        match operand:
            case Ref():
                known = operand.name in self._body.types or operand.name in self._params
                return self._reference(operand.name, span) if known else Name(operand.name)
            case Const():
                return literal(operand, span)
            case Computed():
                return operand.expr
            case ListOf():
                return ExprSequence(tuple(self._operand(item, span) for item in operand.items))
            case _:
                raise AssertionError(operand)
