"""Tiny models: configurations, and random weights that make tokens mean something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, HEAD, VOCAB = 256, 512, 4, 8, 4, 32, 1024
F8 = torch.float8_e4m3fn
MOST = 448.0
INPUT_SCALE = 8.0 / MOST

_COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
}
_LLAMA = {
    **_COMMON,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": LAYERS,
    "rms_norm_eps": 1e-5,
    "mlp_bias": False,
}
_EXPERTS = {
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
    "output_router_logits": False,
}
_QWEN3 = {
    **_COMMON,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 3,
}


def _packed(kind: str, bits: int, strategy: str, act: str, dynamic: bool, format: str) -> Any:
    """The section of `compressed-tensors` for 8-bit weights and activations."""

    def args(strategy: str, dynamic: bool) -> dict[str, Any]:
        return {
            "num_bits": bits,
            "type": kind,
            "strategy": strategy,
            "symmetric": True,
            "dynamic": dynamic,
            "group_size": None,
            "block_structure": None,
            "actorder": None,
            "observer": "minmax",
            "observer_kwargs": {},
        }

    group = {
        "targets": ["Linear"],
        "weights": args(strategy, False),
        "input_activations": args(act, dynamic),
    }
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
        "kv_cache_scheme": None,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "llama_fp8_static": {
        **_LLAMA,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "static"},
    },
    "llama_fp8_token": {
        **_LLAMA,
        "quantization_config": _packed("float", 8, "channel", "token", True, "float-quantized"),
    },
    "llama_int8": {
        **_LLAMA,
        "quantization_config": _packed("int", 8, "channel", "token", True, "int-quantized"),
    },
    "qwen3": _QWEN3,
    "qwen3_moe": {
        **_QWEN3,
        **_EXPERTS,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
    },
    "gemma": {
        **_COMMON,
        "architectures": ["GemmaForCausalLM"],
        "model_type": "gemma",
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    "deepseek": {
        **_COMMON,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "moe_intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": 128,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
    },
}

_WEIGHTS = frozenset({"llama", "llama_fp8_static", "llama_fp8_token", "llama_int8"})


def make(name: str, root: Path) -> Path:
    """The directory of the model; made on first use."""
    directory = root / name
    if (directory / "config.json").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    if name in _WEIGHTS:
        save_file(_QUANTISED[name](_llama_weights()), directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIGS[name], indent=1))
    return directory


def load_format(name: str) -> str:
    return "auto" if name in _WEIGHTS else "dummy"


def _llama_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return 0.12 * torch.randn(*shape, generator=generator)

    def norm() -> Tensor:
        return 1 + 0.2 * torch.randn(HIDDEN, generator=generator)

    weights = {"model.embed_tokens.weight": random(VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            weights[f"{at}self_attn.{part}_proj.weight"] = random(rows, HIDDEN)
        weights[f"{at}self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD)
        weights[f"{at}mlp.gate_proj.weight"] = random(INTER, HIDDEN)
        weights[f"{at}mlp.up_proj.weight"] = random(INTER, HIDDEN)
        weights[f"{at}mlp.down_proj.weight"] = random(HIDDEN, INTER)
        weights[f"{at}input_layernorm.weight"] = norm()
        weights[f"{at}post_attention_layernorm.weight"] = norm()
    weights["model.norm.weight"] = norm()
    weights["lm_head.weight"] = random(VOCAB, HIDDEN)
    return weights


def _half(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.to(torch.bfloat16) for name, weight in weights.items()}


def _static(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One scale for the weights that vLLM packs into one, and one given for activations."""
    most: dict[str, float] = {}
    for name, weight in weights.items():
        packed = _pack_of(name)
        most[packed] = max(most.get(packed, 0.0), weight.abs().max().item())
    out: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if not name.endswith("_proj.weight"):
            out[name] = weight.to(torch.bfloat16)
            continue
        scale = most[_pack_of(name)] / MOST
        out[name] = (weight / scale).clamp(-MOST, MOST).to(F8)
        out[f"{name}_scale"] = torch.tensor(scale)
        out[name.replace(".weight", ".input_scale")] = torch.tensor(INPUT_SCALE)
    return out


def _pack_of(name: str) -> str:
    for part in ("q_proj", "k_proj", "v_proj"):
        name = name.replace(part, "qkv")
    return name.replace("gate_proj", "gate_up").replace("up_proj", "gate_up")


def _by_row(dtype: torch.dtype, most: float) -> Any:
    def quantised(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for name, weight in weights.items():
            if not name.endswith("_proj.weight"):
                out[name] = weight.to(torch.bfloat16)
                continue
            scale = weight.abs().amax(-1, keepdim=True) / most
            codes = weight / scale
            out[name] = (codes if dtype.is_floating_point else codes.round()).to(dtype)
            out[f"{name}_scale"] = scale
        return out

    return quantised


_QUANTISED = {
    "llama": _half,
    "llama_fp8_static": _static,
    "llama_fp8_token": _by_row(F8, MOST),
    "llama_int8": _by_row(torch.int8, 127.0),
}
