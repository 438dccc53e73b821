"""Inputs made from the signature of an op or a rule: small sizes, awkward values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, TypeAlias

import torch

from fusiondsl.decl.dtypes import ANY, FP8
from fusiondsl.dims.expr import Binary, Call, Expr, Name, Spread, Unary, Wildcard
from fusiondsl.ir.program import Const, ListOf, OpDecl, Param, Rule, ScalarType, TensorType
from fusiondsl.ops.context import Context
from fusiondsl.ops.dtypes import is_concrete, to_torch
from fusiondsl.ops.scope import NotWhole, Scope, Undecided, constant, sizes, truth

LEADING = (7, 8, 4, 2, 1)
"""Sizes tried for a first dimension, best first."""
TRAILING = (256, 128, 64, 512, 1024, 32, 16, 8, 4, 2, 1)
"""Sizes tried for any other dimension and for an int without default."""
DTYPES = ("bf16", "f16", "f32", "f8e4m3fn", "u8")
_TRIES = 200_000


class NoSample(Exception):
    """No combination of the sizes tried satisfies the conditions."""


@dataclass(frozen=True)
class Sample:
    """Arguments by name, and the dims, dtypes and scalars they were made for."""

    arguments: dict[str, Any]
    values: dict[str, Any]

    def positional(self, item: OpDecl | Rule) -> tuple[Any, ...]:
        return tuple(self.arguments[p.name] for p in item.params)


def sample_inputs(
    item: OpDecl | Rule,
    context: Context,
    *,
    fixed: Mapping[str, Any] | None = None,
    seed: int = 0,
    special: bool = True,
    extreme: bool = False,
    device: str = "cpu",
) -> Sample:
    """Arguments for one call of `item`.

    `fixed` gives dims (a spread as a tuple), dtypes by fusiondsl name, and scalars; the rest is
    chosen so that no condition is false. `special` fills some rows with zeros, negative zeros,
    tiny and large numbers, exact ties and outliers; `extreme` adds infinities and the largest
    finite number. Optional tensors are given.
    """
    values = choose(item, context, fixed or {})
    generator = torch.Generator().manual_seed(seed)
    scope = Scope(values, context)
    arguments: dict[str, Any] = {}
    for param in item.params:
        if isinstance(param.type, ScalarType):
            arguments[param.name] = values[param.name]
        else:
            tensor = _tensor(param, param.type, scope, generator)
            if special and param.kind != "out" and _takes_special_rows(tensor):
                special_rows(tensor, extreme)
            arguments[param.name] = tensor.to(device)
    return Sample(arguments, values)


# --- choosing dims, dtypes and scalars -----------------------------------------------------------


def choose(item: OpDecl | Rule, context: Context, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Values for every dim, dtype variable and scalar, with no condition false."""
    options = {name: [_given(value)] for name, value in fixed.items()}
    for param in item.params:
        for name, candidates in _candidates(param, context):
            options.setdefault(name, candidates)
    names = list(options)
    # The last name varies fastest, so dtypes and leading dims stay at their first choice longest.
    for combination in islice(product(*options.values()), _TRIES):
        values = dict(zip(names, combination, strict=True))
        if _fits(item, Scope(values, context)):
            return values
    raise NoSample(f"no sizes tried fit the conditions of `{item.name}`")


def _given(value: Any) -> Any:
    return to_torch(value) if isinstance(value, str) and is_concrete(value) else value


def _candidates(param: Param, context: Context) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(param.type, ScalarType):
        yield param.name, _scalar(param, param.type)
        return
    if _is_variable(param.type.dtype, context):
        yield param.type.dtype, [to_torch(name) for name in DTYPES]
    for position, dim in enumerate(param.type.dims):
        if isinstance(dim, Spread):
            yield dim.name, [(size,) for size in LEADING]
            continue
        leading = position == 0 and len(param.type.dims) > 1
        for name in _names(dim):
            yield name, list(LEADING if leading and isinstance(dim, Name) else TRAILING)


def _is_variable(dtype: str, context: Context) -> bool:
    return not (dtype in (ANY, FP8) or is_concrete(dtype) or dtype in context.dtype_sets)


def _scalar(param: Param, kind: ScalarType) -> list[Any]:
    if isinstance(param.default, ListOf):
        return [[constant(i.value) for i in param.default.items if isinstance(i, Const)]]
    if param.default is not None:
        return [_default(param.default)]
    if kind.is_list:
        return [[]]
    fallback: dict[str, list[Any]] = {
        "int": list(TRAILING),
        "float": [1e-6],
        "bool": [False],
        "dtype": [torch.bfloat16, torch.float8_e4m3fn, torch.float32],
    }
    return fallback.get(kind.kind, ["tp:0"])


