"""A `fuse` as the rule it stands for: `match` from what its target means, `replace` its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from fusiondsl.analysis import facts
from fusiondsl.analysis.clauses import conditions
from fusiondsl.analysis.conditions import ExprChecker, let_value
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import rewrite, show, substitute, walk
from fusiondsl.analysis.lift import Facts, lift
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.signature import Signature, constant, fits
from fusiondsl.analysis.unlower import Recorder, Unlowering
from fusiondsl.analysis.values import TensorValue
from fusiondsl.diagnostics.diagnostic import Diagnostic, Diagnostics, Label
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.evaluate import truth
from fusiondsl.dims.expr import Binary, Call, Expr, Keyword, Literal, Method, Name, Spread, Unary
from fusiondsl.dims.names import names
from fusiondsl.dims.truth import Truth
from fusiondsl.ir.program import Call as CallStep
from fusiondsl.ir.program import Condition, OpDecl, Param
from fusiondsl.syntax import ast

_CASTS = frozenset(("to", "float"))

MOST_CASES = 8
"""More combinations of dtypes are not tried one by one."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A target as the rule sees it."""

    target: ast.Op
    params: tuple[ast.Param, ...]
    means: tuple[ast.Assign, ...]
    rows: Mapping[str, str]
    """Leading dimensions under other names."""


