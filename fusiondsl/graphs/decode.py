"""Graph values from their JSON trees."""

from __future__ import annotations

import base64
from typing import Any

import torch

from fusiondsl.diagnostics.source import Source, Span
from fusiondsl.graphs import targets
from fusiondsl.graphs.annotations import dtype_named
from fusiondsl.graphs.expressions import parse_expression
from fusiondsl.graphs.symbols import Scalar, Size, SymbolFacts, Symbols


class Damaged(Exception):
    """The tree is not one that `encode` makes."""


class Decoder:
    """Decodes the values of one graph; `nodes` are the nodes made so far, by name."""

    def __init__(self, symbols: dict[str, Any], nodes: dict[str, Any]) -> None:
        self.symbols = Symbols()
        self._nodes = nodes
        self._storages: dict[int, torch.Tensor] = {}
        for name, facts in symbols.items():
            self.symbols.symbol(name, SymbolFacts(**{k: int(v) for k, v in facts.items()}))

    def decode(self, tree: Any) -> Any:
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        if isinstance(tree, list):
            return [self.decode(item) for item in tree]
        if "tensor" in tree:
            return self._tensor(tree)
        ((kind, value),) = tree.items()
        return self._tagged(kind, value)

    def _tagged(self, kind: str, value: Any) -> Any:
        match kind:
            case "node":
                return self._nodes[value]
            case "tuple":
                return tuple(self.decode(item) for item in value)
            case "dict":
                return {self.decode(key): self.decode(item) for key, item in value}
            case "slice":
                return slice(*(self.decode(item) for item in value))
            case "ellipsis":
                return ...
            case "float":
                return float(value)
            case "device":
                return torch.device(value)
            case "sym" | "symbool" | "symfloat":
                return self._scalar(value)
        return self._named(kind, value)

    def _named(self, kind: str, value: str) -> Any:
        if kind == "dtype":
            found: Any = dtype_named(value)
        elif kind == "op":
            found = targets.resolve(value)
        else:
            expected = {"layout": torch.layout, "format": torch.memory_format}[kind]
            found = torch.__dict__.get(value)
            found = found if isinstance(found, expected) else None
        if found is None:
            raise Damaged(f"unknown {kind} {value!r}")
        return found

    def _scalar(self, text: str) -> Scalar:
        return self.symbols.scalar(_expression(text))

    def _size(self, value: int | str) -> Size:
        if isinstance(value, str):
            return self.symbols.size(_expression(value))
        return int(value)

    # --- tensors -------------------------------------------------------------------------------

    def _tensor(self, tree: dict[str, Any]) -> torch.Tensor:
        dtype = dtype_named(tree["tensor"])
        if dtype is None:
            raise Damaged(f"unknown dtype {tree['tensor']!r}")
        shape = [self._size(size) for size in tree["shape"]]
        stride = [self._size(step) for step in tree["stride"]]
        if "data" in tree:
            return _constant(tree, dtype, shape, stride)
        with self.symbols.mode, self.symbols.shape_env.suppress_guards():
            value = self._fake(tree, dtype, shape, stride)
        if tree.get("requires_grad"):
            value.requires_grad_()
        return value

    def _fake(
        self, tree: dict[str, Any], dtype: torch.dtype, shape: list[Size], stride: list[Size]
    ) -> torch.Tensor:
        base = self._storages.get(tree["storage"])
        offset = self._size(tree.get("offset", 0))
        if base is not None and base.dtype == dtype:
            with torch.no_grad():
                return base.as_strided(shape, stride, offset)
        device = torch.device(tree["device"])
        value = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        self._storages.setdefault(tree["storage"], value)
        return value


def _expression(text: str) -> Any:
    return parse_expression(Span(Source("<saved>", text), 0, len(text)))


def _constant(
    tree: dict[str, Any], dtype: torch.dtype, shape: list[Size], stride: list[Size]
) -> torch.Tensor:
    data = bytearray(base64.b64decode(tree["data"], validate=True))
    if not data:
        return torch.empty_strided(shape, stride, dtype=dtype)
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype)
    value = torch.empty_strided(shape, stride, dtype=dtype)
    value.copy_(flat.reshape(shape))
    return value
