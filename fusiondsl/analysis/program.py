"""The whole analysis: modules in, a checked program and diagnostics out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusiondsl.analysis import names
from fusiondsl.analysis.conditions import ExprChecker, let_value
from fusiondsl.analysis.contracts import build_expects
from fusiondsl.analysis.declare import Declared, OpBuilder, check_torch_names, declare
from fusiondsl.analysis.derive import Derivation, with_origin
from fusiondsl.analysis.lints import lint_derived, lint_op, lint_rule
from fusiondsl.analysis.modules import LoadedModule
from fusiondsl.analysis.names import Defined, Definitions, Visible
from fusiondsl.analysis.order import Stated, arrange
from fusiondsl.analysis.predicates import build_predicates
from fusiondsl.analysis.rules import Built, RuleBuilder, check_order_names
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.tables import build_tables
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.dims.expr import Expr, Literal
from fusiondsl.dims.names import names as names_in
from fusiondsl.ir.program import Const, OpDecl, Program, Rule
from fusiondsl.syntax import ast


def analyse(modules: Sequence[LoadedModule], diagnostics: Diagnostics) -> Program:
    """Checks everything; the program is usable only if no errors were found."""
    return Analysis(modules, diagnostics).run()


class Analysis:
    def __init__(self, modules: Sequence[LoadedModule], diagnostics: Diagnostics) -> None:
        self.modules = modules
        self.diagnostics = diagnostics
        self.definitions = Definitions()
        self.lets: dict[str, Expr] = {}
        self._visible: dict[str, Visible] = {}

    def run(self) -> Program:
        self.definitions = names.collect(self.modules, self.diagnostics)
        names.check_sets(self.definitions, self.diagnostics)
        self._evaluate_lets()
        tables = build_tables(self.definitions, self._scope)
        predicates = build_predicates(self.definitions, self._scope)
        ops = self._ops()
        built = self._rules(ops)
        program = Program(
            ops=dict(sorted(ops.items())),
            rules=(),
            tables=tables,
            lets=self._constants(),
            dtype_sets=self._sets(),
            files=tuple(sorted(m.name for m in self.modules)),
            predicates=predicates,
            expects=build_expects(self.modules, self._scope),
        )
        return replace(program, rules=self._arranged(built, program))

    def _scope(self, module: LoadedModule) -> Scope:
        visible = self._visible.get(module.key)
        if visible is None:
            visible = Visible(self.definitions, module, self.diagnostics)
            self._visible[module.key] = visible
        return Scope(visible, self.lets)

    # --- lets and sets -------------------------------------------------------------------------

    def _evaluate_lets(self) -> None:
        """A file-level `let` may use others, in any order."""
        pending = dict(sorted(self.definitions.lets.items()))
        while pending:
            ready = [n for n in pending if not self._needs(n, pending)]
            if not ready:
                for name in pending:
                    span = pending[name].span
                    self.diagnostics.error("FD109", f"`{name}` is defined by itself", span)
                return
            for name in ready:
                defined = pending.pop(name)
                checker = ExprChecker(self._scope(defined.module))
                value = let_value(checker, defined.item.value, defined.span)
                if value is not None:
                    self.lets[name] = value

    def _needs(self, name: str, pending: dict[str, names.Defined[ast.Let]]) -> bool:
        return any(other in pending for other in names_in(pending[name].item.value))

    def _constants(self) -> dict[str, Const]:
        return {
            name: Const(value.value)
            for name, value in sorted(self.lets.items())
            if isinstance(value, Literal)
        }

    def _sets(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(m.name for m in defined.item.members)
            for name, defined in sorted(self.definitions.sets.items())
        }

    # --- ops and rules -------------------------------------------------------------------------

    def _ops(self) -> dict[str, OpDecl]:
        declared: dict[str, Declared] = {}
        for name in sorted(self.definitions.ops):
            defined = self.definitions.ops[name]
            declared[name] = declare(defined, self._scope(defined.module))
        check_torch_names(declared.values(), self.diagnostics)
        signatures = {n: d.decl for n, d in declared.items() if not d.broken}
        built = dict(signatures)
        for name, item in declared.items():
            if item.broken:
                continue
            before = self.diagnostics.error_count
            built[name] = OpBuilder(item, signatures).build()
            if self.diagnostics.error_count == before:
                lint_op(item, built[name])
        return built

    def _rules(self, ops: dict[str, OpDecl]) -> list[Built]:
        built = []
        for name in sorted(self.definitions.rules):
            defined = self.definitions.rules[name]
            if isinstance(defined.item, ast.Fuse):
                rule = self._fuse(defined.item, defined.module, ops)
            else:
                scope = self._scope(defined.module)
                rule = self._rule(Defined(defined.item, defined.module, defined.span), scope, ops)
            built += [] if rule is None else [rule]
        return built

    def _rule(self, defined: Defined[ast.Rule], scope: Scope, ops: Mapping[str, OpDecl]) -> Built:
        before = scope.diagnostics.error_count
        rule = RuleBuilder(defined, scope, ops).build()
        check_order_names(rule, self.definitions)
        if scope.diagnostics.error_count == before:
            lint_rule(rule)
        return rule

    def _fuse(
        self, fuse: ast.Fuse, module: LoadedModule, ops: Mapping[str, OpDecl]
    ) -> Built | None:
        """The rule of a `fuse`, built like one that was written."""

        def new_scope(diagnostics: Diagnostics) -> Scope:
            return Scope(Visible(self.definitions, module, diagnostics), self.lets)

        found = Diagnostics()
        derived = Derivation(fuse, new_scope, ops, found).derive()
        rule = None
        if derived is not None:
            defined = Defined(derived, module, fuse.rule.span)
            rule = self._rule(defined, new_scope(found), ops)
            lint_derived(rule)
        self.diagnostics.extend(with_origin(found, fuse))
        return rule

    def _arranged(self, built: list[Built], program: Program) -> tuple[Rule, ...]:
        stated: list[Stated] = []
        for item in built:
            name = item.rule.name
            stated.extend(Stated(name, i.name, i.span) for i in item.written.before)
            stated.extend(Stated(i.name, name, i.span) for i in item.written.after)
        rules = [item.rule for item in built]
        if self.diagnostics.has_errors:
            return tuple(rules)  # an order of broken rules says nothing
        return arrange(rules, stated, program, self.diagnostics)