class Derivation:
    """Makes the rule of one `fuse`; None, and a diagnostic, where there is none."""

    def __init__(
        self,
        fuse: ast.Fuse,
        new_scope: Callable[[Diagnostics], Scope],
        ops: Mapping[str, OpDecl],
        diagnostics: Diagnostics,
    ) -> None:
        self.fuse = fuse
        self.new_scope = new_scope
        self.ops = ops
        self.diagnostics = diagnostics
        self._values: dict[str, Expr] = {}
        """Parameters of the target that have one value here."""

    def derive(self) -> ast.Rule | None:
        target = self._target()
        if target is None or not self._settle(target, self.ops[self.fuse.target.name]):
            return None
        params = tuple(self._params(target))
        means = self._resolved(target.means or (), params)
        if means is None:
            return None
        free = _by_rows(target, params, means)
        for candidate in (free, params) if free != params else (params,):
            trial = Diagnostics()
            rows = _rows(candidate, means)
            named = tuple(replace(p, type=self._type(p.type, rows)) for p in candidate)
            reading = _Reading(target, named, _renamed(means, rows), rows)
            derived = self._attempt(reading, {}, trial)
            if derived is not None:
                derived = self._by_dtype(reading, derived)
            if not trial.has_errors:
                break
        self.diagnostics.extend(trial)
        return derived

    def _by_dtype(self, reading: _Reading, general: ast.Rule) -> ast.Rule:
        """The rule that each dtype by itself gives, where in that one casts are gone."""
        if not self._leaves_casts(general):
            return general
        found: list[ast.Rule] = []
        for dtypes in self._cases(reading):
            rule = self._attempt(reading, dtypes, Diagnostics())
            if rule is None or (found and _source(rule) != _source(found[0])):
                return general
            found.append(rule)
        shorter = bool(found) and _length(found[0]) < _length(general)
        return found[0] if shorter else general

    def _leaves_casts(self, rule: ast.Rule) -> bool:
        """Does the source have ops and casts, and nothing else?"""
        parts = [part for node in _assigns(rule) for part in walk(node.value)]
        others = [part for part in parts if not isinstance(part, (Name, Literal))]
        casts = [part for part in others if isinstance(part, Method) and part.name in _CASTS]
        ops = [part for part in others if isinstance(part, Call) and part.func in self.ops]
        return bool(casts) and len(casts) + len(ops) == len(others)

    def _cases(self, reading: _Reading) -> list[dict[str, str]]:
        """The dtypes that the conditions leave, one for each variable."""
        scope = self.new_scope(Diagnostics())
        Signature(scope).params(reading.params)
        dtypes = DTypes(scope.dtype_set)
        facts.assume(self._conditions(reading), scope, dtypes)
        kinds = [p.type for p in reading.params if isinstance(p.type, ast.TensorType)]
        variables = sorted({dtypes.of(kind.dtype.name) for kind in kinds})
        allowed = {v: dtypes.allowed(v) for v in variables if scope.dtype_set(v) is None}
        several = {v: sorted(a) for v, a in allowed.items() if a is not None and len(a) > 1}
        if not several or prod(map(len, several.values())) > MOST_CASES:
            return []
        return [dict(zip(several, dtypes, strict=True)) for dtypes in product(*several.values())]

    # --- the target ----------------------------------------------------------------------------

    def _target(self) -> ast.Op | None:
        ident = self.fuse.target
        visible = self.new_scope(self.diagnostics).visible
        found = visible.find(visible.definitions.ops, ident.name)
        if found is None:
            known = [name for name, op in visible.definitions.ops.items() if op.item.means]
            visible.unknown("FD112", "op", ident.name, ident.span, known, visible.definitions.ops)
            return None
        if found.item.means is None:
            self._meaningless(found.item)
            return None
        return found.item if ident.name in self.ops else None

    def _meaningless(self, op: ast.Op) -> None:
        why = "its meaning is an axiom" if op.axiom else "its declaration has no `means`"
        self.diagnostics.error(
            "FD230",
            f"no source can be made from `{self.fuse.target.name}`: {why}",
            self.fuse.target.span,
            labels=[Label(op.name.span, "declared here")],
            help="write a `rule` with a `match` of its own",
        )

    # --- its parameters ------------------------------------------------------------------------

    def _settle(self, target: ast.Op, decl: OpDecl) -> bool:
        """Finds the value of every parameter that the rule does not read."""
        before = self.diagnostics.error_count
        declared = {param.name: param for param in decl.call_params}
        seen: set[str] = set()
        for ident in (*self.fuse.given, *(part.name for part in self.fuse.fixed)):
            if ident.name not in declared:
                self._unknown(ident, target, declared)
            elif ident.name in seen:
                message = f"`{ident.name}` of `{self.fuse.target.name}` is given twice"
                self.diagnostics.error("FD201", message, ident.span)
            seen.add(ident.name)
        for part in self.fuse.fixed:
            if part.name.name in declared:
                self._fix(part, declared[part.name.name], target)
        for param in target.params:
            if param.name.name not in seen and param.default is not None:
                self._values[param.name.name] = param.default
        return self.diagnostics.error_count == before

    def _unknown(self, ident: ast.Ident, target: ast.Op, known: Iterable[str]) -> None:
        self.diagnostics.error(
            "FD205",
            f"`{self.fuse.target.name}` has no parameter `{ident.name}` that a call passes",
            ident.span,
            labels=[Label(target.name.span, "declared here")],
            help=did_you_mean(ident.name, known),
        )

    def _fix(self, part: ast.Binding, param: Param, target: ast.Op) -> None:
        scope = self.new_scope(self.diagnostics)
        written = part.value
        let = scope.let(written.id) if isinstance(written, Name) else None
        value = written if let is None else let
        found = constant(value)
        if found is not None and fits(found, param.type):
            self._values[param.name] = value
            return
        declared = next(p for p in target.params if p.name.name == param.name)
        self.diagnostics.error(
            "FD232",
            f"`{param.name}` cannot be `{show(written)}`",
            written.span or part.name.span,
            labels=[Label(declared.span, "declared here")],
            notes=["a fixed parameter is a constant of the declared type"],
        )

    def _params(self, target: ast.Op) -> Iterator[ast.Param]:
        """What the rule reads."""
        given = {ident.name for ident in self.fuse.given}
        for param in target.params:
            name = param.name.name
            if param.kind not in ("read", "inout") or name in self._values:
                continue
            kind = self._type(param.type, {})
            kind = replace(kind, optional=kind.optional and name not in given)
            yield replace(param, type=kind, kind="read", default=None, keyword_only=False)

    def _type(self, kind: ast.Type, rows: Mapping[str, str]) -> ast.Type:
        if isinstance(kind, ast.ScalarType):
            return kind
        dims = tuple(_called(substitute(dim, self._values), rows) for dim in kind.dims)
        strides = kind.strides and tuple(
            _called(substitute(stride, self._values), rows) for stride in kind.strides
        )
        dtype = self._values.get(kind.dtype.name)
        ident = ast.Ident(dtype.id, kind.dtype.span) if isinstance(dtype, Name) else kind.dtype
        return replace(kind, dtype=ident, dims=dims, strides=strides)

    # --- its meaning ---------------------------------------------------------------------------

    def _resolved(
        self, means: Iterable[ast.Statement], params: tuple[ast.Param, ...]
    ) -> tuple[ast.Assign, ...] | None:
        """`means` for these parameters: one arm of each `case`, every value rounded once."""
        found: list[ast.Assign] = []
        for statement in means:
            if isinstance(statement, ast.Assign):
                found.append(self._assign(statement))
                continue
            holds = self._decided(statement, params)
            if holds is None:
                return None
            arm = self._resolved(statement.then if holds else statement.otherwise, params)
            if arm is None:
                return None
            found.extend(arm)
        return tuple(found)

    def _assign(self, node: ast.Assign) -> ast.Assign:
        targets = tuple(
            t if t.type is None else replace(t, type=self._type(t.type, {})) for t in node.targets
        )
        return replace(node, targets=targets, value=rewrite(node.value, self._plain))

    def _plain(self, expr: Expr) -> Expr | None:
        match expr:
            case Unary(op="~"):
                return rewrite(expr.operand, self._plain)
            case Call(func="round?", args=(inner,)):
                return rewrite(inner, self._plain)
            case Name():
                return self._values.get(expr.id)
            case _:
                return None

    def _decided(self, node: ast.Case, params: tuple[ast.Param, ...]) -> bool | None:
        present = {p.name.name for p in params if not p.type.optional}

        def known(expr: Expr) -> Expr | None:
            match expr:
                case Binary(op="==" | "!=" as op, left=Name() as left, right=Literal(value=None)):
                    return Literal(op == "!=") if left.id in present else None
                case _:
                    return None

        condition = rewrite(substitute(node.condition, self._values), known)
        verdict = truth(condition, {}).truth
        if verdict is not Truth.UNKNOWN:
            return verdict is Truth.TRUE
        self._undecided(node, params)
        return None

    def _undecided(self, node: ast.Case, params: tuple[ast.Param, ...]) -> None:
        target = self.fuse.target.name
        mentioned = [p for p in params if p.name.name in names(node.condition)]
        ways = [f"fix it: `{target}({p.name.name} = ...)`" for p in mentioned]
        ways += [
            f"say that it is given: `{target}({p.name.name})`" for p in mentioned if p.type.optional
        ]
        self.diagnostics.error(
            "FD231",
            f"`{target}` means one thing or another",
            self.fuse.target.span,
            labels=[Label(node.condition.span or node.span, "this is not decided")],
            help=", or ".join(ways) or "write a `rule` with a `match` of its own",
        )

    # --- the rule ------------------------------------------------------------------------------

    def _attempt(
        self, reading: _Reading, assumed: Mapping[str, str], diagnostics: Diagnostics
    ) -> ast.Rule | None:
        """The rule, where dtype variables are what is `assumed`."""
        target, params, means = reading.target, reading.params, reading.means
        scope = self.new_scope(diagnostics)
        Signature(scope).params(params)
        dtypes = DTypes(scope.dtype_set)
        known = self._conditions(reading)
        facts.assume(known, scope, dtypes)
        for name, dtype in assumed.items():
            dtypes.assume_in(name, frozenset({dtype}))
        recorder = Recorder(scope, dtypes, self.ops)
        recorder.statements(means)
        if diagnostics.has_errors:
            return None
        results = [r.name for r in self.ops[self.fuse.target.name].call_results]
        if not self._are_computed(results, recorder, target, diagnostics):
            return None
        needed = frozenset(
            recorder.body.resolve(name) for name in results if name in recorder.bound
        )
        calls = [step for step in recorder.body.steps if isinstance(step, CallStep)]
        conditions_known = frozenset(condition.expr for condition in known)
        _, lifted = lift(
            calls,
            needed,
            self._semantic_ops(scope),
            Facts(scope, dtypes, recorder.body.types, conditions_known),
        )
        source = Unlowering(recorder, means, lifted)
        match = source.statements([name for name in results if name in recorder.bound])
        if not self._binds_all(params, match, diagnostics):
            return None
        return self._rule(target, params, match, recorder)

    def _semantic_ops(self, scope: Scope) -> list[OpDecl]:
        visible = scope.visible
        return [
            decl
            for name, decl in sorted(self.ops.items())
            if name != self.fuse.target.name
            and decl.forms
            and visible.find(visible.definitions.ops, name) is not None
        ]

    def _conditions(self, reading: _Reading) -> tuple[Condition, ...]:
        """What holds wherever the rule fires: its `where` and that of the target."""
        quiet = self.new_scope(Diagnostics())
        Signature(quiet).params(reading.params)
        for let in self.fuse.lets:
            value = let_value(ExprChecker(quiet), let.value, let.span)
            if value is not None:
                quiet.lets[let.name.name] = value
        rows = reading.rows
        required = tuple(replace(c, expr=_called(c.expr, rows)) for c in reading.target.where)
        written = self._where((*self.fuse.where, *required))
        return conditions(written, quiet, about_readers=True)

    def _where(self, written: Iterable[ast.Condition]) -> tuple[ast.Condition, ...]:
        return tuple(replace(c, expr=substitute(c.expr, self._values)) for c in written)

    def _are_computed(
        self, results: list[str], recorder: Recorder, target: ast.Op, diagnostics: Diagnostics
    ) -> bool:
        fine = True
        for name in results:
            if name not in recorder.bound:
                continue
            if not isinstance(recorder.bound[name], TensorValue):
                fine = False  # said where the op is declared
            elif recorder.body.resolve(name) in recorder.scope.tensors:
                fine = False
                diagnostics.error(
                    "FD233",
                    f"`{name}` of `{self.fuse.target.name}` is one of its inputs here",
                    self.fuse.target.span,
                    labels=[
                        Label(recorder.body.spans.get(name, target.name.span), "this is an input")
                    ],
                    notes=["what a rule replaces is computed by its source"],
                )
        return fine

    def _binds_all(
        self,
        params: tuple[ast.Param, ...],
        match: tuple[ast.Assign, ...],
        diagnostics: Diagnostics,
    ) -> bool:
        read = {name for statement in match for name in names(statement.value)}
        fine = True
        for param in params:
            name = param.name.name
            if name in read:
                continue
            fine = False
            scalar = isinstance(param.type, ast.ScalarType)
            diagnostics.error(
                "FD234",
                f"nothing in the meaning of `{self.fuse.target.name}` says what `{name}` is",
                self.fuse.target.span,
                labels=[Label(param.span, "a parameter of the target")],
                help=f"fix it: `{self.fuse.target.name}({name} = ...)`"
                if scalar
                else "write a `rule` with a `match` of its own",
            )
        return fine

    def _rule(
        self,
        target: ast.Op,
        params: tuple[ast.Param, ...],
        match: tuple[ast.Assign, ...],
        recorder: Recorder,
    ) -> ast.Rule:
        fuse = self.fuse
        results = self.ops[fuse.target.name].call_results
        call = ast.Assign(
            tuple(
                ast.Target(
                    ast.Ident(r.name if r.name in recorder.bound else "_", fuse.target.span), None
                )
                for r in results
            ),
            self._call(target),
            fuse.target.span,
        )
        kept = tuple(
            ast.Assign((ast.Target(name, None),), Name(name.name, span=name.span), name.span)
            for name in fuse.keep
        )
        return ast.Rule(
            name=fuse.rule,
            params=params,
            lets=fuse.lets,
            match=match,
            replace=(call, *kept),
            where=self._where(fuse.where),
            allow=fuse.allow,
            before=fuse.before,
            after=fuse.after,
            examples=fuse.examples,
            doc=fuse.doc,
            span=fuse.span,
        )

    def _call(self, target: ast.Op) -> Call:
        span = self.fuse.target.span
        arguments = [
            (p.name.name, self._values.get(p.name.name, Name(p.name.name, span=span)))
            for p in target.params
            if p.kind in ("read", "inout")
        ]
        kwargs = tuple(Keyword(name, value, span=span) for name, value in arguments)
        return Call(self.fuse.target.name, (), kwargs, span=span, func_span=span)


