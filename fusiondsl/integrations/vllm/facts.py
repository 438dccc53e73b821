"""Facts about the target from vLLM's configuration: the same on every rank."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fusiondsl.aiter.tree import is_installed
from fusiondsl.integrations.vllm.device import CU_COUNT, compute_units
from fusiondsl.integrations.vllm.log import log
from fusiondsl.target import Fact

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig

_AITER = ("amd-aiter", "aiter")
_DYNAMIC_HIDDEN = (0, 1, 12)
_GROUP_QUANT = (0, 1, 14)


def facts_of(config: VllmConfig) -> dict[str, Fact]:
    """What `config` and the installed packages say; what they do not say is left out.

    The process that makes the configuration may not touch a device: drivers are asked.
    """
    parallel = config.parallel_config
    found: dict[str, Fact | None] = {
        "env.vllm": True,
        "env.arch": _arch(),
        CU_COUNT: _units(),
        "env.tp_size": parallel.tensor_parallel_size,
        "env.tp_group": "tp:0",
        "model.max_tokens": config.scheduler_config.max_num_batched_tokens,
        **_aiter_facts(),
        **_model_facts(config),
    }
    return {name: value for name, value in sorted(found.items()) if value is not None}


def _arch() -> str | None:
    """The architecture as vLLM has found it, without features."""
    from vllm.platforms import current_platform

    if not current_platform.is_rocm():
        return None
    from vllm.platforms import rocm

    return str(rocm._GCN_ARCH).partition(":")[0] or None


def _units() -> int | None:
    """Compute units of a GPU, where all of them have as many."""
    from vllm.platforms import current_platform

    if not current_platform.is_rocm():
        return None
    units = compute_units()
    if units.count is None:
        log().info("fusiondsl: %s is not known: %s", CU_COUNT, units.reason)
    return units.count


def _aiter_facts() -> dict[str, Fact | None]:
    if not is_installed():
        return {"env.aiter": False}
    release = _aiter_release()
    return {
        "env.aiter": True,
        "env.aiter_dynamic_hidden": None if release is None else release >= _DYNAMIC_HIDDEN,
        "env.aiter_allreduce_group_quant": None if release is None else release >= _GROUP_QUANT,
    }


def _aiter_release() -> tuple[int, ...] | None:
    for name in _AITER:
        try:
            return _numbers(version(name))
        except PackageNotFoundError:
            continue
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """`0.1.14.dev3` as (0, 1, 14)."""
    numbers: list[int] = []
    for part in text.split(".")[:3]:
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _model_facts(config: VllmConfig) -> dict[str, Fact | None]:
    model = config.model_config
    if model is None:
        return {}
    draft = getattr(config.speculative_config, "draft_model_config", None)
    models = [one for one in (model, draft) if one is not None]
    return {
        "model.hidden_size": max(one.get_hidden_size() for one in models),
        "model.intermediate_size": _intermediate_size(model),
        "model.itemsize": model.dtype.itemsize,
    }


def _intermediate_size(model: ModelConfig) -> int | None:
    size: Any = getattr(model.hf_text_config, "intermediate_size", None)
    return size if isinstance(size, int) else None
