"""Calls of declared ops: arguments to parameters, and the types of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusiondsl.analysis.exprs import show
from fusiondsl.analysis.kinds import Kind, scalar_kind
from fusiondsl.analysis.signature import describe
from fusiondsl.analysis.unify import Mismatch, Unifier
from fusiondsl.analysis.values import AnyValue, ListValue, ScalarValue, TensorValue, Value
from fusiondsl.decl.primitives import FUNCTIONS
from fusiondsl.diagnostics.diagnostic import Label
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import Call, Expr, Wildcard
from fusiondsl.ir.program import (
    Anything,
    Const,
    ListOf,
    OpDecl,
    Operand,
    Param,
    ScalarType,
    TensorType,
)

if TYPE_CHECKING:
    from fusiondsl.analysis.lower import Lowering


class CallLowering:
    """Resolves one call after the other against the declarations."""

    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering

    def results(self, expr: Call) -> list[Value | None] | None:
        decl = self._find(expr)
        if decl is None:
            for arg in (*expr.args, *(k.value for k in expr.kwargs)):
                self.low.value(arg)  # still reports what is wrong inside, and counts as used
            return None
        written = self._arguments(expr, decl)
        unifier = Unifier(
            decl,
            self.low.dtypes,
            self.low.scope.sizes,
            assume=self.low.assume,
            set_members=self.low.scope.dtype_set,
        )
        operands = self._operands(expr, decl, written, unifier)
        count = len(decl.call_results)
        if operands is None:
            return [None] * count
        types = [unifier.result(result) for result in decl.call_results]
        pure = not decl.effects and all(p.kind != "inout" for p in decl.params)
        if count == 0:
            self.low.body.emit(expr.func, operands, [], expr.span, pure=False)
            return []
        return list(self.low.body.emit(expr.func, operands, types, expr.span, pure=pure))

    def _find(self, expr: Call) -> OpDecl | None:
        visible = self.low.scope.visible
        ops = visible.definitions.ops
        if visible.find(ops, expr.func) is not None:
            return self.low.signatures.get(expr.func)
        known = [n for n, d in ops.items() if d.module.key in visible.module.reachable]
        span = expr.func_span or expr.span
        visible.unknown("FD112", "op", expr.func, span, [*known, *FUNCTIONS], ops)
        return None

    # --- arguments to parameters ---------------------------------------------------------------

    def _arguments(self, expr: Call, decl: OpDecl) -> dict[str, Expr] | None:
        params = decl.call_params
        written: dict[str, Expr] = {}
        positional = [p for p in params if not p.keyword_only]
        if len(expr.args) > len(positional):
            self._too_many(expr, decl, len(positional))
            return None
        for param, arg in zip(positional, expr.args, strict=False):
            written[param.name] = arg
        by_name = {p.name: p for p in params}
        fine = True
        for keyword in expr.kwargs:
            if keyword.name not in by_name:
                self._unknown_keyword(decl, keyword.name, keyword.span)
                fine = False
            elif keyword.name in written:
                self.low.error(
                    "FD201", f"`{keyword.name}` of `{decl.name}` is given twice", keyword.span
                )
                fine = False
            else:
                written[keyword.name] = keyword.value
        missing = [p.name for p in params if p.name not in written and p.default is None]
        if missing and fine:
            names = ", ".join(f"`{name}`" for name in missing)
            self.low.diagnostics.error(
                "FD202", f"`{decl.name}` needs {names}", expr.span, labels=_declared(decl)
            )
            fine = False
        return written if fine else None

    def _too_many(self, expr: Call, decl: OpDecl, allowed: int) -> None:
        self.low.diagnostics.error(
            "FD200",
            f"`{decl.name}` takes {allowed} positional argument(s), not {len(expr.args)}",
            expr.args[allowed].span or expr.span,
            labels=_declared(decl),
            help=_written_buffers(decl),
        )

    def _unknown_keyword(self, decl: OpDecl, name: str, span: Span | None) -> None:
        hidden = next((p for p in decl.params if p.name == name), None)
        if hidden is not None:
            what = "a write-only buffer" if hidden.kind == "out" else "an ordering token"
            self.low.error(
                "FD205",
                f"`{name}` of `{decl.name}` is {what} and is not written",
                span,
                help="its new value comes back as a result" if hidden.kind == "out" else None,
            )
            return
        known = [p.name for p in decl.call_params]
        self.low.diagnostics.error(
            "FD205",
            f"`{decl.name}` has no parameter `{name}`",
            span,
            labels=_declared(decl),
            help=did_you_mean(name, known),
        )

    # --- values --------------------------------------------------------------------------------

    def _operands(
        self, expr: Call, decl: OpDecl, written: Mapping[str, Expr] | None, unifier: Unifier
    ) -> tuple[Operand, ...] | None:
        if written is None:
            return None
        operands: dict[str, Operand | None] = {}
        # scalars first: sizes and dtypes of tensors may name them
        for param in sorted(decl.call_params, key=lambda p: isinstance(p.type, TensorType)):
            operands[param.name] = self._operand(param, written.get(param.name), decl, unifier)
        problem = unifier.finish() if None not in operands.values() else None
        if problem is not None:
            self._report(problem, expr.span, decl)
            return None
        ordered = tuple(o for p in decl.call_params if (o := operands[p.name]) is not None)
        return ordered if len(ordered) == len(operands) else None

    def _operand(
        self, param: Param, expr: Expr | None, decl: OpDecl, unifier: Unifier
    ) -> Operand | None:
        if expr is None:
            assert param.default is not None
            operand: Operand | None = param.default
        else:
            value = self.low.value(expr)
            if value is None:
                return None
            operand = self._fit(param, value, expr, decl, unifier)
        if operand is not None and isinstance(param.type, ScalarType):
            unifier.scalar(param.name, param.type, operand)
        return operand

    def _fit(
        self, param: Param, value: Value, expr: Expr, decl: OpDecl, unifier: Unifier
    ) -> Operand | None:
        if isinstance(value, AnyValue):
            return Anything()
        if isinstance(param.type, TensorType):
            return self._fit_tensor(param, param.type, value, expr, decl, unifier)
        return self._fit_scalar(param, param.type, value, expr, decl)

    def _fit_tensor(
        self,
        param: Param,
        kind: TensorType,
        value: Value,
        expr: Expr,
        decl: OpDecl,
        unifier: Unifier,
    ) -> Operand | None:
        none = isinstance(value, ScalarValue) and value.kind is Kind.NONE
        if none and kind.optional:
            return Const(None)
        if not isinstance(value, TensorValue):
            found = value.kind.value if isinstance(value, ScalarValue) else "a list"
            self._wrong(param, decl, f"`{show(expr)}` is {found}, not a tensor", expr.span)
            return None
        if value.type is None:
            return None
        if value.type.optional and not kind.optional and not self._present(value, decl, expr):
            return None
        what = f"`{show(expr)}`"
        problem = unifier.tensor(kind, value.type, what) or self._layout(kind, value.type, what)
        if problem is not None:
            self._report(problem, expr.span, decl)
            return None
        return value.operand

    def _present(self, value: TensorValue, decl: OpDecl, expr: Expr) -> bool:
        if self.low.assume or value.name in self.low.scope.present:
            return True
        self.low.error(
            "FD217",
            f"`{value.name}` may be `none`, which `{decl.name}` does not take",
            expr.span,
            help=f"add `{value.name} is not none` to `where`",
        )
        return False

    def _layout(self, kind: TensorType, actual: TensorType, what: str) -> Mismatch | None:
        if kind.strides is None or self.low.assume or actual.strides is not None:
            return None
        if any(isinstance(stride, Wildcard) for stride in kind.strides):
            return None  # compared at the site
        return Mismatch("FD303", f"{what} is contiguous, but the parameter is {describe(kind)}")

    def _fit_scalar(
        self, param: Param, kind: ScalarType, value: Value, expr: Expr, decl: OpDecl
    ) -> Operand | None:
        if isinstance(value, ListValue):
            return self._fit_list(param, kind, value, expr, decl)
        if isinstance(value, TensorValue):
            message = f"`{show(expr)}` is a tensor, not {_article(kind)}"
            self._wrong(param, decl, message, expr.span)
            return None
        assert isinstance(value, ScalarValue)
        wanted = Kind.LIST if kind.is_list else scalar_kind(kind.kind)
        if value.kind is Kind.NONE and kind.optional:
            return Const(None)
        if wanted is Kind.FLOAT and value.kind is Kind.INT:
            return _as_float(value.operand)
        if value.kind is not wanted:
            message = f"`{show(expr)}` is {value.kind.value}, not {_article(kind)}"
            self._wrong(param, decl, message, expr.span)
            return None
        return value.operand

    def _fit_list(
        self, param: Param, kind: ScalarType, value: ListValue, expr: Expr, decl: OpDecl
    ) -> Operand | None:
        if not kind.is_list:
            message = f"`{show(expr)}` is a list, not {_article(kind)}"
            self._wrong(param, decl, message, expr.span)
            return None
        item = ScalarType(kind.kind)
        items = [
            Anything() if isinstance(v, AnyValue) else self._fit_scalar(param, item, v, expr, decl)
            for v in value.items
        ]
        known = tuple(i for i in items if i is not None)
        return ListOf(known) if len(known) == len(items) else None

    def _wrong(self, param: Param, decl: OpDecl, message: str, span: Span | None) -> None:
        self.low.diagnostics.error(
            "FD218",
            f"wrong argument for `{param.name}` of `{decl.name}`: {message}",
            span,
            labels=_declared(decl),
        )

    def _report(self, problem: Mismatch, span: Span | None, decl: OpDecl) -> None:
        self.low.diagnostics.error(
            problem.code,
            problem.message,
            span,
            labels=_declared(decl),
            notes=problem.notes,
            help=problem.help,
        )


def _declared(decl: OpDecl) -> list[Label]:
    return [Label(decl.span, "declared here")] if decl.span is not None else []


def _written_buffers(decl: OpDecl) -> str | None:
    outs = [p.name for p in decl.params if p.kind == "out"]
    if not outs:
        return None
    names = ", ".join(f"`{name}`" for name in outs)
    return f"write-only buffers ({names}) are not written: they come back as results"


def _as_float(operand: Operand) -> Operand:
    if isinstance(operand, Const) and isinstance(operand.value, int):
        return Const(float(operand.value))
    return operand


def _article(kind: ScalarType) -> str:
    if kind.is_list:
        return "a list"
    return scalar_kind(kind.kind).value