def _by_rows(
    target: ast.Op, params: tuple[ast.Param, ...], means: tuple[ast.Assign, ...]
) -> tuple[ast.Param, ...]:
    """Parameters with `T..` for a `T` that only counts rows: such a kernel takes any rank."""
    kinds = [p.type for p in params] + [r.type for r in target.results]
    tensors = [kind for kind in kinds if isinstance(kind, ast.TensorType)]
    first = {k.dims[0].id for k in tensors if len(k.dims) > 1 and isinstance(k.dims[0], Name)}
    elsewhere = {
        name
        for kind in tensors
        for dim in (*kind.dims[len(kind.dims) > 1 :], *(kind.strides or ()))
        for name in names(dim)
    }
    scalars = {p.name.name for p in target.params if isinstance(p.type, ast.ScalarType)}
    read = {name for s in means for part in walk(s.value) for name in names(part)}
    rows = first - elsewhere - scalars - read

    def freed(param: ast.Param) -> ast.Param:
        kind = param.type
        if isinstance(kind, ast.ScalarType) or not kind.dims:
            return param
        head = kind.dims[0]
        if not isinstance(head, Name) or head.id not in rows:
            return param
        return replace(
            param, type=replace(kind, dims=(Spread(head.id, span=head.span), *kind.dims[1:]))
        )

    return tuple(map(freed, params))


