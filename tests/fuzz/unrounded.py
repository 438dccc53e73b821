"""Graphs run as if nothing were ever rounded: values in f64 that say they have the dtype they had.

Two spellings of one computation that differ by where they round are equal then, so that another
`eps`, another scale or another operand shows however small its effect is. What has few values
(codes, packed codes, powers of two as scales) is made from the unrounded values and stays what it
is.
"""

from __future__ import annotations

from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from fusiondsl.ops import dispatch

WIDE = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_TORCH = ("aten", "prim", "prims")
_KERNEL = torch._C.DispatchKey.CompositeExplicitAutograd


class Wide(Tensor):
    """A value in f64 under the dtype it has in the graph."""

    exact: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, dtype: torch.dtype) -> Self:
        made: Self = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=dtype, device=inner.device,
        )  # fmt: skip
        made.exact = inner
        return made

    def __init__(self, inner: Tensor, dtype: torch.dtype) -> None:
        pass

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Wide({self.exact}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of `Unrounded`")


def widened(value: Any) -> Any:
    """A tensor of its own; whatever is no number of a wide dtype is left as it is."""
    if not isinstance(value, Tensor) or isinstance(value, Wide) or value.dtype not in WIDE:
        return value
    inner = torch.empty_strided(value.shape, value.stride(), dtype=torch.float64)
    return Wide(inner.copy_(value), value.dtype)


class Unrounded(TorchDispatchMode):
    """Inside, no operation rounds what it computes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace not in _TORCH:
            # The kernel, in Python, on these values: they have no storage to look at.
            with self, mock.patch.object(dispatch, "_shares_storage", return_value=False):
                made = func._op_dk(_KERNEL, *args, **kwargs)
            return made if func._schema.is_mutable else tree_map(_own, made)
        if func is torch.ops.aten.view.dtype:  # what lies in memory
            return widened(func(_rounded(args[0]), *args[1:]))
        given, form = tree_flatten((args, kwargs))
        held = {id(v.exact): v for v in given if isinstance(v, Wide)}
        exact_args, exact_kwargs = tree_unflatten([_exact(value) for value in given], form)
        plain = [_rounded(value) for value in given]
        if func._schema.is_mutable:
            plain = [v.clone() if isinstance(v, Tensor) else v for v in plain]
        plain_args, plain_kwargs = tree_unflatten(plain, form)
        forms, _ = tree_flatten(func(*plain_args, **plain_kwargs))
        values, made_form = tree_flatten(func(*exact_args, **exact_kwargs))
        made_of = [_made(v, f, held) for v, f in zip(values, forms, strict=True)]
        return tree_unflatten(made_of, made_form)


def _own(value: Any) -> Any:
    """What an operation returns shares no memory with its arguments."""
    if not isinstance(value, Wide):
        return value
    inner = value.exact
    fresh = torch.empty_strided(inner.shape, inner.stride(), dtype=torch.float64)
    return Wide(fresh.copy_(inner), value.dtype)


def _exact(value: Any) -> Any:
    if isinstance(value, Wide):
        return value.exact
    return torch.float64 if isinstance(value, torch.dtype) and value in WIDE else value


def _rounded(value: Any) -> Any:
    return value.exact.to(value.dtype) if isinstance(value, Wide) else value


def _made(value: Any, form: Any, held: dict[int, Wide]) -> Any:
    if not isinstance(value, Tensor):
        return value
    if form.dtype not in WIDE:
        return value
    same = held.get(id(value))
    if same is None:
        return Wide(value.double(), form.dtype)
    return same if same.dtype == form.dtype else Wide(value.clone(), form.dtype)
