"""The `impl` clauses of the AITER ops, against functions with AITER's signatures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import fusiondsl
from fusiondsl import ops
from fusiondsl.ops import kernels
from fusiondsl.ops.context import Context
from fusiondsl.ops.dispatch import SWITCH
from fusiondsl.ops.references import fp8, mx
from fusiondsl.target import Target
from fusiondsl.verify import numerics
from fusiondsl.verify.samples import sample_inputs

PROGRAM = fusiondsl.load(Path(__file__).parent.parent.parent / "patterns").program
CONTEXT = Context.of(PROGRAM)


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()


def act_mul_and_mxfp4_quant(
    x: torch.Tensor,
    activation: str,
    scaling_mode: str = "even",
    shuffle: bool = False,
    scale_shuffle_padding: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert activation == "silu"
    assert not shuffle
    a, b = x.float().chunk(2, -1)
    return mx.mxfp4_quant(torch.nn.functional.silu(a) * b, scaling_mode)


def fused_rms_mxfp4_quant(
    x1: torch.Tensor,
    x1_weight: torch.Tensor,
    x1_epsilon: float,
    x2: torch.Tensor | None = None,
    x2_weight: torch.Tensor | None = None,
    x2_epsilon: float = 0.0,
    res1: torch.Tensor | None = None,
    shuffle: bool = False,
    scale_shuffle_padding: bool = False,
    output_unquantized_inp1: bool = False,
    inargs: str = "auto",
) -> Any:
    assert res1 is not None
    h = x1.float() + res1.float()
    return mx.mxfp4_quant(normed(h, x1_weight, x1_epsilon), "even"), None, None, h.to(x1.dtype)


def fused_rms_mxfp8_quant(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    y: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return mx.mxfp8_quant(normed(x, weight, eps))


def fused_dual_rmsnorm_mxfp8_quant(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps_q: float,
    eps_k: float | None = None,
    yq: torch.Tensor | None = None,
    sq: torch.Tensor | None = None,
    yk: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert eps_k is not None
    codes, scales = mx.mxfp8_quant(normed(q, q_weight, eps_q))
    return codes, scales, normed(k, k_weight, eps_k).to(k.dtype)


def rmsnorm2d_fwd_with_dynamicquant(
    out: torch.Tensor,
    input: torch.Tensor,
    yscale: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    use_model_sensitive_rmsnorm: int = 0,
    group_size: int = 0,
    shuffle_scale: bool = False,
) -> None:
    q, scale = fp8.per_token_quant(normed(input, weight, epsilon), out.dtype)
    out.copy_(q)
    yscale.copy_(scale)


def rmsnorm2d_fwd_with_add_dynamicquant(
    out: torch.Tensor,
    input: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    yscale: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    use_model_sensitive_rmsnorm: int = 0,
    group_size: int = 0,
    shuffle_scale: bool = False,
) -> None:
    h = input.float() + residual_in.float()
    residual_out.copy_(h)
    q, scale = fp8.per_token_quant(normed(h, weight, epsilon), out.dtype)
    out.copy_(q)
    yscale.copy_(scale)


def fused_rms_fp8_group_quant(
    inp1: torch.Tensor,
    inp1_weight: torch.Tensor,
    inp1_epsilon: float,
    inp2: torch.Tensor | None = None,
    inp2_weight: torch.Tensor | None = None,
    inp2_epsilon: float | None = None,
    group_size: int = 128,
    dtype_quant: torch.dtype = torch.float8_e4m3fnuz,
    res1: torch.Tensor | None = None,
    output_unquantized_inp1: bool = False,
    transpose_scale: bool = False,
    is_x_scale_strided: bool = False,
) -> Any:
    h = inp1.float() if res1 is None else inp1.float() + res1.float()
    quantised = fp8.group_quant(normed(h, inp1_weight, inp1_epsilon), group_size, dtype_quant)
    return quantised, None, None, None if res1 is None else h.to(inp1.dtype)


def fused_rms_fp8_per_tensor_static_quant(
    inp1: torch.Tensor,
    inp1_weight: torch.Tensor,
    inp1_epsilon: float,
    inp1_scale: torch.Tensor,
    inp2: torch.Tensor | None = None,
    inp2_weight: torch.Tensor | None = None,
    inp2_epsilon: float | None = None,
    dtype_quant: torch.dtype = torch.float8_e4m3fnuz,
    res1: torch.Tensor | None = None,
    output_unquantized_inp1: bool = False,
    rmsnorm_convert_to_inp1_type: bool = False,
) -> Any:
    h = inp1.float() if res1 is None else inp1.float() + res1.float()
    q = fp8.static_quant(normed(h, inp1_weight, inp1_epsilon), inp1_scale, dtype_quant)
    return q, None, None, None if res1 is None else h.to(inp1.dtype)


def fused_rms_gated_fp8_group_quant(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    z: torch.Tensor,
    eps: float,
    *,
    norm_before_gate: bool = True,
    use_ue8m0: bool = False,
    activation: str = "silu",
    out_dtype: torch.dtype | None = None,
    fp8_min: float | None = None,
    fp8_max: float | None = None,
    fp8_min_scaling_factor: float | None = None,
    group_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert x.is_contiguous()
    assert z.is_contiguous()
    assert norm_before_gate
    assert bias is None
    assert activation == "silu"
    assert group_size is not None
    assert out_dtype is not None
    gated = normed(x, weight, eps) * torch.nn.functional.silu(z.float())
    return fp8.group_quant(gated, group_size, out_dtype)


def act_mul_and_fp8_group_quant(
    x: torch.Tensor,
    activation: str,
    group_size: int,
    dtype_quant: torch.dtype = torch.float8_e4m3fnuz,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert activation == "silu"
    a, b = x.float().chunk(2, -1)
    return fp8.group_quant(torch.nn.functional.silu(a) * b, group_size, dtype_quant)


def fused_silu_mul_fp8_per_tensor_static_quant(
    inp: torch.Tensor,
    inp_scale: torch.Tensor,
    dtype_quant: torch.dtype = torch.float8_e4m3fnuz,
    silu_convert_to_inp_type: bool = False,
) -> torch.Tensor:
    a, b = inp.float().chunk(2, -1)
    return fp8.static_quant(torch.nn.functional.silu(a) * b, inp_scale, dtype_quant)


def fused_add_rmsnorm_pad(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    res: torch.Tensor | None = None,
    x_pad_to_multiple: int = 0,
) -> Any:
    assert res is not None
    h = x.float() + res.float()
    y = normed(h, weight, epsilon).to(x.dtype)
    return torch.nn.functional.pad(y, (0, -y.shape[-1] % x_pad_to_multiple)), h.to(res.dtype)


def _fused_qk_rmsnorm(
    q_out: torch.Tensor | None,
    q: torch.Tensor,
    q_weight: torch.Tensor,
    q_eps: float,
    k_out: torch.Tensor | None,
    k: torch.Tensor,
    k_weight: torch.Tensor,
    k_eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert q_out is not None
    assert k_out is not None
    q_out.copy_(normed(q, q_weight, q_eps))
    k_out.copy_(normed(k, k_weight, k_eps))
    return q_out, k_out


def fused_qk_rmsnorm_per_token_quant(
    q_out_quantized: torch.Tensor,
    q_out_scale: torch.Tensor,
    q: torch.Tensor,
    q_weight: torch.Tensor,
    q_epsilon: float,
    q_out_unquantized: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    q_res_out: torch.Tensor | None = None,
    k: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    k_epsilon: float | None = None,
    q_residual: torch.Tensor | None = None,
    gemma_norm: bool = False,
) -> None:
    assert k_out is not None
    assert k is not None
    assert k_weight is not None
    assert k_epsilon is not None
    q, scale = fp8.per_token_quant(normed(q, q_weight, q_epsilon), q_out_quantized.dtype)
    q_out_quantized.copy_(q)
    q_out_scale.copy_(scale)
    k_out.copy_(normed(k, k_weight, k_epsilon))


def fused_qk_rmsnorm_group_quant(
    q_out_quantized: torch.Tensor | None = None,
    q_out_scale: torch.Tensor | None = None,
    q: torch.Tensor | None = None,
    q_weight: torch.Tensor | None = None,
    q_epsilon: float = 1e-06,
    q_out_unquantized: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    q_res_out: torch.Tensor | None = None,
    k: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    k_epsilon: float | None = None,
    q_residual: torch.Tensor | None = None,
    group_size: int = 128,
    transpose_scale: bool = False,
    gemma_norm: bool = False,
) -> None:
    assert q_out_quantized is not None
    assert q_out_scale is not None
    assert q is not None
    assert q_weight is not None
    assert k_out is not None
    assert k is not None
    assert k_weight is not None
    assert k_epsilon is not None
    codes = normed(q, q_weight, q_epsilon)
    codes, scale = fp8.group_quant(codes, group_size, q_out_quantized.dtype)
    q_out_quantized.copy_(codes)
    q_out_scale.copy_(scale)
    k_out.copy_(normed(k, k_weight, k_epsilon))


MODULES: dict[str, tuple[Callable[..., Any], ...]] = {
    "aiter.ops.fused_qk_norm_rope_cache_quant": (_fused_qk_rmsnorm,),
    "aiter.ops.fused_qk_rmsnorm_group_quant": (
        fused_qk_rmsnorm_per_token_quant,
        fused_qk_rmsnorm_group_quant,
    ),
    "aiter.ops.triton.activation": (act_mul_and_mxfp4_quant, act_mul_and_fp8_group_quant),
    "aiter.ops.triton.normalization.fused_add_rmsnorm_pad": (fused_add_rmsnorm_pad,),
    "aiter.ops.triton.quant.fused_mxfp4_quant": (fused_rms_mxfp4_quant,),
    "aiter.ops.triton.quant.fused_mxfp8_quant": (
        fused_rms_mxfp8_quant,
        fused_dual_rmsnorm_mxfp8_quant,
    ),
    "aiter.ops.rmsnorm": (rmsnorm2d_fwd_with_dynamicquant, rmsnorm2d_fwd_with_add_dynamicquant),
    "aiter.ops.triton.quant.fused_fp8_quant": (
        fused_rms_fp8_group_quant,
        fused_rms_fp8_per_tensor_static_quant,
        fused_rms_gated_fp8_group_quant,
        fused_silu_mul_fp8_per_tensor_static_quant,
    ),
}


@pytest.fixture
def _aiter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An `aiter` package with those functions on a machine that calls itself gfx950."""
    for name, functions in MODULES.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        for function in functions:
            setattr(sys.modules[name], function.__name__, function)
    kernels.forget_kernels()
    facts = {**Target(arch="gfx950").known(), "env.aiter": True, "env.vllm": False}
    monkeypatch.setattr(kernels, "_facts", lambda: facts)
    yield
    monkeypatch.undo()
    kernels.forget_kernels()


