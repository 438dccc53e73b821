"""Which end points rules put into real configurations, as JSON; run by a Python that has vLLM.

The argument is a directory for configurations of models.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor import models
from vllm.model_executor.models.registry import _VLLM_MODELS

from fusiondsl import Answer, Target, artifact, load
from fusiondsl.engine.prospects import without_prospects
from fusiondsl.integrations.vllm import VllmFusionPass, hooks
from fusiondsl.integrations.vllm.build import left_out_for
from fusiondsl.integrations.vllm.engine import engine_of
from fusiondsl.integrations.vllm.layers import answers_of
from fusiondsl.integrations.vllm.log import log
from fusiondsl.integrations.vllm.outlook import MODELS, surroundings_of
from tests.vllm.cpu_engine.models import CONFIGS

PACK = Path(__file__).parent / "packs" / "bounded.fuse"
MOST = 256
SHIPPED = "fusiondsl:rocm_aiter"
GPU = "env.arch=gfx950,env.aiter=true,env.aiter_dynamic_hidden=true"


def model(directory: Path, name: str) -> Path:
    """A model without weights."""
    found = directory / name
    found.mkdir(exist_ok=True)
    (found / "config.json").write_text(json.dumps(CONFIGS[name]))
    return found


def configured(model: Path, **others: Any) -> VllmConfig:
    given: dict[str, Any] = {
        "model": str(model),
        "skip_tokenizer_init": True,
        "max_model_len": 128,
        "max_num_batched_tokens": MOST,
        "load_format": "dummy",
        "distributed_executor_backend": "mp",
        "compilation_config": {"mode": 3, **others.pop("compilation", {})},
        **others,
    }
    return EngineArgs(**given).create_engine_config()


def pass_in(config: VllmConfig) -> VllmFusionPass:
    found = hooks.pass_of(config)
    assert found is not None
    return found


def seen(config: VllmConfig) -> dict[str, Any]:
    return {
        "ends": config.compilation_config.compile_ranges_endpoints,
        "left_out": left_out_for(pass_in(config), config),
        "digest": hooks.digest_of(pass_in(config), config),
    }


def with_rank(config: VllmConfig, rank: int) -> str:
    """What this rank would compare with the others."""
    config.parallel_config.rank = rank
    return hooks.digest_of(pass_in(config), config)


def on_a_gpu(config: VllmConfig) -> dict[str, str]:
    """What is left out where attention has its kernels."""
    engine = replace(engine_of(config), aiter=True)
    return without_prospects(pass_in(config).rules.compiled, surroundings_of(engine))


PARTITION = {"use_inductor_graph_partition": True}
ROTARY = {**PARTITION, "custom_ops": ["none", "+rotary_embedding"]}
CASES: dict[str, dict[str, Any]] = {
    "llama_fp8_static": {},
    "llama_fp8_static tp=2": {"tensor_parallel_size": 2},
    "llama_fp8_static partition": {"compilation": ROTARY},
    "llama": {},
    "llama f32 tp=2": {"tensor_parallel_size": 2, "dtype": "float32"},
    "llama fp8 cache": {"kv_cache_dtype": "fp8"},
    "qwen3 partition": {"compilation": ROTARY},
    "qwen3_moe tp=2": {"tensor_parallel_size": 2},
    "qwen3_moe partition": {"compilation": PARTITION},
    "deepseek": {},
    "deepseek partition": {"compilation": ROTARY},
    "llama pp=2": {"pipeline_parallel_size": 2},
    "llama dp=2": {"data_parallel_size": 2},
    "llama draft": {"compilation": ROTARY, "draft": "qwen3"},
    "stranger": {"compilation": PARTITION, "model_impl": "transformers"},
}


def all_cases(directory: Path) -> dict[str, Any]:
    os.environ["FUSIONDSL_RULES"] = str(PACK)
    hooks.install()
    found: dict[str, Any] = {}
    for name, options in CASES.items():
        config = configured(
            model(directory, name.split()[0].replace("stranger", "llama")),
            **_with_draft(directory, **options),
        )
        found[name] = seen(config)
        if config.parallel_config.tensor_parallel_size == 2:
            found[name]["ranks"] = [with_rank(config, rank) for rank in (0, 1)]
    found["contradicted"] = contradicted(directory)
    os.environ.update(FUSIONDSL_RULES=SHIPPED, FUSIONDSL_FACTS=GPU)
    for name in ("llama_fp8_static partition", "qwen3 partition", "deepseek partition"):
        config = configured(model(directory, name.split()[0]), **CASES[name])
        left = [*on_a_gpu(config)]
        found[f"shipped, {name}"] = {
            "turning": [rule for rule in left if rule.startswith("qk_norm")],
            "ends": config.compilation_config.compile_ranges_endpoints,
        }
    return {**found, **known_of_vllm(config)}


def contradicted(directory: Path) -> dict[str, Any]:
    """What becomes of an artifact whose answers are not those of the layers."""
    wrong = (Answer("custom_op", False), Answer("quantization", True), Answer("is_mine", True))
    packed = directory / "contradicted.fused"
    artifact.save(packed, load(PACK).program, Target(answers=wrong))
    os.environ["FUSIONDSL_RULES"] = str(packed)
    logged: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    log().addHandler(handler)
    found: dict[str, Any] = {}
    for name in ("llama_fp8_static partition", "llama"):
        config = configured(model(directory, name.split()[0]), **CASES[name])
        target = pass_in(config).target
        answered = answers_of(pass_in(config).program, target.answers, config)
        found[name] = {
            **seen(config),
            "kept": [answer.predicate for answer in target.answers],
            "custom": [answer.value for answer in answered if answer.predicate == "custom_op"],
        }
    log().removeHandler(handler)
    return {**found, "logged": [text for text in logged if "artifact" in text]}


def _with_draft(directory: Path, draft: str | None = None, **options: Any) -> dict[str, Any]:
    if draft is None:
        return options
    own = {"model": str(model(directory, draft)), "method": "draft_model"}
    return {**options, "speculative_config": {**own, "num_speculative_tokens": 2}}


def known_of_vllm(config: VllmConfig) -> dict[str, Any]:
    compilation = config.compilation_config
    hashes = []
    for ends in ([16, MOST], [MOST]):
        compilation.compile_ranges_endpoints = ends
        hashes.append(config.compute_hash())
    modules = {name: _VLLM_MODELS[name][0] for name in MODELS}
    home = Path(models.__file__).parent
    texts = {name: (home / f"{module}.py").read_text() for name, module in modules.items()}
    return {"hashes": hashes, "sources": texts}


if __name__ == "__main__":
    print(json.dumps(all_cases(Path(sys.argv[1]))))
