"""Parameters, results and annotations: written types to checked ones."""

from __future__ import annotations

from dataclasses import replace

from fusiondsl.analysis.conditions import ExprChecker
from fusiondsl.analysis.exprs import show
from fusiondsl.analysis.kinds import Kind, kind_of_value, scalar_kind
from fusiondsl.analysis.scope import Scope
from fusiondsl.decl.dtypes import ANY, DTYPES, FP8
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import DType, Expr, Literal, Name, Sequence, Spread, Unary, Wildcard
from fusiondsl.dims.render import render
from fusiondsl.ir.program import Const, ListOf, Param, Result, ScalarType, TensorType, Type
from fusiondsl.syntax import ast


class Signature:
    """Reads the parameters of an op or rule into a scope, then types over that scope."""

    def __init__(self, scope: Scope, *, of_op: bool = False) -> None:
        self.scope = scope
        self.broken = False
        self._of_op = of_op
        self._binds = False
        self._open = False
        """A stride may be left open."""

    # --- parameters ----------------------------------------------------------------------------

    def params(self, params: tuple[ast.Param, ...]) -> tuple[Param, ...]:
        # scalars first: a size or dtype may name a parameter that comes later
        for param in params:
            self._claim(param)
        self._binds = True
        checked = tuple(p for p in map(self._param, params) if p is not None)
        self._binds = False
        return checked

    def _claim(self, param: ast.Param) -> None:
        name = param.name.name
        if not self.scope.claim(name, param.name.span, "the parameter"):
            self.broken = True
            return
        if isinstance(param.type, ast.ScalarType):
            self.scope.scalars[name] = _scalar(param.type)

    def _param(self, param: ast.Param) -> Param | None:
        name = param.name.name
        if isinstance(param.type, ast.ScalarType):
            checked: Type = _scalar(param.type)
        else:
            # What an op writes has the strides it is declared with.
            self._open = self._of_op and param.kind != "out"
            tensor = self.tensor(param.type)
            self._open = False
            self.scope.add_tensor(name, _closed(tensor))
            if tensor is None:
                self.broken = True
                return None
            checked = tensor
        default = self._default(param, checked)
        return Param(name, checked, param.kind, default, param.keyword_only)

    def _default(self, param: ast.Param, kind: Type) -> Const | ListOf | None:
        if param.default is None:
            return None
        value = constant(param.default)
        if value is None or not fits(value, kind):
            self.broken = True
            self.scope.diagnostics.error(
                "FD222",
                f"`{show(param.default)}` is no default for {describe(kind)}",
                param.default.span or param.span,
            )
            return None
        return as_float(value, kind)

    # --- results and annotations ---------------------------------------------------------------

    def results(self, results: tuple[ast.Result, ...]) -> tuple[Result, ...]:
        checked = []
        for result in results:
            kind = self.type(result.type)
            if kind is None:
                self.broken = True
            elif self._determined(kind, result.type.span):
                checked.append(Result(result.name.name, kind))
        return tuple(checked)

    def _determined(self, kind: Type, span: Span) -> bool:
        if isinstance(kind, ScalarType) or kind.dtype == ANY:
            return True
        if self.scope.dtype_set(kind.dtype) is None:
            return True
        self.broken = True
        self.scope.diagnostics.error(
            "FD216",
            f"the dtype of the result is not determined: `{kind.dtype}` is a set",
            span,
            help="use a dtype variable that a parameter binds",
        )
        return False

    def type(self, written: ast.Type) -> Type | None:
        return _scalar(written) if isinstance(written, ast.ScalarType) else self.tensor(written)

    def annotation(self, written: ast.TensorType) -> TensorType | None:
        """The type of a value; its new names bind sizes."""
        self._binds = True
        checked = self.tensor(written)
        self._binds = False
        return checked

    def tensor(self, written: ast.TensorType) -> TensorType | None:
        dtype = self._dtype(written.dtype)
        dims = self._dims(written.dims)
        strides = self._strides(written)
        if dtype is None or dims is None or strides == "broken":
            return None
        assert not isinstance(strides, str)
        return TensorType(dtype, dims, strides, written.optional)

    # --- parts ---------------------------------------------------------------------------------

    def _dtype(self, ident: ast.Ident) -> str | None:
        name, scope = ident.name, self.scope
        if scope.is_known_dtype(name):
            scope.used.add(name)
            return name
        if self._binds and name[:1].isupper() and name not in scope.spans:
            scope.dtype_vars.add(name)
            scope.spans[name] = ident.span
            return name
        if name in scope.spans:
            scope.diagnostics.error("FD220", f"`{name}` is no dtype", ident.span)
            return None
        known = [*DTYPES, FP8, ANY, *scope.dtype_vars, *scope.visible.definitions.sets]
        notes = [] if name[:1].isupper() else ["a dtype variable starts with a capital letter"]
        if not self._binds and name[:1].isupper():
            notes = ["no parameter binds this dtype variable"]
        scope.diagnostics.error(
            "FD111",
            f"unknown dtype `{name}`",
            ident.span,
            notes=notes,
            help=did_you_mean(name, known),
        )
        return None

    def _dims(self, dims: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        checked: list[Expr] = []
        for position, dim in enumerate(dims):
            size = self._spread(dim, position) if isinstance(dim, Spread) else self._size(dim)
            if size is None:
                return None
            checked.append(size)
        return tuple(checked)

    def _spread(self, dim: Spread, position: int) -> Expr | None:
        scope = self.scope
        if position != 0:
            scope.diagnostics.error(
                "FD212", f"`{dim.name}..` must be the first dimension", dim.span
            )
            return None
        if dim.name in scope.spreads:
            return dim
        if self._binds and dim.name not in scope.spans:
            scope.add_dim(dim.name, dim.span, spread=True)
            return dim
        scope.diagnostics.error("FD212", f"`{dim.name}..` is not bound by a parameter", dim.span)
        return None

    def _size(self, dim: Expr) -> Expr | None:
        free = self._bind_dim if self._binds else None
        return ExprChecker(self.scope, free).size(dim)

    def _bind_dim(self, name: str, span: Span | None) -> bool:
        if name in self.scope.spans or "." in name:
            return False
        self.scope.add_dim(name, span)
        return True

    def _strides(self, written: ast.TensorType) -> tuple[Expr, ...] | str | None:
        if written.strides is None:
            return None
        if len(written.strides) != len(written.dims):
            self.scope.diagnostics.error(
                "FD211",
                f"{len(written.strides)} stride(s) for {len(written.dims)} dimension(s)",
                written.span,
            )
            return "broken"
        checked: list[Expr] = []
        for stride in written.strides:
            size = self._stride(stride)
            if size is None:
                return "broken"
            checked.append(size)
        return tuple(checked)

    def _stride(self, stride: Expr) -> Expr | None:
        if isinstance(stride, Spread) or (self._open and isinstance(stride, Wildcard)):
            return stride
        if not isinstance(stride, Wildcard):
            return self._size(stride)
        self.scope.diagnostics.error(
            "FD221", "only what an op reads may leave a stride open", stride.span
        )
        return None


def _closed(kind: TensorType | None) -> TensorType | None:
    """As a value in a body: what is open about its layout is nothing the body computes."""
    if kind is None or not any(isinstance(s, Wildcard) for s in kind.strides or ()):
        return kind
    return replace(kind, strides=None)


def _scalar(written: ast.ScalarType) -> ScalarType:
    return ScalarType(written.kind, written.is_list, written.optional)


def constant(expr: Expr) -> Const | ListOf | None:
    """A literal, a dtype, or a list of them as an operand."""
    match expr:
        case Literal():
            return Const(expr.value)
        case Name() if expr.id in DTYPES or expr.id == FP8:
            return Const(DType(expr.id))
        case Unary(op="-", operand=Literal(value=int() | float() as value)):
            return None if isinstance(value, bool) else Const(-value)
        case Sequence():
            items = [constant(item) for item in expr.items]
            known = tuple(item for item in items if item is not None)
            return ListOf(known) if len(known) == len(items) else None
        case _:
            return None


def fits(value: Const | ListOf, kind: Type) -> bool:
    """May the constant be passed for a parameter of this type?"""
    if isinstance(value, ListOf):
        if not isinstance(kind, ScalarType) or not kind.is_list:
            return False
        item = ScalarType(kind.kind)
        return all(isinstance(v, Const) and fits(v, item) for v in value.items)
    if value.value is None:
        return kind.optional
    if isinstance(kind, TensorType) or kind.is_list:
        return False
    found = Kind.DTYPE if isinstance(value.value, DType) else kind_of_value(value.value)
    wanted = scalar_kind(kind.kind)
    return found is wanted or (wanted is Kind.FLOAT and found is Kind.INT)


def as_float(value: Const | ListOf, kind: Type) -> Const | ListOf:
    """An integer written for a float is that float."""
    if isinstance(kind, TensorType) or kind.kind != "float":
        return value
    if isinstance(value, ListOf):
        items = tuple(as_float(v, kind) if isinstance(v, Const) else v for v in value.items)
        return ListOf(items)
    whole = isinstance(value.value, int) and not isinstance(value.value, bool)
    return Const(float(value.value)) if whole and isinstance(value.value, int) else value


def describe(kind: Type) -> str:
    """A type for messages."""
    if isinstance(kind, TensorType):
        text = f"{kind.dtype}[{', '.join(map(render, kind.dims))}]"
        if kind.strides is not None:
            text += f" strides ({', '.join(map(render, kind.strides))})"
    else:
        text = kind.kind + ("[]" if kind.is_list else "")
    return f"`{text}{'?' if kind.optional else ''}`"
