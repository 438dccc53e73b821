"""Aten and prims operations as primitive calls: one table entry an overload.

The translation is value preserving bit for bit: two spellings share a primitive only where they
compute the same thing. Axes become negative numbers, a `keepdim` disappears (sizes are compared
where a rule writes a view), scalars keep their Python type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx

aten = torch.ops.aten
prims = torch.ops.prims


class Primitive(NamedTuple):
    """A primitive call read from the graph; `op` is `prim.<name>`."""

    op: str
    args: tuple[Any, ...]


Operation: TypeAlias = "Spelling | fx.Node"
Reader: TypeAlias = Callable[[Operation], Primitive | None]
ItemReader: TypeAlias = Callable[[Operation, int], Primitive | None]


class Spelling(NamedTuple):
    """An operation with its leading arguments by position, as the readers want them."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


_Signature: TypeAlias = tuple[tuple[str, ...], frozenset[str], int]
"""Positional names, all names, and how many leading ones have no default."""


def _signature(target: Any) -> _Signature:
    arguments = target._schema.arguments
    positional = tuple(a.name for a in arguments if not a.kwarg_only)
    required = sum(1 for a in arguments if not a.kwarg_only and not a.has_default_value())
    return positional, frozenset(a.name for a in arguments), required


def spelling(node: fx.Node) -> Spelling | fx.Node | None:
    """The operation of a node; None where it does not fit the schema of its target."""
    positional, names, required = _SIGNATURES[id(node.target)]
    if not node.kwargs:
        return node if len(node.args) >= required else None
    args, kwargs = list(node.args), dict(node.kwargs)
    if not kwargs.keys() <= names or not kwargs.keys().isdisjoint(positional[: len(args)]):
        return None
    for name in positional[len(args) :]:
        if name not in kwargs:
            break
        args.append(kwargs.pop(name))
    return Spelling(node.target, tuple(args), kwargs) if len(args) >= required else None


def first_argument(node: fx.Node) -> Any:
    """What a transparent operation or `getitem` passes on, by position or by keyword."""
    if node.args or not isinstance(node.target, torch._ops.OpOverload):
        return node.args[0] if node.args else None
    return node.kwargs.get(node.target._schema.arguments[0].name)


def _arg(node: Operation, index: int, name: str, default: Any = None) -> Any:
    if len(node.args) > index:
        return node.args[index]
    return node.kwargs.get(name, default)


def _dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _rank(node: Any) -> int | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dim() if isinstance(value, torch.Tensor) else None


def _unary(name: str) -> Reader:
    def read(node: Operation) -> Primitive | None:
        return Primitive(name, (node.args[0],)) if not node.kwargs else None

    return read


def _binary(name: str) -> Reader:
    def read(node: Operation) -> Primitive | None:
        if len(node.args) != 2 or node.kwargs.get("alpha", 1) != 1:
            return None
        return Primitive(name, (node.args[0], node.args[1]))

    return read


def _mul(node: Operation) -> Primitive | None:
    if len(node.args) != 2:
        return None
    left, right = node.args
    if left is right:
        return Primitive("prim.square", (left,))
    return Primitive("prim.mul", (left, right))


def _div(node: Operation) -> Primitive | None:
    if len(node.args) != 2 or node.kwargs.get("rounding_mode") is not None:
        return None
    return Primitive("prim.div", tuple(node.args))


def _pow(node: Operation) -> Primitive | None:
    base, exponent = node.args
    if exponent == 2:
        return Primitive("prim.square", (base,))
    # The kernels of `pow` call another one here; that of rsqrt rounds f16 in another way.
    if exponent == 0.5:
        return Primitive("prim.sqrt", (base,))
    if exponent == -0.5 and _dtype(base) in (torch.float32, torch.float64):
        return Primitive("prim.rsqrt", (base,))
    return Primitive("prim.pow", (base, exponent))


def _convert(node: Operation) -> Primitive | None:
    return Primitive("prim.cast", (node.args[0], _arg(node, 1, "dtype")))


_COPY_KEYS = ("layout", "device", "pin_memory", "memory_format")


def _to_copy(node: Operation) -> Primitive | None:
    dtype = node.kwargs.get("dtype")
    if dtype is None or any(node.kwargs.get(key) not in (None, False) for key in _COPY_KEYS):
        return None
    return Primitive("prim.cast", (node.args[0], dtype))


def _bitcast(node: Operation) -> Primitive | None:
    return Primitive("prim.bitcast", (node.args[0], node.args[1]))


def _one_axis(node: Operation, dims: Any) -> int | None:
    """The single reduced axis as a negative number."""
    if isinstance(dims, (list, tuple)):
        if len(dims) != 1:
            return None
        dims = dims[0]
    if type(dims) is not int:
        return None
    if dims < 0:
        return dims
    rank = _rank(node.args[0])
    return None if rank is None else dims - rank


