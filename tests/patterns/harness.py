"""Applies the shipped rules to captured graphs and compares what they compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import fusiondsl
from fusiondsl.engine.report import Report
from fusiondsl.ops.registry import register
from fusiondsl.resources import patterns_root
from fusiondsl.verify.numerics import compare_fp8, compare_mxfp4, relative_error
from tests.support import spellings as s
from tests.support.capture import Captured, post_grad
from tests.support.extern_ops import register_extern_ops

BF16 = torch.bfloat16
H = 512
NEW_AITER = {
    "env.aiter": True,
    "env.vllm": True,
    "env.aiter_dynamic_hidden": True,
    "env.aiter_allreduce_group_quant": True,
}

Source = Callable[..., Any]
Make = Callable[[int], tuple[Tensor, ...]]
Compare = Callable[[tuple[Any, ...], tuple[Any, ...]], None]


@cache
def compiled(arch: str = "gfx950", tp_size: int = 8, new_aiter: bool = True) -> Any:
    rule_set = fusiondsl.load(patterns_root())
    register_extern_ops(rule_set.program)
    register(rule_set.program)
    facts = NEW_AITER if new_aiter else dict.fromkeys(NEW_AITER, False)
    target = fusiondsl.Target(arch=arch, tp_size=tp_size, tp_group=s.GROUP, facts=facts)
    return rule_set.compile(target)


def apply(captured: Captured, tokens: range = range(1, 8193), **target: Any) -> Report:
    report: Report = compiled(**target).apply(captured.gm, tokens=tokens)
    captured.gm.graph.lint()
    return report


# --- inputs and comparisons ----------------------------------------------------------------------


def rows(tokens: int, width: int, salt: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * salt + tokens)
    return torch.randn(tokens, width, generator=generator).to(dtype)


def vector(width: int, salt: int = 9, dtype: torch.dtype = BF16) -> Tensor:
    return rows(1, width, salt).flatten().to(dtype)


def plain_inputs(tokens: int) -> tuple[Tensor, ...]:
    return rows(tokens, H), vector(H)


def add_inputs(tokens: int) -> tuple[Tensor, ...]:
    return rows(tokens, H), rows(tokens, H, 1), vector(H)


def flat(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def same_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """One rounding moved: at most a unit in the last place of bf16, seldom more."""
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=2**-6, atol=1e-5)


def fp8_then_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    difference = compare_fp8((actual[0], actual[1]), (expected[0], expected[1]))
    assert difference.code_flips <= 0.1
    assert difference.max_error <= 0.08  # one step of the largest codes
    assert difference.mean_error <= 2e-3
    same_values(actual[2:], expected[2:])


def mxfp4_then_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    difference = compare_mxfp4((actual[0], actual[1]), (expected[0], expected[1]))
    assert difference.code_flips <= 0.02
    assert difference.scale_flips <= 0.02
    assert difference.mean_error <= 5e-3
    same_values(actual[2:], expected[2:])


def product_then_values(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """A flipped code of the activation moves every output of its row a little."""
    maximum, mean = relative_error(actual[0], expected[0])
    assert maximum <= 0.2
    assert mean <= 0.02
    same_values(actual[1:], expected[1:])


def check(
    function: Source,
    make: Make,
    rule: str | tuple[str, ...],
    compare: Compare,
    capture: Callable[..., Captured] = post_grad,
    **target: Any,
) -> Captured:
    """A graph with a symbolic number of tokens run at 7 and 128, and one for a single token."""
    counts = dict.fromkeys((rule,) if isinstance(rule, str) else rule, 1)
    dynamic = capture(function, *make(7))
    assert apply(dynamic, **target).counts == counts
    for tokens in (7, 128):
        compare(dynamic.run(make(tokens), tokens), flat(function(*make(tokens))))
    single = capture(function, *make(1), dynamic=False)
    assert apply(single, **target).counts == counts
    compare(single.run(make(1), 1), flat(function(*make(1))))
    return dynamic


# --- sources -------------------------------------------------------------------------------------

NORMS = [
    s.norm_vllm_ir,
    s.norm_custom,
    s.norm_aiter,
    s.norm_llama,
    s.norm_gpt_oss,
    s.norm_weight_upcast,
    s.norm_functional,
]
ADD_NORMS = [
    s.add_norm_vllm_ir,
    s.add_norm_aiter,
    s.add_norm_ir_native,
    s.add_norm_llama,
    s.add_norm_gpt_oss,
    s.add_norm_add_then_ir,
]
TOKEN_QUANTS = [s.token_custom, s.token_aiter, s.token_native]
GROUP_QUANTS = [s.group_custom, s.group_aiter, s.group_native]
SILUS = [s.silu_custom, s.silu_custom_gpu, s.silu_sliced, s.silu_chunked, s.silu_f32]


def names(function: Source) -> str:
    return function.__name__


def pairs(left: list[Source], right: list[Source]) -> pytest.MarkDecorator:
    """Each spelling of either op at least once, not all combinations."""
    count = max(len(left), len(right))
    values = [(left[i % len(left)], right[i % len(right)]) for i in range(count)]
    return pytest.mark.parametrize(("norm", "quant"), values, ids=names)


norms = pytest.mark.parametrize("norm", NORMS, ids=names)
add_norms = pytest.mark.parametrize("norm", ADD_NORMS, ids=names)
group_quants = pytest.mark.parametrize("quant", GROUP_QUANTS, ids=names)
silus = pytest.mark.parametrize("silu", SILUS, ids=names)