ROWS = "tokens"
"""What the leading dimensions of a derived rule are called: token ranges are about this name."""


def _rows(params: tuple[ast.Param, ...], means: tuple[ast.Assign, ...]) -> Mapping[str, str]:
    """The one `name..` that other dimensions follow, or the only one, to be called `tokens`."""
    kinds = [p.type for p in params if isinstance(p.type, ast.TensorType)]
    dims = [dim for kind in kinds for dim in kind.dims]
    spreads = {dim.name for dim in dims if isinstance(dim, Spread)}
    leading = {
        d.name for kind in kinds for d in kind.dims[:1] if isinstance(d, Spread) and kind.dims[1:]
    }
    spreads = leading or spreads
    taken = {name for dim in dims for name in names(dim)} | {p.name.name for p in params}
    taken |= {target.name.name for statement in means for target in statement.targets}
    return {spreads.pop(): ROWS} if len(spreads) == 1 and ROWS not in taken else {}


def _renamed(means: tuple[ast.Assign, ...], rows: Mapping[str, str]) -> tuple[ast.Assign, ...]:
    return tuple(replace(node, value=_called(node.value, rows)) for node in means)


def _called(expr: Expr, rows: Mapping[str, str]) -> Expr:
    """An expression with sizes under other names."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Name() if part.id in rows:
                return replace(part, id=rows[part.id])
            case Spread() if part.name in rows:
                return replace(part, name=rows[part.name])
            case _:
                return None

    return rewrite(expr, change) if rows else expr


def _source(rule: ast.Rule) -> list[tuple[list[str], Expr]]:
    """What `match` says, wherever it comes from."""
    return [([t.name.name for t in node.targets], node.value) for node in _assigns(rule)]


def _length(rule: ast.Rule) -> int:
    return sum(len(list(walk(node.value))) for node in _assigns(rule))


def _assigns(rule: ast.Rule) -> Iterator[ast.Assign]:
    yield from (node for node in rule.match if isinstance(node, ast.Assign))


def with_origin(found: Iterable[Diagnostic], fuse: ast.Fuse) -> Iterator[Diagnostic]:
    """Diagnostics about derived parts point at the `fuse` too."""
    for item in found:
        span = item.span
        inside = (
            span is not None
            and span.source is fuse.span.source
            and (fuse.span.start <= span.start <= fuse.span.end)
        )
        if inside:
            yield item
        else:
            yield replace(
                item, labels=(*item.labels, Label(fuse.target.span, "derived for this `fuse`"))
            )