def _reduce(name: str) -> Reader:
    def read(node: Operation) -> Primitive | None:
        axis = _one_axis(node, _arg(node, 1, "dim"))
        if axis is None or node.kwargs.get("dtype") is not None:
            return None
        return Primitive(name, (node.args[0], axis))

    return read


def _clamp(name: str, bound: str) -> Reader:
    def read(node: Operation) -> Primitive | None:
        return Primitive(name, (node.args[0], _arg(node, 1, bound)))

    return read


def _clamp_both(node: Operation) -> Primitive | None:
    low, high = _arg(node, 1, "min"), _arg(node, 2, "max")
    if high is None:
        return Primitive("prim.clamp_min", (node.args[0], low))
    if low is None:
        return Primitive("prim.clamp_max", (node.args[0], high))
    return Primitive(CLAMP, (node.args[0], low, high))


CLAMP = "clamp"
"""Both primitives at once: the view has a value in between."""


def _slice(node: Operation) -> Primitive | None:
    """`x[..., start:stop]`; an open end or one past the size is the size itself."""
    if _arg(node, 4, "step", 1) != 1:
        return None
    dim, start = _arg(node, 1, "dim", 0), _arg(node, 2, "start") or 0
    stop = _arg(node, 3, "end")
    source = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else None
    if not isinstance(source, torch.Tensor) or type(dim) is not int:
        return None
    axis = dim if dim < 0 else dim - source.dim()
    size = source.shape[axis]
    if type(size) is int:
        start = start + size if type(start) is int and start < 0 else start
        if stop is None or (type(stop) is int and stop > size):
            stop = size
        elif type(stop) is int and stop < 0:
            stop += size
    if type(start) is not int or type(stop) is not int:
        return None
    return Primitive("prim.slice", (node.args[0], axis, start, stop))


def _cat(node: Operation) -> Primitive | None:
    parts = node.args[0]
    if not isinstance(parts, (list, tuple)) or not parts:
        return None
    dim, rank = _arg(node, 1, "dim", 0), _rank(parts[0])
    if rank is None or type(dim) is not int:
        return None
    return Primitive("prim.cat", (tuple(parts), dim if dim < 0 else dim - rank))


def _pad(node: Operation) -> Primitive | None:
    pads = node.args[1]
    if not isinstance(pads, (list, tuple)) or len(pads) != 2:
        return None
    return Primitive("prim.pad", (node.args[0], pads[0], pads[1], _arg(node, 2, "value", 0)))


def _split(node: Operation, index: int) -> Primitive | None:
    """Item `index` of `split_with_sizes` or `split.Tensor`, as a slice."""
    source, sizes = node.args[0], node.args[1]
    dim, rank = _arg(node, 2, "dim", 0), _rank(source)
    if rank is None or type(dim) is not int:
        return None
    axis = dim if dim < 0 else dim - rank
    if node.target is aten.split.Tensor:
        if type(sizes) is not int or not isinstance(source, fx.Node):
            return None
        total = source.meta["val"].shape[axis]
        if type(total) is not int:
            return None
        return Primitive(
            "prim.slice", (source, axis, index * sizes, min(total, (index + 1) * sizes))
        )
    lengths: list[Any] = list(sizes) if isinstance(sizes, (list, tuple)) else []
    if index >= len(lengths) or any(type(length) is not int for length in lengths):
        return None
    start = sum(lengths[:index])
    return Primitive("prim.slice", (source, axis, start, start + lengths[index]))


def _max_values(node: Operation, index: int) -> Primitive | None:
    """The values of `max.dim`; its indices have no primitive."""
    if index != 0:
        return None
    axis = _one_axis(node, _arg(node, 1, "dim"))
    return None if axis is None else Primitive("prim.amax", (node.args[0], axis))


# --- tables -------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """One overload: the primitives it may be, and how to tell."""

    target: Any
    read: Reader
    primitives: tuple[str, ...]


def _entry(target: Any, read: Reader, *primitives: str) -> _Entry:
    return _Entry(target, read, tuple(f"prim.{name}" for name in primitives))


def _entries(reader: Callable[[str], Reader], name: str, *targets: Any) -> list[_Entry]:
    """Overloads that are always this primitive."""
    return [_entry(target, reader(f"prim.{name}"), name) for target in targets]


_SAME_NAME = (
    "neg",
    "abs",
    "exp",
    "exp2",
    "log2",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "square",
    "sigmoid",
    "silu",
    "relu",
    "tanh",
    "ceil",
    "floor",
)
"""Primitives of one operand that are one aten overload of the same name."""

