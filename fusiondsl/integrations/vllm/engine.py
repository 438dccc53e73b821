"""What vLLM's configuration says of an engine's graphs: the same in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusiondsl.aiter.tree import is_installed
from fusiondsl.decl.dtypes import DTYPES
from fusiondsl.integrations.vllm.outlook import PLAIN_CACHES, Engine, keys_of

if TYPE_CHECKING:
    from vllm.config import CompilationConfig, ModelConfig, VllmConfig

_KNOWN_RELEASE = "0.32."
_OWN_MODELS = "vllm.model_executor.models."
_NAMES = {attribute: name for name, (attribute, *_) in DTYPES.items()}


def engine_of(config: VllmConfig) -> Engine:
    """The engine that `config` describes, which vLLM may not have completed yet."""
    models = _models(config)
    return Engine(
        architectures=_architectures(models),
        keys=frozenset(key for one in models for key in keys_of(one.hf_config.to_dict())),
        hidden_sizes=frozenset(one.get_hidden_size() for one in models),
        dtypes=tuple(
            dict.fromkeys(_NAMES[str(one.dtype).removeprefix("torch.")] for one in models)
        ),
        ranks=config.parallel_config.world_size_across_dp,
        quantised=_is_quantised(config, models),
        cut=_cut(config.compilation_config),
        rotary=_is_custom(config.compilation_config, "rotary_embedding"),
        aiter=is_installed(),
    )


def is_known_release() -> bool:
    """What is known of vLLM's code was read in this one's."""
    from vllm import __version__

    return str(__version__).startswith(_KNOWN_RELEASE)


def _models(config: VllmConfig) -> list[ModelConfig]:
    draft = getattr(config.speculative_config, "draft_model_config", None)
    return [one for one in (config.model_config, draft) if one is not None]


def _architectures(models: list[ModelConfig]) -> tuple[str, ...]:
    """Those of vLLM's own models, where all are: a plugin may have put another in its place."""
    names = tuple(one.architecture for one in models)
    return names if is_known_release() and all(map(_is_own, models)) else ()


def _is_own(model: ModelConfig) -> bool:
    registered = model.registry.models.get(model.architecture)
    return str(getattr(registered, "module_name", "")).startswith(_OWN_MODELS)


def _is_quantised(config: VllmConfig, models: list[ModelConfig]) -> bool:
    if config.cache_config is not None and config.cache_config.cache_dtype not in PLAIN_CACHES:
        return True
    said = [(m.quantization, m.quantization_config, _section(m)) for m in models]
    return any(value is not None for values in said for value in values)


def _section(model: ModelConfig) -> object:
    return getattr(model.hf_config, "quantization_config", None)


def _cut(compilation: CompilationConfig) -> tuple[str, ...]:
    """The ops at which vLLM will cut graphs: `set_splitting_ops_for_v1` comes later."""
    from vllm.config import CompilationMode

    partition = compilation.use_inductor_graph_partition
    if compilation.mode != CompilationMode.VLLM_COMPILE or partition is not False:
        return ()
    if compilation.splitting_ops is not None:
        return tuple(compilation.splitting_ops)
    if compilation.pass_config.fuse_attn_quant is not False:
        return ()
    updates = ("vllm::unified_kv_cache_update", "vllm::unified_mla_kv_cache_update")
    return (*compilation._attention_ops, *updates)


def _is_custom(compilation: CompilationConfig, op: str) -> bool | None:
    """None where the configuration does not say what holds for ops that it does not name."""
    if not {"all", "none"} & set(compilation.custom_ops):
        return None
    return bool(compilation.is_custom_op_enabled(op))
