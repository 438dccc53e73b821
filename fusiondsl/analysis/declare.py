"""Op declarations: signatures first, then meanings, forms and kernels over all signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusiondsl.analysis import facts
from fusiondsl.analysis.body import computed, reads
from fusiondsl.analysis.clauses import conditions, differences, learned, optional_dtypes
from fusiondsl.analysis.conditions import ExprChecker
from fusiondsl.analysis.determined import determined
from fusiondsl.analysis.dtypes import DTypes
from fusiondsl.analysis.exprs import conjuncts, rewrite
from fusiondsl.analysis.lower import Lowering
from fusiondsl.analysis.names import Defined
from fusiondsl.analysis.scope import Scope
from fusiondsl.analysis.signature import Signature, constant
from fusiondsl.analysis.values import ScalarValue, TensorValue
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Binary, Expr, Name, Wildcard
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.dims.names import names
from fusiondsl.ir.program import (
    Call,
    Condition,
    Const,
    Effect,
    Form,
    Impl,
    ListOf,
    OpDecl,
    Param,
    Result,
    ScalarType,
    Step,
    TensorType,
    Type,
    Unread,
)
from fusiondsl.syntax import ast


@dataclass(slots=True)
class Declared:
    """An op on its way: the signature is done, the bodies are not."""

    written: ast.Op
    scope: Scope
    decl: OpDecl
    broken: bool


def declare(defined: Defined[ast.Op], scope: Scope) -> Declared:
    """The signature of an op."""
    op = defined.item
    signature = Signature(scope, of_op=True)
    params = signature.params(op.params)
    results = signature.results(op.results)
    _check_results(op, scope)
    complete = op.extern or signature.broken or _check_sizes(op, params, results, scope)
    decl = OpDecl(
        name=op.name.name,
        extern=op.extern,
        overload=op.overload,
        params=params,
        results=results,
        means=None,
        axiom=op.axiom,
        forms=(),
        where=(),
        available=(),
        impls=(),
        effects=(),
        differs=(),
        doc=op.doc,
        span=op.name.span,
    )
    return Declared(op, scope, decl, signature.broken or not complete)


def _check_results(op: ast.Op, scope: Scope) -> None:
    seen: dict[str, Span] = {}
    for result in op.results:
        name, span = result.name.name, result.name.span
        first = seen.setdefault(name, span)
        if first is not span:
            scope.diagnostics.error(
                "FD106",
                f"two results are called `{name}`",
                span,
                labels=[Label(first, "the first one")],
            )
        elif name in scope.spans and name in {p.name.name for p in op.params}:
            scope.diagnostics.error(
                "FD106",
                f"the result `{name}` is called like a parameter",
                span,
                labels=[Label(scope.spans[name], "the parameter")],
            )


def _check_sizes(
    op: ast.Op, params: tuple[Param, ...], results: tuple[Result, ...], scope: Scope
) -> bool:
    """Do the arguments determine every size of the results?"""
    known = _determined(params, scope)
    fine = True
    for result, written in zip(results, op.results, strict=False):
        if not isinstance(result.type, TensorType):
            continue
        sizes = (*result.type.dims, *(result.type.strides or ()))
        for name in sorted({n for size in sizes for n in names(size)} & scope.dims - known):
            fine = False
            scope.diagnostics.error(
                "FD215",
                f"the arguments do not determine `{name}` of the result `{result.name}`",
                written.type.span,
                labels=[Label(scope.spans[name], f"`{name}` is one unknown among others")],
                help=f"add a parameter `{name}: int`, or an input that has this size alone",
            )
    return fine


def _determined(params: tuple[Param, ...], scope: Scope) -> set[str]:
    """The names that the sizes of the inputs can be solved for."""
    read = (p.type for p in params if p.kind != "out")
    return determined((size for t in read if isinstance(t, TensorType) for size in t.dims), scope)


def check_torch_names(declared: Iterable[Declared], diagnostics: Diagnostics) -> None:
    """Every op is one torch op: an extern one has a namespace, ours have names of their own."""
    ours: dict[str, Span] = {}
    for item in declared:
        decl, span = item.decl, item.written.name.span
        if decl.extern and "." not in decl.name:
            diagnostics.error(
                "FD119",
                f"`{decl.name}` has no namespace",
                span,
                help="an extern op is called as in torch: `namespace.name` or "
                "`namespace.name.overload`",
            )
        if decl.extern:
            continue
        first = ours.setdefault(decl.torch_name, span)
        if first is not span:
            diagnostics.error(
                "FD119",
                f"`{decl.name}` is registered as `{decl.torch_name}`, like another op",
                span,
                labels=[Label(first, "this one")],
            )


class OpBuilder:
    """Fills in the clauses of one op."""

    def __init__(self, declared: Declared, signatures: Mapping[str, OpDecl]) -> None:
        self.op = declared.written
        self.scope = declared.scope
        self.decl = declared.decl
        self.signatures = signatures
        self.diagnostics = declared.scope.diagnostics

    def build(self) -> OpDecl:
        where = conditions(self.op.where, self.scope)
        return replace(
            self.decl,
            where=where,
            available=conditions(self.op.available, self.scope),
            means=self._means(where),
            forms=self._forms(where),
            impls=tuple(self._impl(impl) for impl in self.op.impls),
            effects=tuple(self._effect(effect) for effect in self.op.effects),
            unread=tuple(map(self._unread, self.op.unread)),
            differs=differences(self.op.differs, self.scope, self._is_result),
        )

    def _is_result(self, name: str) -> bool:
        return any(r.name == name for r in self.decl.call_results)

    @property
    def _optional(self) -> set[str]:
        return optional_dtypes(p.type for p in self.decl.params)

    def _lowering(self, where: Sequence[Condition], *, means: bool) -> Lowering:
        scope = self._inner_scope()
        dtypes = DTypes(scope.dtype_set)
        facts.assume(where, scope, dtypes)
        results = frozenset(r.name for r in self.decl.call_results) if means else frozenset()
        return Lowering(
            scope,
            dtypes,
            self.signatures,
            assume=not means,
            means=means,
            wildcards=not means,
            own=results,
        )

    def _inner_scope(self) -> Scope:
        """A scope of its own for each body, so that local names do not meet."""
        outer = self.scope
        scope = Scope(outer.visible, outer.file_lets)
        scope.tensors.update(outer.tensors)
        scope.scalars.update(outer.scalars)
        scope.dims |= outer.dims
        scope.spreads |= outer.spreads
        scope.dtype_vars |= outer.dtype_vars
        outs = {p.name for p in self.decl.params if p.kind == "out"}
        scope.spans.update({k: v for k, v in outer.spans.items() if k not in outs})
        for name in outs:
            scope.tensors.pop(name, None)
        return scope

    # --- meaning -------------------------------------------------------------------------------

    def _means(self, where: Sequence[Condition]) -> tuple[Step, ...] | None:
        if self.op.means is None:
            return None
        lowering = self._lowering(where, means=True)
        lowering.statements(self.op.means)
        lowering.body.finish()
        for result in self.decl.call_results:
            self._check_result(lowering, result.name, result.type, self.op.name.span, "`means`")
        return tuple(lowering.body.steps)

    def _check_result(
        self, lowering: Lowering, name: str, kind: Type, span: Span, what: str
    ) -> TensorType | None:
        """Holds a value of a body against the declared result of the same name."""
        if name not in lowering.bound:
            optional = kind.optional
            inout = any(p.name == name and p.kind == "inout" for p in self.decl.params)
            if not optional and not inout and what == "`means`":
                self.diagnostics.error("FD223", f"{what} does not say what `{name}` is", span)
            return None
        value = lowering.bound[name]
        if isinstance(value, ScalarValue) and isinstance(kind, TensorType):
            message = f"`{name}` is a tensor, and {what} makes it one number"
            self.diagnostics.error("FD206", message, self._span_of(lowering, name, span))
        if not isinstance(value, TensorValue) or isinstance(kind, ScalarType):
            return None
        found = lowering.body.types.get(lowering.body.resolve(name), value.type)
        if found is None:
            return None
        return lowering.agree(
            replace(kind, optional=False), found, name, self._span_of(lowering, name, span)
        )

    @staticmethod
    def _span_of(lowering: Lowering, name: str, span: Span) -> Span:
        return lowering.body.spans.get(name, span)

    # --- forms ---------------------------------------------------------------------------------

    def _forms(self, op_where: Sequence[Condition]) -> tuple[Form, ...]:
        seen: dict[str, Span] = {}
        forms = []
        for form in self.op.forms:
            first = seen.setdefault(form.name.name, form.name.span)
            if first is not form.name.span:
                self.diagnostics.error(
                    "FD106",
                    f"two forms are called `{form.name.name}`",
                    form.name.span,
                    labels=[Label(first, "the first one")],
                )
                continue
            forms.append(self._form(form, op_where))
        return tuple(forms)

    def _form(self, form: ast.Form, op_where: Sequence[Condition]) -> Form:
        where = conditions(form.where, self.scope)
        lowering = self._lowering([*op_where, *where], means=False)
        lowering.statements(form.body)
        names = [r.name for r in self.decl.call_results]
        if not any(name in lowering.bound for name in names):
            self.diagnostics.error(
                "FD223",
                f"the form `{form.name.name}` gives none of the results",
                form.name.span,
                notes=[f"results are {', '.join(names)}"],
            )
        for result in self.decl.call_results:
            kind = self._check_result(
                lowering, result.name, result.type, form.name.span, f"`{form.name.name}`"
            )
            resolved = lowering.body.resolve(result.name)
            if kind is not None and resolved in lowering.body.types:
                lowering.body.types[resolved] = kind
        lowering.body.finish()
        calls = tuple(s for s in lowering.body.steps if isinstance(s, Call))
        results = tuple(lowering.body.resolve(n) if n in lowering.bound else None for n in names)
        types = tuple(sorted((k, v) for k, v in lowering.body.types.items() if v is not None))
        return Form(
            name=form.name.name,
            body=calls,
            results=results,
            fixed=self._fixed(form, calls, where),
            where=where + learned(lowering.dtypes, lowering.scope.sizes, where, self._optional),
            differs=differences(form.differs, self.scope, self._is_result),
            types=types,
            span=form.name.span,
        )

    def _fixed(
        self, form: ast.Form, calls: Iterable[Call], where: Sequence[Condition]
    ) -> tuple[tuple[str, Const], ...]:
        mentioned: set[str] = set()
        for call in calls:
            mentioned.update(reads(call))
            for scalar in computed(call):
                mentioned |= names(scalar.expr)
        result_dtypes = {
            r.type.dtype for r in self.decl.call_results if isinstance(r.type, TensorType)
        }
        fixed = []
        for param in self.decl.call_params:
            if param.name in mentioned or param.name in result_dtypes:
                continue
            value = _stated(param, where) or param.default
            if isinstance(value, Const):
                fixed.append((param.name, value))
            elif not isinstance(value, ListOf):
                self._unmentioned(form, param)
        return tuple(fixed)

    def _unmentioned(self, form: ast.Form, param: Param) -> None:
        self.diagnostics.error(
            "FD224",
            f"the form `{form.name.name}` does not say what `{param.name}` is",
            form.name.span,
            labels=[Label(self.scope.spans[param.name], "a parameter without a default")],
            help=f"use it in the form, or add `where {{ {param.name} == ... }}` to it",
        )

    # --- kernels -------------------------------------------------------------------------------

    def _impl(self, impl: ast.Impl) -> Impl:
        args = tuple(self._impl_argument(arg) for arg in impl.args)
        kwargs = tuple((name, self._impl_argument(value)) for name, value in impl.kwargs)
        if impl.results is not None:
            self._impl_results(impl.results)
        when = None
        if impl.when is not None:
            when = ExprChecker(self.scope).condition(impl.when)
        return Impl(impl.location, args, kwargs, impl.results, when)

    def _impl_argument(self, arg: Expr) -> Expr:
        """Any expression over parameters, sizes, and results (buffers that the kernel fills)."""

        def change(part: Expr) -> Expr | None:
            if not isinstance(part, Name) or self._is_result(part.id):
                return None
            if constant(part) is not None:
                return None
            return ExprChecker(self.scope).check(part)[0]

        return rewrite(arg, change)

    def _impl_results(self, results: Expr) -> None:
        match results:
            case Name():
                if not self._is_result(results.id):
                    names = [r.name for r in self.decl.call_results]
                    self.diagnostics.error(
                        "FD110",
                        f"`{self.decl.name}` has no result `{results.id}`",
                        results.span,
                        help=did_you_mean(results.id, names),
                    )
            case Wildcard():
                return
            case ExprSequence():
                for item in results.items:
                    self._impl_results(item)
            case _:
                self.diagnostics.error(
                    "FD221", "results are names, `_`, and groups of them", results.span
                )

    def _effect(self, effect: ast.Effect) -> Effect:
        for arg in effect.args:
            ExprChecker(self.scope).check(arg)
        return Effect(effect.resource.name, effect.args)

    def _unread(self, unread: ast.Unread) -> Unread:
        name, span = unread.parameter.name, unread.parameter.span
        read = [p.name for p in self.decl.params if p.kind == "read" and _is_tensor(p)]
        if name not in read:
            message, help = f"`{self.decl.name}` reads no tensor `{name}`", did_you_mean(name, read)
            self.diagnostics.error("FD236", message, span, help=help)
        elif self.op.means is not None:
            message = f"`means` says already what depends on `{name}`"
            self.diagnostics.error("FD236", message, span)
        return Unread(name, ExprChecker(self.scope).condition(unread.when))


def _is_tensor(param: Param) -> bool:
    return isinstance(param.type, TensorType)


def _stated(param: Param, where: Sequence[Condition]) -> Const | None:
    """The value of a parameter where a condition of the form says `param == value`."""
    for condition in where:
        for part in conjuncts(condition.expr):
            match part:
                case Binary(op="==", left=Name(id=name), right=right) if name == param.name:
                    value = constant(right)
                    return value if isinstance(value, Const) else None
    return None
