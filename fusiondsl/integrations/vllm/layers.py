"""What vLLM and its layers answer to extern predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from fusiondsl import ir
from fusiondsl.aiter.tree import is_installed
from fusiondsl.integrations.vllm.log import log
from fusiondsl.target import Answer, Fact

if TYPE_CHECKING:
    from vllm.config import VllmConfig

Asked: TypeAlias = "Callable[[VllmConfig], Iterable[tuple[dict[str, Fact], bool]]]"
"""Gives arguments of a predicate and what it is for them."""

Foreseen: TypeAlias = "Callable[[VllmConfig], Iterable[tuple[dict[str, Fact] | None, bool]]]"
"""The same before there are layers, whatever these will be; None for any arguments."""

_ANSWERS: dict[str, Asked] = {}
_FORESEEN: dict[str, Foreseen] = {}


def answers(predicate: str, *, foreseen: Foreseen | None = None) -> Callable[[Asked], Asked]:
    """Makes a function the one that answers `predicate`, when the layers of the model are there.

    It must give the same on every rank. `foreseen` gives what is certain before.
    """

    def register(asked: Asked) -> Asked:
        _ANSWERS[predicate] = asked
        _FORESEEN.pop(predicate, None)
        if foreseen is not None:
            _FORESEEN[predicate] = foreseen
        return asked

    return register


def foreseen_answers(program: ir.Program, config: VllmConfig) -> tuple[Answer, ...]:
    """What can be answered before the model has layers."""
    return tuple(
        Answer(name, value, args)
        for name in sorted(program.predicates.keys() & _FORESEEN.keys())
        for args, value in _FORESEEN[name](config)
    )


def not_asked_of_layers(given: Iterable[Answer]) -> tuple[Answer, ...]:
    """Those answers that stay when the model has layers.

    Nothing may be decided by another one before, such as where compile ranges end.
    """
    return tuple(answer for answer in given if answer.predicate not in _ANSWERS)


def answers_of(
    program: ir.Program, given: Iterable[Answer], config: VllmConfig
) -> tuple[Answer, ...]:
    """What was answered before, and the answers to all predicates that somebody answers."""
    found = [*not_asked_of_layers(given)]
    for name in sorted(program.predicates.keys() & _ANSWERS.keys()):
        found += [Answer(name, value, args) for args, value in _ANSWERS[name](config)]
    return tuple(found)


def _custom_ops(config: VllmConfig) -> Iterator[tuple[dict[str, Fact], bool]]:
    """`custom_op(name: str)`: vLLM uses the custom op, not its decomposition."""
    from vllm.model_executor.custom_op import op_registry

    compilation = config.compilation_config
    named = {name[1:] for name in compilation.custom_ops if name.startswith(("+", "-"))}
    for name in sorted({*op_registry, *named}):
        yield {"name": name}, compilation.is_custom_op_enabled(name)


def _quantization(config: VllmConfig) -> Iterator[tuple[dict[str, Fact], bool]]:
    """`quantization(method: str)`: the model is quantised by this method of vLLM."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    used = None if config.model_config is None else config.model_config.quantization
    for method in sorted(QUANTIZATION_METHODS):
        yield {"method": method}, method == used


answers("custom_op", foreseen=_custom_ops)(_custom_ops)
answers("quantization", foreseen=_quantization)(_quantization)


def _without_kernels(config: VllmConfig) -> Iterator[tuple[None, bool]]:
    """No attention of vLLM's own has these kernels elsewhere than on AMD GPUs, with AITER."""
    from vllm.platforms import current_platform

    if current_platform.is_out_of_tree():
        return
    if not current_platform.is_rocm() or not is_installed():
        yield None, False


@answers("has_qk_norm_rope_kv_cache_update", foreseen=_without_kernels)
def _qk_norm_rope(config: VllmConfig) -> Iterator[tuple[dict[str, Fact], bool]]:
    yield from _of_attention(config, "fused_qk_norm_rope_kvcache_supported")


@answers("has_qk_norm_mrope_kv_cache_update", foreseen=_without_kernels)
def _qk_norm_mrope(config: VllmConfig) -> Iterator[tuple[dict[str, Fact], bool]]:
    yield from _of_attention(config, "fused_qk_norm_mrope_kvcache_supported")


def _attention_layers(config: VllmConfig) -> list[tuple[str, Any]]:
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention import Attention

    layers: dict[str, Any] = get_layers_from_vllm_config(config, Attention)
    return sorted(layers.items())


def _of_attention(config: VllmConfig, method: str) -> Iterator[tuple[dict[str, Fact], bool]]:
    """What the implementation of every attention layer says."""
    for name, layer in _attention_layers(config):
        says = getattr(layer.impl, method, None)
        same = getattr(layer, "head_size_v", layer.head_size) == layer.head_size
        args = {
            "l": name,
            "heads": layer.num_heads,
            "kv_heads": layer.num_kv_heads,
            "head_size": layer.head_size,
        }
        yield args, bool(same and says is not None and says())


_KEYS_FROM_CACHE = {
    "vllm.v1.attention.backends.rocm_aiter_unified_attn.RocmAiterUnifiedAttentionImpl": True,
    # Tokens of a prompt attend to the keys they come with.
    "vllm.v1.attention.backends.rocm_aiter_fa.AiterFlashAttentionImpl": False,
}
"""What the code of attention in vLLM 0.32 does; another class, or a subclass, may do otherwise."""


@answers("keys_from_cache")
def _keys_from_cache(config: VllmConfig) -> Iterator[tuple[dict[str, Fact], bool]]:
    """No answer where a layer has another implementation, or is no decoder's."""
    from fusiondsl.integrations.vllm.engine import is_known_release

    if not is_known_release():
        return
    found: dict[str, bool] = {}
    for name, layer in _attention_layers(config):
        kind = type(layer.impl)
        known = _KEYS_FROM_CACHE.get(f"{kind.__module__}.{kind.__qualname__}")
        if known is None or layer.attn_type != "decoder":
            # A graph may stand for any layer, so nothing is known of one of them alone.
            what = f"{kind.__qualname__} as {layer.attn_type}"
            log().debug("keys_from_cache is not known: %s is %s", name, what)
            return
        found[name] = known
    for name, known in found.items():
        yield {"l": name}, known
