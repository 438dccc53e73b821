"""FX type annotations (`bf16[s77, 256][256, 1]cuda:0`, `Sym(s77)`) turned into fake values."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.diagnostics.source import Span
from fusiondsl.graphs.expressions import BadText, parse_expression, split_expressions
from fusiondsl.graphs.symbols import Scalar, Size, Symbols

_EXTRA_DTYPES = {
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "b1x8": "bits1x8",
    "b2x4": "bits2x4",
    "b4x2": "bits4x2",
    "b8x1": "bits8",
    "b16x1": "bits16",
}
_BRACKETS = r"\[[^\[\]]*\]"
_TENSOR = re.compile(
    rf"\s*(?P<dtype>\w+)(?P<shape>{_BRACKETS})\s*(?P<stride>{_BRACKETS})?\s*(?P<device>[a-z]+(?::\d+)?)?\s*"
)
_SYM = re.compile(r"\s*Sym\((?P<value>.*)\)\s*", re.DOTALL)
_TYPE = re.compile(r"\s*(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*\s*")
# Types of devices that belong to other builds of torch.
_FOREIGN_DEVICES = frozenset({"gcu", "mlu", "musa", "npu", "ppu", "sdaa"})
_SUBCLASS = re.compile(r"\s*(?P<cls>[A-Za-z_]\w*)\((?P<core>.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Reading:
    """The value of an annotation, and what had to be assumed to make it."""

    value: torch.Tensor | Scalar | None
    """None where the annotation is the name of a type alone."""
    assumed: tuple[str, ...] = ()


class Annotations:
    """Makes the fake values of one graph; `device` stands in where an annotation names none."""

    def __init__(self, symbols: Symbols, device: torch.device) -> None:
        self.symbols = symbols
        self.device = device

    def read(self, span: Span) -> Reading:
        sym = _SYM.fullmatch(span.text)
        if sym is not None:
            return Reading(self.symbols.scalar(parse_expression(_part(span, sym, "value"))))
        tensor = _TENSOR.match(span.text)
        if tensor is not None and tensor.end() == len(span.text):
            return self._tensor(span, tensor)
        subclass = _SUBCLASS.fullmatch(span.text)
        core = None if subclass is None else _TENSOR.match(subclass["core"])
        if subclass is None and _TYPE.fullmatch(span.text):
            return Reading(None, ("types without sizes: sizes and dtypes unknown",))
        if subclass is None or core is None:
            raise BadText("FD608", f"`{span.text}` is not an FX type annotation", span)
        reading = self._tensor(_part(span, subclass, "core"), core)
        note = f"tensor subclass {subclass['cls']} read as a plain tensor"
        return Reading(reading.value, (*reading.assumed, note))

    def _tensor(self, span: Span, match: re.Match[str]) -> Reading:
        dtype = _dtype(match["dtype"], _part(span, match, "dtype"))
        shape = self._sizes(_inside(span, match, "shape"))
        assumed: list[str] = []
        if match["stride"] is None:
            assumed.append("strides are not printed: contiguous assumed")
            strides = None
        else:
            strides = self._sizes(_inside(span, match, "stride"))
        device = self.device
        if match["device"] is None:
            assumed.append(f"devices are not printed: {device} assumed")
        else:
            device = _device(match["device"], _part(span, match, "device"))
            if device.type == "meta" and not match["device"].startswith("meta"):
                assumed.append(f"device {match['device']} is unknown to this torch: meta instead")
        return Reading(self.tensor(dtype, shape, strides, device, span), tuple(assumed))

    def _sizes(self, span: Span) -> tuple[Size, ...]:
        return tuple(self.symbols.size(expr) for expr in split_expressions(span))

    def tensor(
        self,
        dtype: torch.dtype,
        shape: tuple[Size, ...],
        strides: tuple[Size, ...] | None,
        device: torch.device,
        span: Span | None,
    ) -> torch.Tensor:
        strides = contiguous(shape) if strides is None else strides
        if span is not None and len(strides) != len(shape):
            message = f"{len(shape)} sizes but {len(strides)} strides"
            raise BadText("FD613", message, span)
        try:
            # Making a tensor may ask whether sizes are 0 or strides dense; no answer is a fact.
            with self.symbols.mode, self.symbols.shape_env.suppress_guards():
                return torch.empty_strided(shape, strides, dtype=dtype, device=device)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if span is None:
                raise
            raise BadText("FD613", f"no such tensor: {_first_line(error)}", span) from None


def contiguous(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        # As torch does: a dimension of size 0 counts as 1. A symbolic size is never 0.
        step = step * (1 if isinstance(size, int) and size == 0 else size)
    return tuple(reversed(strides))


def dtype_named(name: str) -> torch.dtype | None:
    attribute = DTYPES[name][0] if name in DTYPES else _EXTRA_DTYPES.get(name)
    value = None if attribute is None else getattr(torch, attribute, None)
    return value if isinstance(value, torch.dtype) else None


def dtype_name(dtype: torch.dtype) -> str:
    attribute = str(dtype).removeprefix("torch.")
    for name, (torch_name, _, _) in DTYPES.items():
        if torch_name == attribute:
            return name
    return next(
        (n for n, torch_name in _EXTRA_DTYPES.items() if torch_name == attribute), attribute
    )


def _dtype(name: str, span: Span) -> torch.dtype:
    dtype = dtype_named(name)
    if dtype is None:
        raise BadText("FD609", f"unknown dtype `{name}`", span)
    return dtype


def _device(name: str, span: Span) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        if name.partition(":")[0] in _FOREIGN_DEVICES:
            return torch.device("meta")
        raise BadText("FD610", f"unknown device `{name}`", span) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _part(span: Span, match: re.Match[str], group: str) -> Span:
    return Span(span.source, span.start + match.start(group), span.start + match.end(group))


def _inside(span: Span, match: re.Match[str], group: str) -> Span:
    part = _part(span, match, group)
    return Span(span.source, part.start + 1, part.end - 1)
