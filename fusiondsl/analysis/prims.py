"""Operators, functions and torch-like methods: primitive calls and the types they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusiondsl.analysis.dtypes import as_float
from fusiondsl.analysis.exprs import show
from fusiondsl.analysis.kinds import Kind
from fusiondsl.analysis.shapes import Shapes, shape_operand
from fusiondsl.analysis.values import AnyValue, ListValue, ScalarValue, TensorValue, Value
from fusiondsl.decl.primitives import METHODS, OPERATORS, PRIMITIVES, REDUCTIONS
from fusiondsl.diagnostics.source import Span
from fusiondsl.diagnostics.suggest import did_you_mean
from fusiondsl.dims.expr import (
    Binary,
    Call,
    Expr,
    Keyword,
    Literal,
    Method,
    Name,
    Subscript,
)
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.ir.program import (
    Anything,
    Computed,
    Const,
    ListOf,
    Operand,
    TensorType,
)

if TYPE_CHECKING:
    from fusiondsl.analysis.lower import Lowering

_FLOATING = frozenset(
    ["exp", "exp2", "log2", "sqrt", "rsqrt", "reciprocal", "sigmoid", "silu", "tanh", "div", "mean"]
)
"""What makes f32 of integers."""

Results = list[Value | None]


class Primitives:
    """Lowers what needs no declaration."""

    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering
        self.shapes = Shapes(lowering)

    # --- entry points --------------------------------------------------------------------------

    def call(self, expr: Call) -> Results | None:
        """`mean(x, -1)`, `split(x, [A, B])`, `zeros([T, H], f32)`."""
        name = "maybe_round" if expr.func == "round?" else expr.func
        return self._dispatch(name, list(expr.args), expr.kwargs, expr)

    def method(self, expr: Method) -> Results | None:
        """`x.to(f32)`: the receiver is the first argument."""
        name = expr.name
        if name not in METHODS and name not in ("split", "chunk"):
            self.low.error(
                "FD113",
                f"unknown method `{name}`",
                expr.span,
                help=did_you_mean(name, [*METHODS, "split", "chunk"]),
            )
            return None
        if name == "float":
            return [self._cast([expr.receiver, Name("f32", span=expr.span)], expr)]
        if name in ("reshape", "view"):
            return [self._view_args(expr.receiver, list(expr.args), expr)]
        if name in ("flatten", "unsqueeze", "squeeze"):
            return [self.shapes.regroup(name, [expr.receiver, *expr.args], expr)]
        target = METHODS.get(name, name)
        return self._dispatch(target, [expr.receiver, *expr.args], expr.kwargs, expr)

    def _dispatch(
        self, name: str, args: list[Expr], kwargs: Sequence[Keyword], expr: Call | Method
    ) -> Results | None:
        if name == "split":
            return self.shapes.split(self._bound(("x", "sizes", "dim"), args, kwargs, expr), expr)
        if name == "chunk":
            return self.shapes.chunk(self._bound(("x", "chunks", "dim"), args, kwargs, expr), expr)
        return [self._one(name, args, kwargs, expr)]

    def _one(
        self, name: str, args: list[Expr], kwargs: Sequence[Keyword], expr: Call | Method
    ) -> Value | None:
        if name in REDUCTIONS:
            return self._reduce(name, args, kwargs, expr)
        if name == "clamp":
            return self._clamp(args, kwargs, expr)
        if name == "maybe_round" and not self.low.means:
            self.low.error("FD221", "`round?` may stand only in `means`", expr.span)
            return None
        bound = self._bound(PRIMITIVES[name].params, args, kwargs, expr)
        if bound is None:
            return None
        values = [bound[p] for p in PRIMITIVES[name].params if p in bound]
        match PRIMITIVES[name].typing:
            case "elementwise":
                return self.apply(name, values, expr.span)
            case "cast":
                return self._cast(values, expr, name)
            case "create":
                return self._create(name, values, expr)
            case "cat":
                return self.shapes.cat(values, expr)
            case "matmul":
                return self.shapes.matmul(values, expr)
            case _ if name == "pad":
                return self.shapes.pad(values, expr)
            case _:
                return self._view_args(values[0], values[1:], expr)

    def _bound(
        self,
        params: Sequence[str],
        args: list[Expr],
        kwargs: Sequence[Keyword],
        expr: Call | Method,
    ) -> dict[str, Expr] | None:
        """Arguments by parameter; all but `dim`, which is the last by default, are required."""
        name = expr.func if isinstance(expr, Call) else expr.name
        if len(args) > len(params):
            self.low.error(
                "FD200", f"`{name}` takes {len(params)} argument(s), not {len(args)}", expr.span
            )
            return None
        bound = dict(zip(params, args, strict=False))
        for keyword in kwargs:
            if keyword.name not in params:
                self.low.error(
                    "FD205",
                    f"`{name}` has no parameter `{keyword.name}`",
                    keyword.span,
                    help=did_you_mean(keyword.name, params),
                )
                return None
            if keyword.name in bound:
                self.low.error("FD201", f"`{keyword.name}` is given twice", keyword.span)
                return None
            bound[keyword.name] = keyword.value
        missing = [f"`{p}`" for p in params if p not in bound and p != "dim"]
        if missing:
            self.low.error("FD202", f"`{name}` needs {', '.join(missing)}", expr.span)
            return None
        if "dim" in params:
            bound.setdefault("dim", Literal(-1, span=expr.span))
        return bound

    # --- elementwise ---------------------------------------------------------------------------

    def operator(self, expr: Binary) -> Value | None:
        name = OPERATORS.get(expr.op)
        if name is None:
            self.low.error("FD221", f"`{expr.op}` is no operator on tensors", expr.span)
            return None
        return self.apply(name, [expr.left, expr.right], expr.span)

    def apply(self, name: str, args: Sequence[Expr], span: Span | None) -> Value | None:
        """An elementwise primitive on tensors and scalars, with torch's broadcasting."""
        values = [self._elementwise_value(arg) for arg in args]
        known = [v for v in values if v is not None]
        if len(known) != len(values):
            return None
        tensors = [v for v in known if isinstance(v, TensorValue)]
        if not tensors:
            self.low.error("FD220", f"`{name}` needs a tensor", span)
            return None
        if PRIMITIVES[name].tensors == 1 and not isinstance(known[0], TensorValue):
            self.low.error("FD220", f"`{show(args[0])}` is no tensor", args[0].span)
            return None
        if any(t.type is None for t in tensors):
            return None
        return self._emit_elementwise(name, known, tensors, span)

    def _elementwise_value(self, arg: Expr) -> Value | None:
        value = self.low.value(arg)
        if isinstance(value, ListValue) or (
            isinstance(value, ScalarValue) and value.kind not in _ELEMENTS
        ):
            self.low.error("FD220", f"`{show(arg)}` is no tensor and no number", arg.span)
            return None
        return value

    def _emit_elementwise(
        self, name: str, values: list[Value], tensors: list[TensorValue], span: Span | None
    ) -> Value | None:
        kind = self.shapes.broadcast([t.type for t in tensors if t.type is not None], span)
        if kind is None:
            return None
        dtype = kind.dtype
        if name in _FLOATING or any(_is_float(v) for v in values):
            dtype = as_float(dtype, self.low.dtypes)
        operands = [_operand(v) for v in values]
        name, operands = _respelled(name, operands)
        return self.emit(name, operands, TensorType(dtype, kind.dims, kind.strides), span)

    def _clamp(
        self, args: list[Expr], kwargs: Sequence[Keyword], expr: Call | Method
    ) -> Value | None:
        bound = self._bound(("x", "min", "max"), args, kwargs, expr)
        if bound is None:
            return None
        floor = self.apply("clamp_min", [bound["x"], bound["min"]], expr.span)
        limit = self.low.value(bound["max"])
        if not isinstance(floor, TensorValue) or floor.type is None or limit is None:
            return None
        return self.emit("clamp_max", [floor.operand, _operand(limit)], floor.type, expr.span)

    def copy(self, value: TensorValue, span: Span | None) -> TensorValue:
        """A value of its own that is equal: a cast to the dtype it has."""
        if value.type is None:
            return value
        dtype = self.low.dtype_operand(value.type.dtype)
        return self.emit("cast", [value.operand, dtype], value.type, span)

    # --- casts, creation -----------------------------------------------------------------------

    def _cast(
        self, args: Sequence[Expr], expr: Call | Method, name: str = "cast"
    ) -> TensorValue | None:
        if len(args) != 2:
            self.low.error("FD200", "a cast takes one dtype", expr.span)
            return None
        value = self.low.tensor(args[0])
        dtype = self._dtype(args[1])
        if value is None or value.type is None or dtype is None:
            return None
        kind = TensorType(dtype[0], value.type.dims, value.type.strides)
        if name == "bitcast" and not self._same_width(value.type.dtype, dtype[0], expr.span):
            return None
        return self.emit(name, [value.operand, dtype[1]], kind, expr.span)

    def _same_width(self, old: str, new: str, span: Span | None) -> bool:
        sizes = {self.low.width(old), self.low.width(new)}
        if len(sizes) == 1 or None in sizes:
            return True
        self.low.error("FD219", f"`{old}` and `{new}` differ in size", span)
        return False

    def _dtype(self, expr: Expr) -> tuple[str, Operand] | None:
        value = self.low.value(expr)
        if value is None:
            return None
        if isinstance(value, ScalarValue) and value.kind is Kind.DTYPE:
            name = value.expr
            return (name.id if isinstance(name, Name) else "any"), value.operand
        if isinstance(value, AnyValue):
            return "any", Anything()
        self.low.error("FD220", f"`{show(expr)}` is no dtype", expr.span)
        return None

    def _create(self, name: str, args: Sequence[Expr], expr: Call | Method) -> Value | None:
        if name.endswith("_like"):
            value = self.low.tensor(args[0])
            if value is None or value.type is None:
                return None
            kind = TensorType(value.type.dtype, value.type.dims, value.type.strides)
            return self.emit(name, [value.operand], kind, expr.span)
        dims = self.shapes.sizes_of(args[0])
        dtype = self._dtype(args[-1])
        if dims is None or dtype is None:
            return None
        operands: list[Operand] = [shape_operand(dims)]
        if name == "full":
            fill = self.low.scalar(args[1])
            if fill is None:
                return None
            operands.append(fill.operand)
        operands.append(dtype[1])
        return self.emit(name, operands, TensorType(dtype[0], dims), expr.span)

    # --- reductions and views ------------------------------------------------------------------

    def _reduce(
        self, name: str, args: list[Expr], kwargs: Sequence[Keyword], expr: Call | Method
    ) -> Value | None:
        keep = [k.value for k in kwargs if k.name == "keepdim"]
        rest = [k for k in kwargs if k.name != "keepdim"]
        if len(args) == 3:
            keep.append(args.pop())
        if len(args) < 2 and not any(k.name == "dim" for k in rest):
            self.low.error("FD202", f"`{name}` needs `dim`", expr.span)
            return None
        bound = self._bound(("x", "dim"), args, rest, expr)
        if bound is None:
            return None
        value = self.low.tensor(bound["x"])
        if value is None or value.type is None:
            return None
        dim = self.shapes.axis(bound["dim"], value.type)
        if dim is None:
            return None
        keeps = self._flag(keep[0]) if keep else False
        return None if keeps is None else self._emit_reduce(name, value, dim, keeps, expr.span)

    def _flag(self, expr: Expr) -> bool | None:
        if isinstance(expr, Literal) and isinstance(expr.value, bool):
            return expr.value
        self.low.error("FD220", "`keepdim` must be `true` or `false`", expr.span)
        return None

    def _emit_reduce(
        self, name: str, value: TensorValue, dim: int, keeps: bool, span: Span | None
    ) -> TensorValue:
        assert value.type is not None
        dims = list(value.type.dims)
        del dims[dim]
        dtype = value.type.dtype
        if name in _FLOATING:
            dtype = as_float(dtype, self.low.dtypes)
        kind = TensorType(dtype, tuple(dims))
        reduced = self.emit(name, [value.operand, Const(dim)], kind, span)
        if not keeps:
            return reduced
        shape = list(value.type.dims)
        shape[dim] = Literal(1)
        return self.shapes.view(reduced, tuple(shape), span)

    def _view_args(self, receiver: Expr, args: list[Expr], expr: Call | Method) -> Value | None:
        if expr.kwargs:
            self.low.error("FD205", "a view takes no keyword arguments", expr.span)
            return None
        value = self.low.tensor(receiver)
        if value is None or value.type is None:
            return None
        shape = args[0] if len(args) == 1 and isinstance(args[0], ExprSequence) else None
        return self.shapes.reshape(value, shape.items if shape is not None else args, expr.span)

    def subscript(self, expr: Subscript) -> Value | None:
        value = self.low.tensor(expr.receiver)
        if value is None or value.type is None:
            return None
        return self.shapes.subscript(value, expr)

    # --- emitting ------------------------------------------------------------------------------

    def emit(
        self, name: str, operands: Sequence[Operand], kind: TensorType, span: Span | None
    ) -> TensorValue:
        pure = name not in ("empty", "empty_like")
        return self.low.body.emit(f"prim.{name}", tuple(operands), [kind], span, pure=pure)[0]


_ELEMENTS = frozenset({Kind.INT, Kind.FLOAT, Kind.BOOL})


def _is_float(value: Value) -> bool:
    return isinstance(value, ScalarValue) and value.kind is Kind.FLOAT


def _operand(value: Value) -> Operand:
    match value:
        case AnyValue():
            return Anything()
        case ListValue():
            return ListOf(tuple(_operand(item) for item in value.items))
        case _:
            return value.operand


def _respelled(name: str, operands: list[Operand]) -> tuple[str, list[Operand]]:
    """One spelling where the results are bit for bit the same."""
    if name == "mul" and operands[0] == operands[1]:
        return "square", operands[:1]
    if name == "pow" and isinstance(operands[1], Const) and operands[1].value in (2, 2.0):
        return "square", operands[:1]
    swaps = PRIMITIVES[name].commutative and isinstance(operands[0], Const | Computed)
    return name, operands[::-1] if swaps else operands