def uses_aiter(name: str) -> bool:
    return any(impl.location.startswith("aiter") for impl in PROGRAM.ops[name].impls)


DIRECT = [name for name in PROGRAM.ops if uses_aiter(name)]


def test_each_function_is_tried() -> None:
    called = {
        i.location for d in PROGRAM.ops.values() for i in d.impls if i.location[:5] == "aiter"
    }
    known = {f"{module}:{f.__name__}" for module, fs in MODULES.items() for f in fs}
    assert called == known


@pytest.mark.usefixtures("_aiter")
@pytest.mark.parametrize("name", DIRECT)
def test_the_kernel_gets_its_arguments_and_its_results_their_names(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decl = PROGRAM.ops[name]
    ops.register(PROGRAM)
    function = ops.overload(decl)
    assert function is not None
    args = sample_inputs(decl, CONTEXT).positional(decl)
    monkeypatch.delenv(SWITCH, raising=False)
    from_kernel = function(*args)
    monkeypatch.setattr(kernels, "_locate", lambda location: (None, "taken away"))
    with ops.reference_ops():
        from_reference = function(*args)
    if len(decl.results) == 1:
        from_kernel, from_reference = (from_kernel,), (from_reference,)
    for result, one, other in zip(decl.results, from_kernel, from_reference, strict=True):
        assert one.dtype == other.dtype, result.name
        assert one.stride() == other.stride(), result.name
        found = numerics.compare(one, other)
        assert found.flip_rate < 0.01, (result.name, found)