def _default(default: Any) -> Any:
    return constant(default.value) if isinstance(default, Const) else None


def _names(expr: Expr) -> list[str]:
    if isinstance(expr, Name):
        return [expr.id]
    if isinstance(expr, Binary):
        return _names(expr.left) + _names(expr.right)
    if isinstance(expr, Unary):
        return _names(expr.operand)
    return [n for a in expr.args for n in _names(a)] if isinstance(expr, Call) else []


def _fits(item: OpDecl | Rule, scope: Scope) -> bool:
    types = [p.type for p in item.params]
    if isinstance(item, OpDecl):
        types.extend(r.type for r in item.results)
    try:
        for kind in types:
            if isinstance(kind, TensorType):
                sizes(kind.dims, scope)
        return all(truth(condition.expr, scope) is not False for condition in item.where)
    except NotWhole:
        return False
    except Undecided:
        return True


# --- tensors -------------------------------------------------------------------------------------


def _tensor(
    param: Param, kind: TensorType, scope: Scope, generator: torch.Generator
) -> torch.Tensor:
    shape = tuple(int(size) for size in sizes(kind.dims, scope))
    dtype = _dtype(kind, scope)
    tensor = _values(param.name, shape, dtype, generator)
    if kind.strides is None or any(isinstance(s, Wildcard) for s in kind.strides):
        return tensor
    strides = tuple(int(stride) for stride in sizes(kind.strides, scope))
    return torch.empty_strided(shape, strides, dtype=dtype).copy_(tensor)


def _dtype(kind: TensorType, scope: Scope) -> torch.dtype:
    if kind.dtype in (ANY, FP8):
        return to_torch("f32" if kind.dtype == ANY else "f8e4m3fn")
    found = scope.lookup(kind.dtype)
    chosen = found[0] if isinstance(found, tuple) else found
    assert isinstance(chosen, torch.dtype)
    return chosen


def _values(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Normal values; what is called a scale is positive and near one, also as e8m0 bytes."""
    is_scale = "scale" in name
    if not dtype.is_floating_point:
        low, high = (122, 131) if is_scale and dtype == torch.uint8 else (0, 100)
        if dtype == torch.uint8 and not is_scale:
            high = 256
        if dtype == torch.int64:  # a row of another argument
            high = LEADING[0]
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    normal = torch.randn(shape, generator=generator)
    return (normal.abs() * 0.1 + 0.01 if is_scale else normal).to(dtype)


def special_rows(tensor: torch.Tensor, extreme: bool = False) -> None:
    """Overwrites rows from the second on, in place, as many as there are."""
    rows = tensor.view(-1, tensor.shape[-1])
    for row, fill in zip(rows[1:], _fills(extreme), strict=False):
        row.copy_(fill(row))


def _takes_special_rows(tensor: torch.Tensor) -> bool:
    """Matrices of ordinary floats; vectors are weights, one-byte floats have been quantised."""
    wide = tensor.dim() >= 2 and tensor.shape[-1] >= 2 and tensor.is_contiguous()
    return wide and tensor.is_floating_point() and tensor.dtype.itemsize > 1


def _zeros(row: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(row)


def _negative_zeros(row: torch.Tensor) -> torch.Tensor:
    return -torch.zeros_like(row)


def _tiny(row: torch.Tensor) -> torch.Tensor:
    """Around the smallest normal number, some below it."""
    return row * torch.finfo(row.dtype).tiny


def _large(row: torch.Tensor) -> torch.Tensor:
    return row * 2.0**12


def _ties(row: torch.Tensor) -> torch.Tensor:
    """Multiples of a quarter: halfway between neighbours in many small formats."""
    return (torch.arange(row.numel()) % 32 - 16).to(row.dtype) / 4


def _outlier(row: torch.Tensor) -> torch.Tensor:
    changed = row * 2.0**-6
    changed[row.numel() // 2] = 96.0
    return changed


def _infinite(row: torch.Tensor) -> torch.Tensor:
    changed = row.clone()
    changed[0], changed[-1] = float("inf"), float("-inf")
    return changed


def _largest(row: torch.Tensor) -> torch.Tensor:
    changed = row.clone()
    changed[0] = torch.finfo(row.dtype).max
    return changed


_Fill: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

_FILLS: tuple[_Fill, ...] = (_zeros, _negative_zeros, _tiny, _large, _ties, _outlier)
_EXTREME: tuple[_Fill, ...] = (_infinite, _largest)

SPECIAL_ROWS = len(_FILLS)
"""How many rows `special_rows` fills, where there are as many."""


def _fills(extreme: bool) -> tuple[_Fill, ...]:
    return (*_FILLS, *_EXTREME) if extreme else _FILLS
