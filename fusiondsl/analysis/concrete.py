"""Calls on tensors of known sizes: what each gives, as far as a checker can know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fusiondsl.analysis.world import NotConcrete, World
from fusiondsl.decl.dtypes import ANY, DTYPES
from fusiondsl.dims.dim import Dim
from fusiondsl.dims.expr import DType, Expr, Spread, Wildcard
from fusiondsl.dims.solve import Solution, solve
from fusiondsl.dims.truth import Truth
from fusiondsl.dims.values import Value
from fusiondsl.ir.program import OpDecl, TensorType


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by what is known of it."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def contiguous(self) -> bool:
        return self.strides == dense(self.shape)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(prod(max(size, 1) for size in shape[i + 1 :]) for i in range(len(shape)))


def plain(dtype: str, shape: Sequence[int]) -> Tensor:
    return Tensor(dtype, tuple(shape), dense(shape))


# --- declared ops --------------------------------------------------------------------------------


def call_results(decl: OpDecl, args: Sequence[Any], world: World) -> list[Tensor]:
    """The results of a call, mutated buffers included. `args` are `Tensor`s and scalar values."""
    scope: dict[str, Value] = {}
    equations: list[tuple[Expr, Dim]] = []
    for param, arg in zip(decl.call_params, args, strict=True):
        if isinstance(param.type, TensorType) and isinstance(arg, Tensor):
            _bind_dtype(param.type, arg, scope, world)
            equations += _equations(param.type, arg, scope)
        elif not isinstance(param.type, TensorType):
            scope[param.name] = Dim.const(arg) if type(arg) is int else arg
    found = solve(equations, {**world.constants, **scope})
    if not isinstance(found, Solution):
        raise NotConcrete
    scope.update(found.bound)
    if any(world.holds(c.expr, scope) is Truth.FALSE for c in decl.where):
        raise NotConcrete
    return [tensor(r.type, scope, world) for r in decl.call_results if _is_tensor(r.type)]


def _is_tensor(kind: object) -> bool:
    if not isinstance(kind, TensorType):
        raise NotConcrete
    return True


def _bind_dtype(kind: TensorType, arg: Tensor, scope: dict[str, Value], world: World) -> None:
    allowed = world.dtypes(kind.dtype, scope)
    if allowed is None and kind.dtype != ANY:
        scope[kind.dtype] = DType(arg.dtype)
    elif allowed is not None and arg.dtype not in allowed:
        raise NotConcrete


def _equations(kind: TensorType, arg: Tensor, scope: dict[str, Value]) -> list[tuple[Expr, Dim]]:
    dims, shape = kind.dims, arg.shape
    if dims and isinstance(dims[0], Spread):
        cut = len(shape) - len(dims) + 1
        if cut < 0:
            raise NotConcrete
        leading = scope.setdefault(leading_name(dims[0].name), shape[:cut])
        if leading != shape[:cut]:
            raise NotConcrete
        scope[dims[0].name] = Dim.const(prod(shape[:cut]))
        dims, shape = dims[1:], shape[cut:]
    if len(dims) != len(shape):
        raise NotConcrete
    return [(dim, Dim.const(size)) for dim, size in zip(dims, shape, strict=True)]


def leading_name(spread: str) -> str:
    """Where a scope keeps the sizes behind a `name..`."""
    return f"{spread}.."


def tensor(kind: object, scope: Mapping[str, Value], world: World) -> Tensor:
    """A tensor of a type whose names have values."""
    assert isinstance(kind, TensorType)
    shape: list[int] = []
    for dim in kind.dims:
        if isinstance(dim, Spread):
            leading = scope.get(leading_name(dim.name))
            if not isinstance(leading, tuple):
                raise NotConcrete
            shape += [size for size in leading if isinstance(size, int)]
        elif isinstance(dim, Wildcard):
            raise NotConcrete
        else:
            shape.append(world.number(dim, scope))
    allowed = world.dtypes(kind.dtype, scope)
    if not allowed:
        raise NotConcrete
    if kind.strides is None:
        return plain(allowed[0], shape)
    if len(kind.strides) != len(shape) or any(isinstance(s, Spread) for s in kind.strides):
        raise NotConcrete
    return Tensor(allowed[0], tuple(shape), tuple(world.number(s, scope) for s in kind.strides))


# --- primitives ----------------------------------------------------------------------------------

_FLOATS = frozenset(
    ["exp", "exp2", "log2", "sqrt", "rsqrt", "reciprocal", "sigmoid", "silu", "tanh", "div", "mean"]
)


def primitive_result(name: str, args: Sequence[Any]) -> Tensor:
    """The result of `prim.<name>`; sizes and axes are numbers, dtypes `DType`s."""
    special = _SPECIAL.get(name)
    return special(*args) if special is not None else _elementwise(name, args)


def _elementwise(name: str, args: Sequence[Any]) -> Tensor:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if not tensors:
        raise NotConcrete
    dtype = tensors[0].dtype
    for other in tensors[1:]:
        dtype = _promoted(dtype, other.dtype)
    if not DTYPES[dtype][2] and (name in _FLOATS or any(type(a) is float for a in args)):
        dtype = "f32"
    return plain(dtype, _broadcast([t.shape for t in tensors]))


def _promoted(a: str, b: str) -> str:
    if a == b:
        return a
    (_, width, floating), (_, other_width, other_floating) = DTYPES[a], DTYPES[b]
    if floating != other_floating:
        return a if floating else b
    if width == other_width or min(width, other_width) == 1:
        raise NotConcrete
    return a if width > other_width else b


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    found = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            raise NotConcrete
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def _cast(x: Tensor, dtype: DType) -> Tensor:
    return Tensor(dtype.name, x.shape, x.strides if x.contiguous else dense(x.shape))


def _bitcast(x: Tensor, dtype: DType) -> Tensor:
    if DTYPES[x.dtype][1] != DTYPES[dtype.name][1]:
        raise NotConcrete
    return Tensor(dtype.name, x.shape, x.strides)


def _reduce(x: Tensor, axis: int) -> Tensor:
    shape = list(x.shape)
    if not -len(shape) <= axis < 0:
        raise NotConcrete
    del shape[axis]
    return plain(x.dtype, shape)


def _mean(x: Tensor, axis: int) -> Tensor:
    reduced = _reduce(x, axis)
    if not DTYPES[x.dtype][2]:
        raise NotConcrete
    return reduced


def _view(x: Tensor, shape: Sequence[int]) -> Tensor:
    if prod(shape) != prod(x.shape) or not x.contiguous:
        raise NotConcrete
    return plain(x.dtype, shape)


def _slice(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    shape = list(x.shape)
    if not -len(shape) <= axis < 0 or not 0 <= start <= stop <= shape[axis]:
        raise NotConcrete
    shape[axis] = stop - start
    return Tensor(x.dtype, tuple(shape), x.strides)


def _cat(parts: Sequence[Tensor], axis: int) -> Tensor:
    first = parts[0]
    rests = {(t.dtype, t.shape[:axis], t.shape[axis:][1:]) for t in parts}
    if len(rests) > 1:
        raise NotConcrete
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return plain(first.dtype, shape)


def _pad(x: Tensor, before: int, after: int, value: object) -> Tensor:
    return plain(x.dtype, (*x.shape[:-1], x.shape[-1] + before + after))


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    ranks = (len(x.shape), len(y.shape))
    same = x.dtype == y.dtype and x.shape[:-2] == y.shape[:-2]
    if ranks not in ((2, 2), (3, 3)) or not same or x.shape[-1] != y.shape[-2]:
        raise NotConcrete
    return plain(x.dtype, (*x.shape[:-1], y.shape[-1]))


_SPECIAL: Mapping[str, Callable[..., Tensor]] = {
    "cast": _cast,
    "bitcast": _bitcast,
    "mean": _mean,
    "sum": _reduce,
    "amax": _reduce,
    "amin": _reduce,
    "view": _view,
    "slice": _slice,
    "cat": _cat,
    "pad": _pad,
    "matmul": _matmul,
    "zeros": lambda shape, dtype: plain(dtype.name, shape),
    "full": lambda shape, value, dtype: plain(dtype.name, shape),
    "empty": lambda shape, dtype: plain(dtype.name, shape),
    "zeros_like": lambda x: x,
    "empty_like": lambda x: x,
}
