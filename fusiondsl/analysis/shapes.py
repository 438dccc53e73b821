"""Views, slices, joins and products of tensors: the shapes they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusiondsl.analysis.conditions import ExprChecker
from fusiondsl.analysis.signature import describe
from fusiondsl.analysis.sizes import product
from fusiondsl.analysis.unify import UNKNOWN_SIZE
from fusiondsl.analysis.values import ListValue, ScalarValue, TensorValue, Value
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import (
    Binary,
    Call,
    Ellipsis_,
    Expr,
    Literal,
    Method,
    Name,
    Slice,
    Spread,
    Subscript,
    Unary,
    Wildcard,
)
from fusiondsl.dims.expr import Sequence as ExprSequence
from fusiondsl.dims.render import render
from fusiondsl.ir.program import Computed, Const, ListOf, Operand, Ref, TensorType

if TYPE_CHECKING:
    from fusiondsl.analysis.lower import Lowering

Results = list[Value | None]


class Shapes:
    """Lowers everything that changes the shape of a tensor."""

    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering

    # --- sizes and axes ------------------------------------------------------------------------

    def sizes_of(self, expr: Expr) -> tuple[Expr, ...] | None:
        """`[T, 2 * N]` as sizes."""
        if not isinstance(expr, ExprSequence):
            self.low.error("FD220", f"`{render(expr)}` is no list of sizes", expr.span)
            return None
        sizes = [self._size(item) for item in expr.items]
        known = tuple(s for s in sizes if s is not None)
        return known if len(known) == len(sizes) else None

    def _size(self, expr: Expr) -> Expr | None:
        return ExprChecker(self.low.scope).size(expr)

    def integer(self, expr: Expr) -> int | None:
        """A written whole number."""
        match expr:
            case Literal(value=int() as value) if not isinstance(value, bool):
                return value
            case Unary(op="-", operand=Literal(value=int() as value)):
                return None if isinstance(value, bool) else -value
        self.low.error("FD220", f"`{render(expr)}` must be a whole number", expr.span)
        return None

    def axis(self, expr: Expr, kind: TensorType) -> int | None:
        """An axis counted from the end."""
        if isinstance(expr, ExprSequence) and len(expr.items) == 1:
            expr = expr.items[0]
        axis = self.integer(expr)
        if axis is None:
            return None
        rank = len(kind.dims)
        if axis >= 0 and kind.rank_free:
            self.low.error(
                "FD211",
                f"axis {axis} of {describe(kind)} is not known: the rank is free",
                expr.span,
                help="count from the end: -1 is the last axis",
            )
            return None
        axis = axis if axis < 0 else axis - rank
        least = -rank + 1 if kind.rank_free else -rank
        if not least <= axis < 0:
            self.low.error("FD211", f"{describe(kind)} has no axis {render(expr)}", expr.span)
            return None
        return axis

    # --- views ---------------------------------------------------------------------------------

    def reshape(
        self, value: TensorValue, entries: Sequence[Expr], span: Span | None
    ) -> TensorValue | None:
        assert value.type is not None
        dims: list[Expr | None] = []
        for entry in entries:
            inferred = isinstance(entry, Unary) and entry.op == "-"
            size = None if inferred else self._size(entry)
            if size is None and (not inferred or self.integer(entry) != -1 or None in dims):
                if inferred:
                    self.low.error("FD211", "a view has at most one `-1`", entry.span)
                return None
            dims.append(size)
        shape = self._infer(value.type, dims) if None in dims else dims
        if shape is None:
            return None
        known = tuple(d for d in shape if d is not None)
        return self.view(value, known, span) if self._fits(value, known, span) else None

    def _infer(self, kind: TensorType, dims: list[Expr | None]) -> list[Expr | None] | None:
        """What `-1` stands for."""
        total = _elements(kind.dims)
        rest = _elements([d for d in dims if d is not None])
        hole = dims.index(None)
        if hole == 0 and kind.dims and isinstance(kind.dims[0], Spread):
            same = self.low.scope.sizes.equal(_elements(kind.dims[1:]), rest)
            if same is True:
                return [Name(kind.dims[0].name), *dims[1:]]
        size = self.low.scope.sizes.quotient(total, rest)
        if size is None:
            size = Binary("/", self.low.scope.sizes.simplify(total), rest)
        return [size if d is None else d for d in dims]

    def _fits(self, value: TensorValue, shape: tuple[Expr, ...], span: Span | None) -> bool:
        assert value.type is not None
        sizes = self.low.scope.sizes
        before, after = _elements(value.type.dims), _elements(shape)
        same = sizes.equal(before, after)
        if same is True or _has_unknown(value.type.dims):
            return True
        if same is None and self.low.assume:
            sizes.learn_equal(before, after)
            return True
        why = "the numbers of elements differ"
        if same is None:
            why = "nothing says that the numbers of elements are equal"
        self.low.error(
            "FD211",
            f"{describe(value.type)} cannot be viewed as ({', '.join(map(render, shape))})",
            span,
            notes=[why],
        )
        return False

    def view(self, value: TensorValue, shape: tuple[Expr, ...], span: Span | None) -> TensorValue:
        assert value.type is not None
        kind = TensorType(value.type.dtype, shape)
        return self._emit("view", [value.operand, shape_operand(shape)], kind, span)

    def regroup(self, name: str, args: list[Expr], expr: Method) -> Value | None:
        """`flatten`, `unsqueeze` and `squeeze` as views."""
        value = self.low.tensor(args[0])
        if value is None or value.type is None:
            return None
        numbers = [self.integer(a) for a in args[1:]]
        known = [n for n in numbers if n is not None]
        if len(known) != len(numbers):
            return None
        dims = self._regrouped(name, value.type, known)
        if dims is None:
            self.low.error(
                "FD211", f"`{render(expr)}` does not fit {describe(value.type)}", expr.span
            )
            return None
        return self.view(value, dims, expr.span)

    def _regrouped(
        self, name: str, kind: TensorType, numbers: list[int]
    ) -> tuple[Expr, ...] | None:
        dims, rank = kind.dims, len(kind.dims)
        if name == "flatten":
            start, end = (numbers + [0, -1][len(numbers) :])[:2]
            return self._flattened(dims, start, end)
        if len(numbers) != 1:
            return None
        axis = numbers[0] if numbers[0] >= 0 else numbers[0] + rank + (name == "unsqueeze")
        if kind.rank_free and (numbers[0] >= 0 or axis == 0):
            return None
        if name == "unsqueeze":
            return (*dims[:axis], Literal(1), *dims[axis:]) if 0 <= axis <= rank else None
        fits = 0 <= axis < rank and self.low.scope.sizes.equal(dims[axis], Literal(1)) is True
        return (*dims[:axis], *dims[axis + 1 :]) if fits else None

    def _flattened(self, dims: tuple[Expr, ...], start: int, end: int) -> tuple[Expr, ...] | None:
        rank = len(dims)
        rank_free = bool(dims) and isinstance(dims[0], Spread)
        if rank_free and (start > 0 or end >= 0):
            return None
        first, last = start % rank if rank else 0, end % rank if rank else 0
        if not -rank <= start < rank or not -rank <= end < rank or first > last:
            return None
        joined = self.low.scope.sizes.simplify(_elements(dims[first : last + 1]))
        return (*dims[:first], joined, *dims[last + 1 :])

    # --- slices --------------------------------------------------------------------------------

    def subscript(self, value: TensorValue, expr: Subscript) -> Value | None:
        """`x[.., :N]`: one slice a written range."""
        assert value.type is not None
        axes = self._axes(value.type, expr)
        if axes is None:
            return None
        for axis, item in axes:
            if not isinstance(item, Slice):
                self.low.error(
                    "FD221",
                    f"`{render(item)}` is no range",
                    item.span,
                    help="slice one element and `.squeeze(..)` it",
                )
                return None
            if item.start is None and item.stop is None:
                continue
            sliced = self._range(value, axis, item)
            if sliced is None:
                return None
            value = sliced
        return value

    def _axes(self, kind: TensorType, expr: Subscript) -> list[tuple[int, Expr]] | None:
        items = list(expr.items)
        dots = [i for i, item in enumerate(items) if isinstance(item, Ellipsis_)]
        if len(dots) > 1 or (not dots and kind.rank_free):
            help = "write `..` for the leading dimensions" if not dots else None
            self.low.error("FD211", f"`{render(expr)}` is not clear", expr.span, help=help)
            return None
        lead = items[: dots[0]] if dots else items
        tail = items[dots[0] + 1 :] if dots else []
        rank = len(kind.dims) - (1 if kind.rank_free else 0)
        if len(lead) + len(tail) > rank or (lead and kind.rank_free):
            self.low.error(
                "FD211", f"`{render(expr)}` has too many entries for {describe(kind)}", expr.span
            )
            return None
        total = len(kind.dims)
        axes: list[tuple[int, Expr]] = [(i - total, item) for i, item in enumerate(lead)]
        axes.extend((i - len(tail), item) for i, item in enumerate(tail))
        return axes

    def _range(self, value: TensorValue, axis: int, item: Slice) -> TensorValue | None:
        assert value.type is not None
        full = value.type.dims[axis]
        start = Literal(0) if item.start is None else self._bound(item.start, full)
        stop = full if item.stop is None else self._bound(item.stop, full)
        if start is None or stop is None:
            return None
        return self.slice(value, axis, start, stop, item.span)

    def _bound(self, expr: Expr, full: Expr) -> Expr | None:
        """A bound of a range; a negative one counts from the end."""
        checked, _ = ExprChecker(self.low.scope).check(expr)
        constant = self.low.scope.sizes.constant(checked)
        if constant is not None and constant < 0:
            return self.low.scope.sizes.simplify(Binary("+", full, Literal(constant)))
        return self._size(expr)

    def slice(
        self, value: TensorValue, axis: int, start: Expr, stop: Expr, span: Span | None
    ) -> TensorValue | None:
        assert value.type is not None
        sizes = self.low.scope.sizes
        width = sizes.simplify(Binary("-", stop, start))
        room = sizes.constant(Binary("-", value.type.dims[axis], stop))
        if (sizes.constant(width) or 0) < 0 or (room is not None and room < 0):
            self.low.error(
                "FD211",
                f"`{render(start)}:{render(stop)}` is outside of {describe(value.type)}",
                span,
            )
            return None
        dims = list(value.type.dims)
        whole = sizes.equal(width, dims[axis]) is True
        dims[axis] = width
        kind = TensorType(value.type.dtype, tuple(dims), self._strides(value.type, whole))
        operands: list[Operand] = [
            value.operand,
            Const(axis),
            size_operand(start),
            size_operand(stop),
        ]
        return self._emit("slice", operands, kind, span)

    def _strides(self, kind: TensorType, whole: bool) -> tuple[Expr, ...] | None:
        """A slice keeps the strides of what it is cut from; with a free rank nothing says them."""
        if whole or kind.rank_free or kind.strides is not None:
            return kind.strides
        return contiguous_strides(kind.dims)

    def split(self, bound: dict[str, Expr] | None, expr: Call | Method) -> Results | None:
        if bound is None:
            return None
        value = self.low.tensor(bound["x"])
        sizes = self.sizes_of(bound["sizes"])
        if value is None or value.type is None or sizes is None:
            return None
        axis = self.axis(bound["dim"], value.type)
        if axis is None:
            return [None] * len(sizes)
        total = sizes[0] if sizes else Literal(0)
        for size in sizes[1:]:
            total = Binary("+", total, size)
        full = value.type.dims[axis]
        same = self.low.scope.sizes.equal(total, full)
        if same is None and self.low.assume:
            self.low.scope.sizes.learn_equal(full, total)
        elif same is not True:
            self.low.error(
                "FD211",
                f"the parts are together `{render(total)}`, not `{render(full)}`",
                expr.span,
            )
            return [None] * len(sizes)
        return self._cut(value, axis, sizes, expr.span)

    def chunk(self, bound: dict[str, Expr] | None, expr: Call | Method) -> Results | None:
        if bound is None:
            return None
        value = self.low.tensor(bound["x"])
        count = self.integer(bound["chunks"])
        if value is None or value.type is None or count is None:
            return None
        axis = self.axis(bound["dim"], value.type)
        if axis is None or not 0 < count <= 64:
            if axis is not None:
                self.low.error("FD211", "a number of chunks from 1 to 64 is needed", expr.span)
            return None
        full = value.type.dims[axis]
        part = self.low.scope.sizes.quotient(full, Literal(count))
        size = part if part is not None else Binary("/", full, Literal(count))
        return self._cut(value, axis, (size,) * count, expr.span)

    def _cut(
        self, value: TensorValue, axis: int, sizes: tuple[Expr, ...], span: Span | None
    ) -> Results:
        parts: Results = []
        simplify = self.low.scope.sizes.simplify
        start: Expr = Literal(0)
        for size in sizes:
            stop = simplify(Binary("+", start, size))
            parts.append(self.slice(value, axis, start, stop, span))
            start = stop
        return parts

    # --- several tensors -----------------------------------------------------------------------

    def broadcast(self, kinds: list[TensorType], span: Span | None) -> TensorType | None:
        """The common type of operands."""
        total = kinds[0]
        for kind in kinds[1:]:
            dims = self._broadcast(total.dims, kind.dims)
            if dims is None:
                self.low.error(
                    "FD210", f"{describe(total)} and {describe(kind)} do not broadcast", span
                )
                return None
            strides = total.strides if total.strides == kind.strides else None
            total = TensorType(self.low.dtypes.promote(total.dtype, kind.dtype), dims, strides)
        return total

    def _broadcast(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        for one, other in ((a, b), (b, a)):
            if self._is_one(_elements(one)) and len(one) <= len(other):
                return other
        if len(a) < len(b):
            a, b = b, a
        lead = len(a) - len(b)
        if b and isinstance(b[0], Spread) and (lead or not isinstance(a[0], Spread)):
            return None
        dims = list(a)
        for position, size in enumerate(b, start=lead):
            joined = self._joined(dims[position], size)
            if joined is None:
                return None
            dims[position] = joined
        return tuple(dims)

    def _joined(self, a: Expr, b: Expr) -> Expr | None:
        if isinstance(a, Wildcard) or isinstance(b, Wildcard):
            return b if isinstance(a, Wildcard) else a
        if a == b or self._is_one(b):
            return a
        if self._is_one(a):
            return b
        if isinstance(a, Spread) != isinstance(b, Spread):
            return None
        same = self.low.scope.sizes.equal(a, b)
        if same is None and self.low.assume and not isinstance(a, Spread):
            self.low.scope.sizes.learn_equal(a, b)
            same = True
        return a if same is True else None

    def _is_one(self, size: Expr) -> bool:
        return self.low.scope.sizes.constant(size) == 1

    def cat(self, args: Sequence[Expr], expr: Call | Method) -> Value | None:
        listed = self.low.value(args[0])
        if not isinstance(listed, ListValue):
            if listed is not None:
                self.low.error("FD220", "`cat` needs a list of tensors", expr.span)
            return None
        parts = [v for v in listed.items if isinstance(v, TensorValue)]
        kinds = [p.type for p in parts if p.type is not None]
        if not kinds or len(kinds) != len(listed.items):
            if len(parts) != len(listed.items) or not parts:
                self.low.error("FD220", "`cat` needs a list of tensors", expr.span)
            return None
        axis = self.axis(args[1], kinds[0])
        if axis is None:
            return None
        kind = self._joined_types(kinds, axis, expr.span)
        if kind is None:
            return None
        operands: list[Operand] = [ListOf(tuple(p.operand for p in parts)), Const(axis)]
        return self._emit("cat", operands, kind, expr.span)

    def _joined_types(
        self, kinds: list[TensorType], axis: int, span: Span | None
    ) -> TensorType | None:
        dims, dtype = list(kinds[0].dims), kinds[0].dtype
        for kind in kinds[1:]:
            fits = len(kind.dims) == len(dims)
            for position in range(-len(dims), 0) if fits else ():
                if position == axis:
                    continue
                fits = fits and self._joined(dims[position], kind.dims[position]) is not None
            if not fits:
                self.low.error(
                    "FD210", f"{describe(kinds[0])} and {describe(kind)} cannot be joined", span
                )
                return None
            dims[axis] = self.low.scope.sizes.simplify(Binary("+", dims[axis], kind.dims[axis]))
            dtype = self.low.dtypes.promote(dtype, kind.dtype)
        return TensorType(dtype, tuple(dims))

    def matmul(self, args: Sequence[Expr], expr: Call | Method) -> Value | None:
        left, right = self.low.tensor(args[0]), self.low.tensor(args[1])
        if left is None or right is None or left.type is None or right.type is None:
            return None
        a, b = left.type, right.type
        fits = len(a.dims) >= 1 and len(b.dims) == 2 and not b.rank_free
        if not fits or self._joined(a.dims[-1], b.dims[0]) is None:
            self.low.error("FD210", f"cannot multiply {describe(a)} by {describe(b)}", expr.span)
            return None
        kind = TensorType(self.low.dtypes.promote(a.dtype, b.dtype), (*a.dims[:-1], b.dims[1]))
        return self._emit("matmul", [left.operand, right.operand], kind, expr.span)

    def pad(self, args: Sequence[Expr], expr: Call | Method) -> Value | None:
        """Adds columns before and after the last dimension."""
        value = self.low.tensor(args[0])
        before, after = self._size(args[1]), self._size(args[2])
        fill = self.low.value(args[3])
        if value is None or value.type is None or before is None or after is None:
            return None
        if not isinstance(fill, ScalarValue) or not value.type.dims:
            if fill is not None:
                self.low.error("FD220", "`pad` needs a tensor and a number", expr.span)
            return None
        wide = Binary("+", Binary("+", before, value.type.dims[-1]), after)
        dims = (*value.type.dims[:-1], self.low.scope.sizes.simplify(wide))
        operands: list[Operand] = [
            value.operand,
            self._amount(before),
            self._amount(after),
            fill.operand,
        ]
        return self._emit("pad", operands, TensorType(value.type.dtype, dims), expr.span)

    def _amount(self, size: Expr) -> Operand:
        """A scalar parameter by itself binds what stands in the graph."""
        if isinstance(size, Name) and size.id in self.low.scope.scalars:
            return Ref(size.id)
        return size_operand(size)

    def _emit(
        self, name: str, operands: list[Operand], kind: TensorType, span: Span | None
    ) -> TensorValue:
        return self.low.body.emit(f"prim.{name}", tuple(operands), [kind], span)[0]


def contiguous_strides(dims: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides of a contiguous tensor of known rank."""
    return tuple(product(list(dims[i + 1 :])) for i in range(len(dims)))


def _elements(dims: Sequence[Expr]) -> Expr:
    return product([Name(d.name) if isinstance(d, Spread) else d for d in dims])


def _has_unknown(dims: Sequence[Expr]) -> bool:
    return any(d is UNKNOWN_SIZE or isinstance(d, Wildcard) for d in dims)


def size_operand(size: Expr) -> Operand:
    """A size as an argument."""
    if isinstance(size, Literal) and isinstance(size.value, int):
        return Const(size.value)
    return Computed(size)


def shape_operand(dims: Sequence[Expr]) -> ListOf:
    """A shape as an argument; `tokens..` stays one entry."""
    return ListOf(tuple(size_operand(d) for d in dims))