# The first overload of a primitive is how it is written.
_TABLE: tuple[_Entry, ...] = (
    *(e for name in _SAME_NAME for e in _entries(_unary, name, getattr(aten, name).default)),
    *_entries(_unary, "round_even", aten.round.default),
    *_entries(_binary, "add", aten.add.Tensor, aten.add.Scalar),
    *_entries(_binary, "sub", aten.sub.Tensor, aten.sub.Scalar),
    _entry(aten.mul.Tensor, _mul, "mul", "square"),
    *_entries(_binary, "mul", aten.mul.Scalar),
    _entry(aten.div.Tensor, _div, "div"),
    _entry(aten.div.Scalar, _div, "div"),
    *_entries(_binary, "maximum", aten.maximum.default),
    *_entries(_binary, "minimum", aten.minimum.default),
    _entry(aten.pow.Tensor_Scalar, _pow, "pow", "square", "sqrt", "rsqrt"),
    _entry(aten.clamp_min.default, _clamp("prim.clamp_min", "min"), "clamp_min"),
    _entry(aten.clamp_max.default, _clamp("prim.clamp_max", "max"), "clamp_max"),
    _entry(aten.clamp.default, _clamp_both, "clamp_min", "clamp_max"),
    _entry(prims.convert_element_type.default, _convert, "cast"),
    _entry(aten._to_copy.default, _to_copy, "cast"),
    _entry(aten.view.dtype, _bitcast, "bitcast"),
    *_entries(_reduce, "mean", aten.mean.dim),
    *_entries(_reduce, "sum", aten.sum.dim_IntList),
    *_entries(_reduce, "amax", aten.amax.default),
    *_entries(_reduce, "amin", aten.amin.default),
    _entry(aten.slice.Tensor, _slice, "slice"),
    _entry(aten.cat.default, _cat, "cat"),
    _entry(aten.constant_pad_nd.default, _pad, "pad"),
    *_entries(_binary, "matmul", aten.mm.default, aten.bmm.default),
)
_ITEMS: tuple[tuple[Any, ItemReader, str], ...] = (
    (aten.split_with_sizes.default, _split, "prim.slice"),
    (aten.split.Tensor, _split, "prim.slice"),
    (aten.max.dim, _max_values, "prim.amax"),
)
_RESHAPES: tuple[Any, ...] = (
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.flatten.using_ints,
    aten.unflatten.int,
)


def read(node: fx.Node) -> Primitive | None:
    """The primitive a node is, None for any other operation."""
    reader = READER_IDS.get(id(node.target))
    written = None if reader is None else spelling(node)
    return None if reader is None or written is None else reader(written)


def read_item(node: fx.Node, index: int) -> Primitive | None:
    """The primitive that item `index` of a multi-output operation is."""
    written = spelling(node)
    return None if written is None else ITEM_READERS[node.target](written, index)


READERS: dict[Any, Reader] = {entry.target: entry.read for entry in _TABLE}
"""Single-output operations: a reader an overload."""

ITEM_READERS: dict[Any, ItemReader] = {target: read for target, read, _ in _ITEMS}
"""Multi-output operations: a reader for one item."""

# By identity: hashing an overload runs Python code, and every node is asked.
READER_IDS: Mapping[int, Reader] = {id(target): read for target, read in READERS.items()}
ITEM_READER_IDS: frozenset[int] = frozenset(map(id, ITEM_READERS))
_SIGNATURES: Mapping[int, _Signature] = {
    id(target): _signature(target) for target in (*READERS, *ITEM_READERS)
}


def _by_primitive() -> dict[str, tuple[Any, ...]]:
    found: dict[str, list[Any]] = {"prim.view": list(_RESHAPES)}
    for entry in _TABLE:
        for primitive in entry.primitives:
            found.setdefault(primitive, []).append(entry.target)
    for target, _, primitive in _ITEMS:
        found[primitive].append(target)
    return {primitive: tuple(targets) for primitive, targets in found.items()}


TARGETS: dict[str, tuple[Any, ...]] = _by_primitive()
"""By primitive: the overloads it is read from; it is written as the first."""

VIEWS: frozenset[Any] = frozenset(_RESHAPES)
"""Reshapes: the elements stay in order."""

NO_OPS: frozenset[Any] = VIEWS | {
    aten.alias.default,
    aten.detach.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
    aten.slice.Tensor,
    aten.expand.default,
    prims.convert_element_type.default,
    aten._to_copy.default,
}
"""Transparent where shape and dtype stay as they are."""


COPIES: frozenset[Any] = frozenset(
    {aten.clone.default, aten.contiguous.default, aten._to_copy.default}
)
"""Fresh memory: transparent only while neither side is written later."""

ALLOCATIONS: frozenset[Any] = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.zeros.default,
        aten.full.default,
        aten.zeros_like.default,
        aten.full_like.default,
    }
)
"""Fresh buffers: what a write-only argument may be given."""

VIEW_IDS: frozenset[int] = frozenset(map(id, VIEWS))
NO_OP_IDS: frozenset[int] = frozenset(map(id, NO_OPS))
COPY_IDS: frozenset[int] = frozenset(map(id, COPIES))
ALLOCATION_IDS: frozenset[int] = frozenset(map(id, ALLOCATIONS))
