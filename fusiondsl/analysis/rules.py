"""Rules: both bodies lowered, outputs and kept values found, results held against the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_

from fusiondsl.analysis import facts
from fusiondsl.analysis.clauses import conditions, differences, learned, optional_dtypes
from fusiondsl.analysis.compare import dtype_problem, layout_problem, shape_problem
from fusiondsl.analysis.conditions import ExprChecker, let_value
from fusiondsl.analysis.determined import without_dropped_parts
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import walk
from fusiondsl.analysis.kinds import Kind
from fusiondsl.analysis.lower import Lowering
from fusiondsl.analysis.names import Defined, Definitions
from fusiondsl.analysis.readers import ReadersChecker
from fusiondsl.analysis.scope import Scope, is_fact
from fusiondsl.analysis.signature import Signature, constant
from fusiondsl.analysis.values import TensorValue
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Call as CallExpr
from fusiondsl.dims.expr import DType
from fusiondsl.ir.program import (
    Call,
    Condition,
    Const,
    Difference,
    Example,
    OpDecl,
    Param,
    Readers,
    Rule,
    TensorType,
    Type,
)
from fusiondsl.syntax import ast


@dataclass(slots=True)
class Built:
    """A rule with what the lints need to know about how it was made."""

    written: ast.Rule
    rule: Rule
    scope: Scope
    dtypes: DTypes
    signatures: Mapping[str, OpDecl]
    spans: dict[str, Span]
    """Where the values of `match` are named."""

    @property
    def diagnostics(self) -> Diagnostics:
        return self.scope.diagnostics


class RuleBuilder:
    """Builds one rule."""

    def __init__(
        self, defined: Defined[ast.Rule], scope: Scope, signatures: Mapping[str, OpDecl]
    ) -> None:
        self.written = defined.item
        self.scope = scope
        self.signatures = signatures
        self.dtypes = DTypes(scope.dtype_set)
        self.diagnostics = scope.diagnostics
        self._kept: dict[str, Span | None] = {}

    def build(self) -> Built:
        written = self.written
        params = self._params()
        self._lets()
        match = self._match(params)
        where = self._where()
        replace = self._replace(match)
        outputs = self._outputs(match, replace)
        kept = tuple(dict.fromkeys(match.body.resolve(name) for name in self._kept))
        rule = Rule(
            name=written.name.name,
            params=params,
            match=tuple(s for s in match.body.steps if isinstance(s, Call)),
            replace=tuple(s for s in replace.body.steps if isinstance(s, Call)),
            outputs=outputs,
            kept=kept,
            where=where,
            allow=self._allow(match, replace),
            before=tuple(i.name for i in written.before),
            after=tuple(i.name for i in written.after),
            examples=self._examples(),
            readers=self._readers(match, outputs),
            types=_types(match, replace),
            doc=written.doc,
            span=written.name.span,
        )
        return Built(
            written,
            rule,
            self.scope,
            self.dtypes,
            self.signatures,
            match.body.spans,
        )

    # --- clauses -------------------------------------------------------------------------------

    def _params(self) -> tuple[Param, ...]:
        for param in self.written.params:
            if param.kind != "read" or param.default is not None:
                self.diagnostics.error(
                    "FD221", "a rule's parameter has no kind and no default", param.span
                )
        plain = tuple(replace_(p, default=None) for p in self.written.params)
        return Signature(self.scope).params(plain)

    def _lets(self) -> None:
        for let in self.written.lets:
            value = let_value(ExprChecker(self.scope), let.value, let.name.span)
            if not self.scope.claim(let.name.name, let.name.span, "the `let`"):
                continue
            if value is None:
                self.scope.used.add(let.name.name)
            else:
                self.scope.lets[let.name.name] = value

    def _match(self, params: tuple[Param, ...]) -> Lowering:
        match = Lowering(self.scope, self.dtypes, self.signatures, assume=True, wildcards=True)
        match.statements(self.written.match)
        broken = any(value is None for value in match.bound.values())
        if not match.body.steps and not broken:
            self.diagnostics.error(
                "FD229",
                f"the source of `{self.written.name.name}` has no operation",
                self.written.name.span,
            )
        self._next = match.body.finish()
        match.body.steps = list(without_dropped_parts(match.body.steps, params, self.scope))
        return match

    def _where(self) -> tuple[Condition, ...]:
        where = conditions(self.written.where, self.scope, about_readers=True)
        optional = optional_dtypes(self.scope.tensors.values())
        implied = learned(self.dtypes, self.scope.sizes, where, optional)
        facts.assume(where, self.scope, self.dtypes)
        return where + implied

    def _replace(self, match: Lowering) -> Lowering:
        replace = Lowering(
            self.scope,
            self.dtypes,
            self.signatures,
            assume=False,
            outer=match.body,
            first_temporary=self._next,
            on_outer=self._keep,
        )
        replace.statements(self.written.replace)
        replace.body.finish()
        return replace

    def _keep(self, name: str, span: Span | None) -> None:
        self._kept.setdefault(name, span)

    def _allow(self, match: Lowering, replace: Lowering) -> tuple[Difference, ...]:
        def is_value(name: str) -> bool:
            return name in match.bound or name in replace.bound

        return differences(self.written.allow, self.scope, is_value, of_rule=True)

    def _readers(
        self, match: Lowering, outputs: tuple[tuple[str, str], ...]
    ) -> tuple[Readers, ...]:
        named = {name: match.body.resolve(name) for name in match.bound}
        replaced = [matched for matched, _ in outputs]
        checker = ReadersChecker(self.scope, self.signatures, named, replaced)
        return checker.check(self.written.where)

    # --- outputs -------------------------------------------------------------------------------

    def _outputs(self, match: Lowering, replace: Lowering) -> tuple[tuple[str, str], ...]:
        errors = self.diagnostics.error_count
        outputs: dict[str, str] = {}
        by_source: dict[str, str] = {}
        for name, value in replace.bound.items():
            if name not in match.bound or not isinstance(value, TensorValue):
                continue
            source = match.body.resolve(name)
            target = replace.body.resolve(name)
            if target == source and source in match.body.types and name not in replace.body.types:
                continue  # `v = v`
            if name in self._kept:
                self._used_before(name, replace)
                continue
            if by_source.setdefault(source, name) != name:
                self._same_twice(name, by_source[source], replace)
                continue
            outputs[source] = target
            self._compare(name, match, replace, value)
        broken = any(v is None for v in (*replace.bound.values(), *match.bound.values()))
        if not outputs and not broken and self.diagnostics.error_count == errors:
            self._nothing()
        return tuple(outputs.items())

    def _used_before(self, name: str, replace: Lowering) -> None:
        span = self._kept[name]
        self.diagnostics.error(
            "FD226",
            f"`{name}` of `match` is used before it is replaced",
            replace.body.spans.get(name),
            labels=[Label(span, "used here")] if span is not None else [],
            help="a value is either kept or replaced",
        )

    def _same_twice(self, name: str, first: str, replace: Lowering) -> None:
        self.diagnostics.error(
            "FD227",
            f"`{name}` and `{first}` are one value in `match`: both are replaced",
            replace.body.spans.get(name),
            notes=["equal calls are one value"],
        )

    def _nothing(self) -> None:
        statements = [s for s in self.written.match if isinstance(s, ast.Assign)]
        names = ", ".join(f"`{t.name.name}`" for s in statements for t in s.targets)
        self.diagnostics.error(
            "FD225",
            f"the rule `{self.written.name.name}` replaces nothing",
            self.written.name.span,
            notes=[
                "`replace` must assign a value that `match` names",
                f"`match` names {names}",
            ],
        )

    def _compare(self, name: str, match: Lowering, replace: Lowering, value: TensorValue) -> None:
        source = match.body.types.get(match.body.resolve(name))
        target = replace.body.types.get(replace.body.resolve(name), value.type)
        if source is None or target is None:
            return
        span = replace.body.spans.get(name, self.written.name.span)
        labels = [Label(match.body.spans[name], "matched here")]
        relayout = any(
            d.kind.name == "relayout" and (d.value is None or d.value.name == name)
            for d in self.written.allow
        )
        compare_output(
            Comparison(name, source, target, span, labels, relayout), self.scope, self.dtypes
        )

    # --- examples ------------------------------------------------------------------------------

    def _examples(self) -> tuple[Example, ...]:
        return tuple(self._example(example) for example in self.written.examples)

    def _example(self, example: ast.Example) -> Example:
        bindings: list[tuple[str, int | float | str | bool | DType]] = []
        seen: set[str] = set()
        for binding in example.bindings:
            name, span = binding.name.name, binding.name.span
            if name in seen:
                self.diagnostics.error("FD106", f"`{name}` is given twice", span)
                continue
            seen.add(name)
            value = self._example_value(binding)
            if value is not None and self._fits(name, value, binding.value.span or span):
                bindings.append((name, value))
        because = example.because
        if because is not None:
            self._check_label(because)
        return Example(
            tuple(bindings), example.fires, because.name if because else None, example.span
        )

    def _example_value(self, binding: ast.Binding) -> int | float | str | bool | DType | None:
        name, span = binding.name.name, binding.name.span
        scope = self.scope
        known = (
            scope.is_size(name)
            or name in scope.scalars
            or name in scope.dtype_vars
            or is_fact(name)
            or self._is_predicate(name)
        )
        if not known:
            scope.unknown_name(name, span)
            return None
        value = constant(binding.value)
        if isinstance(value, Const) and value.value is not None:
            return value.value
        checked, typed = ExprChecker(scope).check(binding.value)
        number = scope.sizes.constant(checked)
        if number is not None:
            return number
        if typed.kind is not Kind.UNKNOWN:
            self.diagnostics.error(
                "FD220", f"`{name}` needs a plain value here", binding.value.span or span
            )
        return None

    def _is_predicate(self, name: str) -> bool:
        visible = self.scope.visible
        return visible.find(visible.definitions.predicates, name) is not None

    def _fits(self, name: str, value: int | float | str | bool | DType, span: Span) -> bool:
        size = self.scope.is_size(name) and name not in self.scope.scalars
        if size and (type(value) is not int or value < 0):
            message = f"`{name}` is a size: a whole number, not negative"
        elif name in self.scope.dtype_vars and not isinstance(value, DType):
            message = f"`{name}` is a dtype"
        elif self._is_predicate(name) and type(value) is not bool:
            message = f"`{name}` is a predicate: its answer is `true` or `false`"
        else:
            return True
        self.diagnostics.error("FD220", message, span)
        return False

    def _check_label(self, because: ast.Ident) -> None:
        labels = {c.label.name for c in self.written.where if c.label is not None}
        for target in self._targets():
            for condition in (*target.where, *target.available):
                if condition.label is not None:
                    labels.add(condition.label.name)
        if because.name not in labels:
            self.diagnostics.error(
                "FD118",
                f"no condition is labelled `{because.name}`",
                because.span,
                help=did_you_mean(because.name, labels),
            )

    def _targets(self) -> list[ast.Op]:
        """The declarations of the ops that `replace` calls."""
        ops = self.scope.visible.definitions.ops
        called = [c for s in self.written.replace for c in _calls(s)]
        return [ops[name].item for name in called if name in ops]


def _calls(statement: ast.Statement) -> list[str]:
    if not isinstance(statement, ast.Assign):
        return []
    return [e.func for e in walk(statement.value) if isinstance(e, CallExpr)]


def _types(match: Lowering, replace: Lowering) -> tuple[tuple[str, Type], ...]:
    types: dict[str, Type] = {}
    for body in (replace.body, match.body):
        for name, kind in body.types.items():
            if kind is not None:
                types[name] = kind
    return tuple(sorted(types.items()))


@dataclass(frozen=True, slots=True)
class Comparison:
    """An output: what was matched, what takes its place."""

    name: str
    source: TensorType
    target: TensorType
    span: Span
    labels: list[Label]
    relayout: bool


def compare_output(pair: Comparison, scope: Scope, dtypes: DTypes) -> None:
    """A result must have exactly the dtype, shape and layout of what it replaces."""
    problem = (
        dtype_problem(pair.source, pair.target, dtypes)
        or shape_problem(pair.source, pair.target, scope.sizes)
        or (None if pair.relayout else layout_problem(pair.source, pair.target, scope.sizes))
    )
    if problem is None:
        return
    scope.diagnostics.error(
        problem.code,
        f"`{pair.name}` {problem.message}",
        pair.span,
        labels=pair.labels,
        notes=problem.notes,
        help=problem.help,
    )


def check_order_names(built: Built, definitions: Definitions) -> None:
    """`before` and `after` name rules."""
    for ident in (*built.written.before, *built.written.after):
        if ident.name not in definitions.rules:
            built.diagnostics.error(
                "FD117",
                f"unknown rule `{ident.name}`",
                ident.span,
                help=did_you_mean(ident.name, definitions.rules),
            )
