"""The primitives as terms, rounded where the reference rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.proof import attrs
from fusiondsl.proof.attrs import Attr
from fusiondsl.proof.size import Size, product
from fusiondsl.proof.terms import Shape, Term, shape_of
from fusiondsl.proof.values import Context, Unprovable, Value

Argument: TypeAlias = "Value | Attr | list[Argument]"

_MAKES_FLOATS = frozenset(
    {
        *("div", "exp", "exp2", "log2", "sqrt", "rsqrt", "reciprocal", "sigmoid", "silu", "tanh"),
        "mean",
    }
)


class Primitives:
    """Builds the terms of primitive calls."""

    def __init__(self, context: Context) -> None:
        self.pool = context.pool
        self.formats = context.formats
        self._built: dict[str, Callable[..., Value]] = {
            "cast": self.cast,
            "bitcast": self._bitcast,
            "view": self._view,
            "slice": self._slice,
            "cat": self._cat,
            "pad": self._pad,
            "maybe_round": self._maybe_round,
            "zeros": lambda shape, dtype: self._full(shape, attrs.of_float(0.0), dtype),
            "zeros_like": self._zeros_like,
            "full": self._full,
            "empty": self._empty,
            "empty_like": self._empty_like,
        }

    def apply(self, name: str, args: Sequence[Argument]) -> Value:
        _check(name, args)
        build = self._built.get(name)
        if build is not None:
            return build(*args)
        return self._computed(name, args)

    # --- arithmetic ----------------------------------------------------------------------------

    def _computed(self, name: str, args: Sequence[Argument]) -> Value:
        primitive = PRIMITIVES[name]
        operands, further = args[: primitive.tensors], args[primitive.tensors :]
        tensors = [a for a in operands if isinstance(a, Value)]
        if not tensors:
            raise Unprovable(f"`{name}` of numbers alone")
        dtype = tensors[0].term.format
        for other in tensors[1:]:
            dtype = self.formats.promote(dtype, other.term.format)
        if name in _MAKES_FLOATS and self._is_whole(dtype):
            dtype = "f32"
        format = self.formats.computing(dtype)
        terms = tuple(self._operand(a, format) for a in operands)
        scalars = tuple(self._number(_attr(a), format) for a in further)
        if primitive.typing == "reduce":
            scalars = tuple(_attr(a) for a in further)
        shape = _shape(name, terms, scalars)
        exact = self.pool.make(name, terms, scalars, format, shape)
        if format == dtype:
            return Value(exact, None, dtype)
        return Value(self._cast(exact, dtype), exact, dtype)

    def _is_whole(self, dtype: str) -> bool:
        allowed = self.formats.allowed(dtype)
        return allowed is not None and not any(DTYPES[d][2] for d in allowed)

    def _operand(self, argument: Argument, format: str) -> Term:
        if isinstance(argument, Value):
            return self._cast(argument.term, format)
        return self.pool.scalar(self._number(_attr(argument), format))

    def _number(self, attr: Attr, format: str) -> Attr:
        """A constant as arithmetic in `format` sees it."""
        value = attrs.number(attr)
        if value is None or not self.formats.is_float(format):
            return attr
        return attrs.of_float(attrs.as_f32(value) if format == "f32" else value)

    # --- casts ---------------------------------------------------------------------------------

    def _cast(self, term: Term, dtype: str) -> Term:
        dtype = self.formats.of(dtype)
        if term.format == dtype:
            return term
        return self.pool.make("cast", (term,), (), dtype, term.shape)

    def cast(self, x: Value, dtype: Attr) -> Value:
        target = self.formats.of(dtype_name(dtype))
        source = x.term.format
        term = self._cast(x.term, target)
        if self.formats.lossless(source, target):
            if x.unrounded is None:
                return Value(term, None, target)
            wide = self.formats.lossless(x.unrounded.format, target)
            exact = self._cast(x.unrounded, target) if wide else x.unrounded
            return Value(term, exact, target)
        if self._rounds(source, target) and (
            x.unrounded is None or not self.formats.within(target, frozenset({source}))
        ):
            return Value(term, x.term, target)
        return Value(term, self.pool.unknown("unrounded", source, term.shape), target)

    def _rounds(self, source: str, target: str) -> bool:
        """Does the cast keep the value or round it, computing no other format in between?"""
        if source == "f32":
            allowed = self.formats.allowed(target)
            return allowed is not None and all(
                (DTYPES[d][2] and DTYPES[d][1] < 4) or d == "f32" for d in allowed
            )
        return source == "f64" and self.formats.is_float(target)

    def _bitcast(self, x: Value, dtype: Attr) -> Value:
        target = self.formats.of(dtype_name(dtype))
        widths = [self.formats.allowed(name) for name in (x.term.format, target)]
        sizes = [{DTYPES[d][1] for d in width} if width else set() for width in widths]
        if sizes[0] != sizes[1] or len(sizes[0]) != 1:
            raise Unprovable("a `bitcast` to another width")
        term = self.pool.make("bitcast", (x.term,), (), target, x.term.shape)
        return Value(term, None, target)

    # --- movement ------------------------------------------------------------------------------

    def _moved(self, x: Value, build: Callable[[Term], Term]) -> Value:
        exact = None if x.unrounded is None else build(x.unrounded)
        return Value(build(x.term), exact, x.dtype)

    def _view(self, x: Value, shape: Argument) -> Value:
        wanted = _filled(_sizes(shape), x.term.shape)
        return self._moved(x, lambda t: self.pool.make("view", (t,), (), t.format, wanted))

    def _slice(self, x: Value, dim: Attr, start: Attr, stop: Attr) -> Value:
        axis = _axis(dim, x.term.shape)
        extent = x.term.shape[axis]
        begin, end = (_bound(a, extent, d) for a, d in ((start, Size.const(0)), (stop, extent)))
        shape = list(x.term.shape)
        shape[axis] = end - begin
        marks = (("int", Size.const(axis)), ("int", begin), ("int", end))
        return self._moved(
            x, lambda t: self.pool.make("slice", (t,), marks, t.format, tuple(shape))
        )

    def _cat(self, xs: Argument, dim: Attr) -> Value:
        parts = [x for x in xs if isinstance(x, Value)] if isinstance(xs, list) else []
        if not parts or len({p.term.format for p in parts}) > 1:
            raise Unprovable("a `cat` of several dtypes")
        axis = _axis(dim, parts[0].term.shape)
        shape = list(parts[0].term.shape)
        for part in parts[1:]:
            shape[axis] = shape[axis] + part.term.shape[axis]
        marks = (("int", Size.const(axis)),)

        def build(terms: list[Term]) -> Term:
            return self.pool.make("cat", tuple(terms), marks, terms[0].format, tuple(shape))

        exact = [p.exact for p in parts]
        same = len({t.format for t in exact}) == 1
        unrounded = build(exact) if same else self.pool.unknown("unrounded", "f32", tuple(shape))
        return Value(build([p.term for p in parts]), unrounded, parts[0].dtype)

    def _pad(self, x: Value, before: Attr, after: Attr, value: Attr) -> Value:
        extra = [attrs.size(a) for a in (before, after)]
        if None in extra:
            raise Unprovable("a `pad` by an unknown number")
        shape = list(x.term.shape)
        for amount in extra:
            shape[-1] = shape[-1] + (amount or Size.const(0))
        marks = (before, after, value)
        return self._moved(x, lambda t: self.pool.make("pad", (t,), marks, t.format, tuple(shape)))

    def _maybe_round(self, x: Value) -> Value:
        return self._moved(x, lambda t: self.pool.make("maybe_round", (t,), (), t.format, t.shape))

    # --- creation ------------------------------------------------------------------------------

    def _full(self, shape: Argument, value: Attr, dtype: Attr) -> Value:
        return self._filled_with(value, self.formats.of(dtype_name(dtype)), _sizes(shape))

    def _filled_with(self, value: Attr, dtype: str, shape: Shape) -> Value:
        number = attrs.number(value)
        if number is not None and self.formats.is_float(dtype):
            value = attrs.of_float(number)
        return Value(self.pool.make("full", (), (value,), dtype, shape), None, dtype)

    def _zeros_like(self, x: Value) -> Value:
        return self._filled_with(attrs.of_float(0.0), x.term.format, x.term.shape)

    def _empty(self, shape: Argument, dtype: Attr) -> Value:
        name = self.formats.of(dtype_name(dtype))
        return Value(self.pool.unknown("empty", name, _sizes(shape)), None, name)

    def _empty_like(self, x: Value) -> Value:
        term = self.pool.unknown("empty", x.term.format, x.term.shape)
        return Value(term, None, x.term.format)


def dtype_name(attr: Attr) -> str:
    if attr[0] not in ("dtype", "name"):
        raise Unprovable("a dtype that depends on arguments")
    return str(attr[1])


def _check(name: str, args: Sequence[Argument]) -> None:
    """A checked program has tensors where tensors go; one that was changed since may not."""
    primitive = PRIMITIVES[name]
    if primitive.typing in ("elementwise", "cat"):
        return
    tensors, further = args[: primitive.tensors], args[primitive.tensors :]
    if not all(isinstance(arg, Value) for arg in tensors):
        raise Unprovable(f"`{name}` of what is no tensor")
    items = (item for arg in further for item in (arg if isinstance(arg, list) else (arg,)))
    if any(isinstance(item, Value) for item in items):
        raise Unprovable(f"`{name}` by a tensor")


def _attr(argument: Argument) -> Attr:
    if isinstance(argument, tuple):
        return argument
    raise Unprovable("a tensor where an attribute stands")


def _sizes(shape: Argument) -> Shape:
    items = shape if isinstance(shape, list) else []
    sizes = [attrs.size(item) if isinstance(item, tuple) else None for item in items]
    known = tuple(size for size in sizes if size is not None)
    if len(known) != len(sizes):
        raise Unprovable("a shape that depends on values")
    return known


def _filled(wanted: Shape, given: Shape) -> Shape:
    """With a size of -1 computed."""
    known = [size for size in wanted if size.value != -1]
    if len(known) == len(wanted):
        return wanted
    rest = product(given).over(product(known))
    if rest is None or len(known) + 1 < len(wanted):
        raise Unprovable("a view whose sizes are not known")
    return tuple(rest if size.value == -1 else size for size in wanted)


def _axis(dim: Attr, shape: Shape) -> int:
    """Counted from the right."""
    size = attrs.size(dim)
    value = None if size is None else size.value
    if value is None or not -len(shape) <= value < len(shape):
        raise Unprovable("an axis that is not known")
    return value if value < 0 else value - len(shape)


def _bound(attr: Attr, extent: Size, default: Size) -> Size:
    if attr == attrs.NONE:
        return default
    size = attrs.size(attr)
    if size is None:
        raise Unprovable("a slice whose bounds are not known")
    return extent + size if size.value is not None and size.value < 0 else size


def _shape(name: str, terms: tuple[Term, ...], scalars: tuple[Attr, ...]) -> Shape:
    if name == "matmul":
        return _matrix_shape(terms[0].shape, terms[1].shape)
    shape = shape_of(*(t.shape for t in terms))
    if shape is None:
        raise Unprovable(f"operands of `{name}` whose sizes are not known to agree")
    if PRIMITIVES[name].typing == "reduce":
        axis = _axis(scalars[0], shape)
        return tuple(size for i, size in enumerate(shape) if i - len(shape) != axis)
    return shape


def _matrix_shape(left: Shape, right: Shape) -> Shape:
    if len(right) != 2 or len(left) < 1:
        raise Unprovable("a `matmul` by something that is no matrix")
    return (*left[:-1], right[1])
