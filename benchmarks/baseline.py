"""The benchmark's three fusions written for `register_replacement`, as vLLM writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor import pattern_matcher
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import ops
from benchmarks.ops import FP8

_C = torch.ops._C
_TOKENS, _WIDTH = 5, 16
"""Sizes of the example inputs; the matcher re-traces with the sizes of each candidate."""


def _functionalised(op: torch._ops.OpOverload, **arguments: object) -> tuple[Tensor, ...]:
    """The op's return value (None), then its mutated arguments."""
    call: Any = auto_functionalized(op, **arguments)
    returned: tuple[Tensor, ...] = call
    return returned


def _quantise(x: Tensor, scale: Tensor) -> Tensor:
    result = torch.empty(x.shape, dtype=FP8, device=x.device)
    call = _functionalised(
        _C.static_scaled_fp8_quant.default,
        result=result,
        input=x,
        scale=scale,
        group_shape=[-1, -1],
    )
    return call[1]


def _rms_norm(x: Tensor, weight: Tensor, eps: float, native: bool) -> Tensor:
    if native:
        return ops.rms_norm(x, weight, eps)
    normed: Tensor = torch.ops.vllm_ir.rms_norm(x, weight, eps)
    return normed


def _add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, native: bool
) -> tuple[Tensor, Tensor]:
    if native:
        return ops.fused_add_rms_norm(x, residual, weight, eps)
    normed, total = torch.ops.vllm_ir.fused_add_rms_norm(x, residual, weight, eps)
    return normed, total


def _silu_and_mul(x: Tensor, native: bool) -> Tensor:
    if native:
        return ops.silu_and_mul(x)
    result = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
    call = _functionalised(_C.silu_and_mul.default, result=result, input=x)
    return call[1]


def _register(
    patterns: PatternMatcherPass,
    search: Callable[..., object],
    replacement: Callable[..., object],
    inputs: list[Tensor],
) -> None:
    pattern_matcher.register_replacement(
        search, replacement, inputs, pattern_matcher.fwd_only, patterns
    )


def _rms_norm_quant(patterns: PatternMatcherPass, eps: float, native: bool) -> None:
    def search(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        return _quantise(_rms_norm(x, weight, eps, native), scale)

    def replacement(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        call = _functionalised(
            _C.rms_norm_static_fp8_quant.default,
            result=torch.empty(x.shape, dtype=FP8, device=x.device),
            input=x,
            weight=weight,
            scale=scale,
            epsilon=eps,
        )
        return call[1]

    _register(patterns, search, replacement, [_activation(), _weight(), _scale()])


def _add_rms_norm_quant(patterns: PatternMatcherPass, eps: float, native: bool) -> None:
    def search(x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        normed, total = _add_rms_norm(x, residual, weight, eps, native)
        return _quantise(normed, scale), total

    def replacement(
        x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        call = _functionalised(
            _C.fused_add_rms_norm_static_fp8_quant.default,
            result=torch.empty(x.shape, dtype=FP8, device=x.device),
            input=x,
            residual=residual,
            weight=weight,
            scale=scale,
            epsilon=eps,
        )
        return call[1], call[2]

    inputs = [_activation(), _activation(), _weight(), _scale()]
    _register(patterns, search, replacement, inputs)


def _silu_and_mul_quant(patterns: PatternMatcherPass, native: bool) -> None:
    def search(x: Tensor, scale: Tensor) -> Tensor:
        return _quantise(_silu_and_mul(x, native), scale)

    def replacement(x: Tensor, scale: Tensor) -> Tensor:
        shape = (*x.shape[:-1], x.shape[-1] // 2)
        call = _functionalised(
            _C.silu_and_mul_quant.default,
            result=torch.empty(shape, dtype=FP8, device=x.device),
            input=x,
            scale=scale,
        )
        return call[1]

    _register(patterns, search, replacement, [_activation(2 * _WIDTH), _scale()])


def _activation(width: int = _WIDTH) -> Tensor:
    return torch.empty(_TOKENS, width, dtype=torch.bfloat16)


def _weight() -> Tensor:
    return torch.empty(_WIDTH, dtype=torch.bfloat16)


def _scale() -> Tensor:
    return torch.empty(1, 1, dtype=torch.float32)


@contextmanager
def _example_inputs() -> Iterator[None]:
    with FakeTensorMode():
        yield


def static_quant_patterns(eps: float, *, native: bool) -> PatternMatcherPass:
    """A pass with the three patterns; `native` spells norm and activation in plain torch."""
    patterns = PatternMatcherPass(pass_name="static_quant")
    with _example_inputs():
        _add_rms_norm_quant(patterns, eps, native)
        _rms_norm_quant(patterns, eps, native)
        _silu_and_mul_quant(patterns, native)
    return patterns
