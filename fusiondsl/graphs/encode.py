"""Graph values as JSON trees, for the saved form."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.numbers import int_oo

from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs.annotations import dtype_name, dtype_named
from fusiondsl.graphs.expressions import BadText, parse_expression
from fusiondsl.graphs.opaque import OpaqueOp
from fusiondsl.graphs.targets import name_of, resolve

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_MAX_CONSTANT_BYTES = 1 << 20
_OPS = (OpOverload, OpOverloadPacket, HigherOrderOperator, OpaqueOp)


class CannotSave(Exception):
    """The value has no saved form; the message says what it is."""


class Encoder:
    """Encodes the values of one graph and collects the symbols they use."""

    def __init__(self) -> None:
        self._symbols: dict[str, Json] = {}
        self._storages: dict[int, int] = {}

    def symbols(self) -> dict[str, Json]:
        return dict(sorted(self._symbols.items()))

    def encode(self, value: object) -> Json:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        for kind, encode in self._kinds():
            if isinstance(value, kind):
                return encode(value)
        raise CannotSave(f"a value of type {type(value).__name__}")

    def _kinds(self) -> tuple[tuple[Any, Callable[[Any], Json]], ...]:
        return (
            (fx.Node, lambda v: {"node": v.name}),
            (tuple, lambda v: {"tuple": [self.encode(item) for item in v]}),
            (dict, lambda v: {"dict": [[self.encode(k), self.encode(x)] for k, x in v.items()]}),
            (slice, lambda v: {"slice": [self.encode(x) for x in (v.start, v.stop, v.step)]}),
            (type(...), lambda v: {"ellipsis": True}),
            (torch.dtype, _dtype),
            (torch.device, lambda v: {"device": str(v)}),
            (torch.layout, lambda v: {"layout": str(v).removeprefix("torch.")}),
            (torch.memory_format, lambda v: {"format": str(v).removeprefix("torch.")}),
            (_OPS, lambda v: {"op": target_name(v)}),
            (torch.SymInt, lambda v: {"sym": self._sym(v)}),
            (torch.SymBool, lambda v: {"symbool": self._sym(v)}),
            (torch.SymFloat, lambda v: {"symfloat": self._sym(v)}),
            (torch.Tensor, self._tensor),
        )

    # --- symbols -------------------------------------------------------------------------------

    def _sym(self, value: torch.SymInt | torch.SymBool | torch.SymFloat) -> str:
        node = value.node
        text = str(node.expr)
        try:
            parse_expression(Span(Source("<expr>", text), 0, len(text)))
        except BadText:
            raise CannotSave(f"the size expression {text}") from None
        for symbol in node.expr.free_symbols:
            self._symbols.setdefault(str(symbol), _symbol_facts(node.shape_env, symbol))
        return text

    def _size(self, value: int | torch.SymInt) -> Json:
        return self._sym(value) if isinstance(value, torch.SymInt) else int(value)

    # --- tensors -------------------------------------------------------------------------------

    def _tensor(self, value: torch.Tensor) -> Json:
        if value.layout is not torch.strided or type(value) not in _PLAIN:
            raise CannotSave(f"a tensor of type {type(value).__name__}, {value.layout}")
        offset = value.storage_offset()
        tree: dict[str, Json] = {
            "tensor": dtype_name(value.dtype),
            "shape": [self._size(size) for size in value.shape],
            "stride": [self._size(step) for step in value.stride()],
            "device": str(value.device),
            "storage": self._storage(value),
        }
        if not (isinstance(offset, int) and offset == 0):
            tree["offset"] = self._size(offset)
        if value.requires_grad:
            tree["requires_grad"] = True
        if not isinstance(value, FakeTensor):
            tree["data"] = _data(value)
        return tree

    def _storage(self, value: torch.Tensor) -> int:
        """A number a storage; values with the same number share memory."""
        # `_cdata` is the storage itself: the Python object around it is made anew at each call.
        key = value.untyped_storage()._cdata
        return self._storages.setdefault(key, len(self._storages))


_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def target_name(target: Any) -> str:
    name = name_of(target)
    found = resolve(name)
    # torch may hold several equal overload objects of one op.
    same = found is target or (isinstance(found, _OPS) and name_of(found) == name)
    if not same or type(found) is not type(target):
        raise CannotSave(f"the call target {name}")
    return name


def _dtype(dtype: torch.dtype) -> Json:
    name = dtype_name(dtype)
    if dtype_named(name) != dtype:
        raise CannotSave(f"the dtype {dtype}")
    return {"dtype": name}


def _data(value: torch.Tensor) -> str:
    size = value.numel() * value.element_size()
    if size > _MAX_CONSTANT_BYTES:
        raise CannotSave(f"a constant tensor of {size} bytes")
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return base64.b64encode(bytes(data.tolist())).decode("ascii")


def _symbol_facts(shape_env: ShapeEnv, symbol: sympy.Symbol) -> Json:
    known = shape_env.var_to_range.get(symbol)
    facts: dict[str, Json] = {}
    if known is not None and known.lower != -int_oo and known.is_int:
        facts["lower"] = int(known.lower)
    if known is not None and known.upper != int_oo and known.is_int:
        facts["upper"] = int(known.upper)
    # Named `var_to_val` before torch 2.10.
    values = getattr(shape_env, "backed_var_to_val", None) or getattr(shape_env, "var_to_val", {})
    if symbol in values:
        facts["hint"] = int(values[symbol])
    return facts
