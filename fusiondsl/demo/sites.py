"""Each fused call against the values it replaces, computed from the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from fusiondsl.demo.replay import Recording, Replaced, Replay
from fusiondsl.engine.report import Report
from fusiondsl.ops.registry import declaration
from fusiondsl.verify.numerics import (
    Comparison,
    PackedComparison,
    compare,
    compare_fp8,
    compare_mxfp4,
)

Quantity: TypeAlias = Literal["sum", "f32", "bf16", "fp8", "mxfp4", "product"]
"""What is compared: sums for the residual stream; norms; codes and scales; a product of codes."""


@dataclass(frozen=True)
class SiteComparison:
    rule: str
    node: str
    """Where the rule matched, as in the report."""
    results: str
    """The fused op's names, or the node's where the op is not one of ours."""
    quantity: Quantity
    width: int
    """Elements of a row."""
    found: Comparison | PackedComparison


def compare_sites(
    before: fx.GraphModule, after: fx.GraphModule, report: Report, arguments: Sequence[Any]
) -> list[SiteComparison]:
    """One comparison a replaced value; codes are compared together with their scales."""
    replay = Replay(before, after, report, Recording(before, arguments).values)
    return [found for values in replay.calls() for found in _compared(replay, values)]


def _compared(replay: Replay, values: Sequence[Replaced]) -> Iterator[SiteComparison]:
    codes = next((v for v in values if v.fused.dtype is torch.float8_e4m3fn), None)
    scales = next((v for v in values if v.fused.dtype is torch.float32), None)
    packed: tuple[Replaced, ...] = ()
    if codes is not None and scales is not None:
        packed = (codes, scales)
        fp8 = compare_fp8((codes.fused, scales.fused), (codes.original, scales.original))
        yield _comparison(codes, f"{_name(codes)}, {_name(scales)}", "fp8", fp8)
    for value in values:
        if _is_product(value):
            yield _comparison(value, "codes, scales", "mxfp4", _operand(replay, value))
        if not any(value is part for part in packed):
            found = compare(value.fused, value.original)
            yield _comparison(value, _name(value), _quantity(value), found)


def _comparison(
    value: Replaced, results: str, quantity: Quantity, found: Comparison | PackedComparison
) -> SiteComparison:
    width = value.fused.shape[-1]
    return SiteComparison(value.site.rule, value.site.node, results, quantity, width, found)


def _quantity(value: Replaced) -> Quantity:
    if _is_product(value):
        return "product"
    if _name(value) == "residual_out":
        return "sum"
    return "f32" if value.fused.dtype is torch.float32 else "bf16"


def _is_product(value: Replaced) -> bool:
    name = value.was.target.name() if isinstance(value.was.target, torch._ops.OpOverload) else ""
    return name == "fusiondsl::mxfp4_gemm"


def _operand(replay: Replay, value: Replaced) -> PackedComparison:
    """The codes given to a GEMM, against those that the replaced GEMM made of its activation."""
    activation = value.was.args[0]
    assert isinstance(activation, fx.Node)
    codes, scales = replay.arguments(value.call)[:2]
    plain_codes, plain_scales = torch.ops.fusiondsl.mxfp4_quant(replay.recorded(activation))
    return compare_mxfp4((codes, scales), (plain_codes, plain_scales))


def _name(value: Replaced) -> str:
    target = value.call.target
    found = declaration(target.name()) if isinstance(target, torch._ops.OpOverload) else None
    return value.call.name if found is None else found[0].call_results[value.index].name
