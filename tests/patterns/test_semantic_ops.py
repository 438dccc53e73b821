"""Every form of every semantic op is recognised in captured graphs and means what it stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import fusiondsl
from fusiondsl.verify.numerics import compare_fp8
from tests.support import spellings as s
from tests.support.capture import Captured, post_grad, traced
from tests.support.extern_ops import register_extern_ops

BF16, F32 = torch.bfloat16, torch.float32
TOKENS = (7, 128)


@cache
def rules() -> Any:
    rule_set = fusiondsl.load(Path(__file__).with_name("probes.fuse"))
    register_extern_ops(rule_set.program)
    return rule_set.compile(fusiondsl.Target(arch="gfx950", tp_size=2, tp_group=s.GROUP))


@pytest.fixture(autouse=True)
def _ops() -> None:
    rules()  # registers what the spellings call


def activations(tokens: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(tokens, *shape, generator=generator).to(dtype)


def probe(captured: Captured, op: str, form: str) -> None:
    """Rewrites the graph; exactly this op must fire, in this form."""
    report = rules().apply(captured.gm, tokens=range(1, 8193))
    captured.gm.graph.lint()
    fired = [site for site in report.fired if site.rule == f"probe_{op}"]
    assert len(fired) == 1, str(report)
    assert fired[0].forms == (f"{op}:{form}",)
    assert any(f"fusiondsl.probe_{op}" in target for target in captured.targets())


def check(
    function: Callable[..., Any],
    make: Callable[[int], tuple[torch.Tensor, ...]],
    op: str,
    form: str,
    compare: Callable[[tuple[Any, ...], tuple[Any, ...]], None],
    capture: Callable[..., Captured] = post_grad,
) -> None:
    """One graph with a symbolic number of tokens run at several, one for a single token."""
    dynamic = capture(function, *make(7))
    probe(dynamic, op, form)
    for tokens in TOKENS:
        compare(dynamic.run(make(tokens), tokens), flat(function(*make(tokens))))
    single = capture(function, *make(1), dynamic=False)
    probe(single, op, form)
    compare(single.run(make(1), 1), flat(function(*make(1))))


def flat(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def close(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right)


def close_fp8(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """The definition and a spelling differ in the last place of the scale: few codes flip."""
    difference = compare_fp8((actual[0], actual[1]), (expected[0], expected[1]))
    assert difference.code_flips <= 0.02
    assert difference.max_error <= 2**-4


NORMS = [
    (s.norm_vllm_ir, "vllm_ir"),
    (s.norm_custom, "custom"),
    (s.norm_aiter, "aiter"),
    (s.norm_llama, "torch"),
    (s.norm_x_times_x, "torch"),
    (s.norm_ir_native, "torch"),
    (s.norm_gpt_oss, "torch_late_round"),
    (s.norm_weight_upcast, "torch_cast_weight"),
    (s.norm_functional, "torch_late_round"),
]
"""What stands in a bf16 graph. In f32 no rounding is left, and all torch spellings are one."""


@pytest.mark.parametrize("leading", [(), (3,)], ids=["2d", "3d"])
@pytest.mark.parametrize(("function", "form"), NORMS, ids=lambda v: getattr(v, "__name__", v))
def test_rms_norm(function: Any, form: str, leading: tuple[int, ...]) -> None:
    weight = activations(64, dtype=BF16)
    check(
        function,
        lambda t: (activations(t, *leading, 64, dtype=BF16), weight),
        "rms_norm",
        form,
        close,
    )


@pytest.mark.parametrize(("function", "form"), NORMS, ids=lambda v: getattr(v, "__name__", v))
def test_rms_norm_in_f32(function: Any, form: str) -> None:
    weight = activations(64, dtype=F32)
    check(
        function,
        lambda t: (activations(t, 64, dtype=F32), weight),
        "rms_norm",
        "torch" if form.startswith("torch") else form,
        close,
    )


def test_rms_norm_with_an_f32_weight() -> None:
    weight = activations(64, dtype=F32)
    for function, form in ((s.norm_vllm_ir, "vllm_ir"), (s.norm_ir_native, "torch")):
        check(function, lambda t: (activations(t, 64, dtype=BF16), weight), "rms_norm", form, close)


@pytest.mark.parametrize("functionalized", [1, 2])
def test_mutating_norm_functionalised(functionalized: int) -> None:
    def capture(function: Any, *args: torch.Tensor, dynamic: bool = True) -> Captured:
        return post_grad(function, *args, dynamic=dynamic, functionalized=functionalized)

    weight = activations(64, dtype=BF16)
    captured = capture(s.norm_custom, activations(7, 64, dtype=BF16), weight)
    probe(captured, "rms_norm", "custom")


def test_mutating_norm_raw() -> None:
    weight = activations(64, dtype=BF16)
    check(
        s.norm_custom,
        lambda t: (activations(t, 64, dtype=BF16), weight),
        "rms_norm",
        "custom",
        close,
        traced,
    )


ADD_NORMS = [
    (s.add_norm_vllm_ir, "vllm_ir"),
    (s.add_norm_custom, "custom"),
    (s.add_norm_aiter, "aiter"),
    (s.add_norm_ir_native, "torch"),
    (s.add_norm_llama, "add_then_norm"),
    (s.add_norm_gpt_oss, "add_then_norm"),
    (s.add_norm_add_then_ir, "add_then_norm"),
]


@pytest.mark.parametrize("leading", [(), (3,)], ids=["2d", "3d"])
@pytest.mark.parametrize(("function", "form"), ADD_NORMS, ids=lambda v: getattr(v, "__name__", v))
def test_fused_add_rms_norm(function: Any, form: str, leading: tuple[int, ...]) -> None:
    weight = activations(64, dtype=BF16)

    def make(tokens: int) -> tuple[torch.Tensor, ...]:
        shape = (tokens, *leading, 64)
        return activations(*shape, dtype=BF16), activations(*shape, dtype=BF16).flip(-1), weight

    check(function, make, "fused_add_rms_norm", form, close)


SILUS = [
    (s.silu_custom, "custom"),
    (s.silu_custom_gpu, "custom_gpu"),
    (s.silu_sliced, "torch"),
    (s.silu_chunked, "torch"),
    (s.silu_f32, "torch_f32"),
    (s.silu_written_out, "torch_no_upcast"),
    (s.silu_sigmoid, "torch_sigmoid"),
]


@pytest.mark.parametrize(("function", "form"), SILUS, ids=lambda v: getattr(v, "__name__", v))
def test_silu_and_mul(function: Any, form: str) -> None:
    check(function, lambda t: (activations(t, 128, dtype=BF16),), "silu_and_mul", form, close)


@pytest.mark.parametrize(("function", "form"), SILUS[:4], ids=lambda v: getattr(v, "__name__", v))
def test_silu_and_mul_in_f32(function: Any, form: str) -> None:
    check(function, lambda t: (activations(t, 3, 128, dtype=F32),), "silu_and_mul", form, close)


@pytest.mark.parametrize("function", [s.silu_sliced, s.silu_chunked])
def test_silu_that_nobody_decomposed(function: Any) -> None:
    check(
        function,
        lambda t: (activations(t, 128, dtype=BF16),),
        "silu_and_mul",
        "torch_silu",
        close,
        traced,
    )


STATIC = [
    (s.static_custom, "custom"),
    (s.static_custom_per_tensor, "custom_per_tensor"),
    (s.static_custom_gpu, "custom_gpu"),
    (s.static_native, "native_fn"),
]


@pytest.mark.parametrize("shape", [(1, 1), (1,), ()], ids=str)
@pytest.mark.parametrize(("function", "form"), STATIC, ids=lambda v: getattr(v, "__name__", v))
def test_fp8_static_quant(function: Any, form: str, shape: tuple[int, ...]) -> None:
    scale = torch.full(shape, 0.01)

    def compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        close_fp8((actual[0], scale), (expected[0], scale))

    check(
        lambda x, scale: function(x, scale),
        lambda t: (activations(t, 64, dtype=BF16), scale),
        "fp8_static_quant",
        form,
        compare,
    )


TOKEN = [(s.token_custom, "custom"), (s.token_aiter, "aiter"), (s.token_native, "native_fn")]


@pytest.mark.parametrize(("function", "form"), TOKEN, ids=lambda v: getattr(v, "__name__", v))
def test_fp8_per_token_quant(function: Any, form: str) -> None:
    check(
        lambda x: function(x),
        lambda t: (activations(t, 128, dtype=BF16),),
        "fp8_per_token_quant",
        form,
        close_fp8,
    )


def test_fp8_per_token_quant_fnuz() -> None:
    captured = post_grad(lambda x: s.token_native(x, s.FNUZ), activations(7, 128, dtype=BF16))
    probe(captured, "fp8_per_token_quant", "native_fnuz")


GROUPED = [(s.group_custom, "custom"), (s.group_aiter, "aiter"), (s.group_native, "native_fn")]


@pytest.mark.parametrize("leading", [(), (3,)], ids=["2d", "3d"])
@pytest.mark.parametrize(("function", "form"), GROUPED, ids=lambda v: getattr(v, "__name__", v))
def test_fp8_group_quant(function: Any, form: str, leading: tuple[int, ...]) -> None:
    check(
        lambda x: function(x),
        lambda t: (activations(t, *leading, 384, dtype=BF16),),
        "fp8_group_quant",
        form,
        close_fp8,
    )


@pytest.mark.parametrize("dtype", [s.FN, s.FNUZ], ids=str)
def test_fp8_group_quant_of_rows_that_are_groups(dtype: torch.dtype) -> None:
    def source(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gated = x.sigmoid()
        codes, scale = s.group_native(gated.reshape(-1, 256), dtype)
        return codes, scale

    form = "native_row_fn" if dtype is s.FN else "native_row_fnuz"
    captured = post_grad(source, activations(7, 2, 128, dtype=BF16))
    probe(captured, "fp8_group_quant", form)


GATED = [(post_grad, "torch"), (traced, "torch_silu")]


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(("capture", "form"), GATED, ids=["post_grad", "make_fx"])
def test_gated_rms_norm(capture: Any, form: str, dtype: torch.dtype) -> None:
    weight = activations(64, dtype=BF16)

    def make(tokens: int) -> tuple[torch.Tensor, ...]:
        x = activations(tokens, 3, 64, dtype=dtype)
        return x, x.flip(-1).contiguous(), weight

    check(s.gated_norm, make, "gated_rms_norm", form, close, capture)


def test_all_reduce() -> None:
    check(s.reduce_vllm, lambda t: (activations(t, 64, dtype=BF16),), "all_reduce", "vllm", close)


def test_mxfp4_gemm() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(0, 256, (48, 32), generator=generator, dtype=torch.uint8)
    scale = torch.randint(120, 130, (2, 48), generator=generator, dtype=torch.uint8)
    check(
        s.mx_gemm_vllm,
        lambda t: (activations(t, 64, dtype=BF16), weight, scale),
        "mxfp4_gemm",
        "vllm",
        close,
    )
