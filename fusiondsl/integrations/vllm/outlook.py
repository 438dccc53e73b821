"""What an engine of vLLM has in its graphs, as far as its configuration says so beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusiondsl.engine.prospects import Surroundings
from fusiondsl.target import Answer

EXPERTS, LATENT, HEAD_NORMS, OWN_FP8, SECTIONS = range(5)
"""What a model may do beside attention and a gated MLP: experts, latent attention, norms of queries
and keys, values in FP8 though it is not quantised, positions in several sections."""

MODELS: Mapping[str, frozenset[int]] = {
    "DeepseekV2ForCausalLM": frozenset({EXPERTS, LATENT, OWN_FP8}),
    "DeepseekV3ForCausalLM": frozenset({EXPERTS, LATENT, OWN_FP8}),
    "Gemma2ForCausalLM": frozenset(),
    "Gemma3ForCausalLM": frozenset({HEAD_NORMS}),
    "GemmaForCausalLM": frozenset(),
    "GraniteForCausalLM": frozenset(),
    "LlamaForCausalLM": frozenset(),
    "MistralForCausalLM": frozenset(),
    "MixtralForCausalLM": frozenset({EXPERTS}),
    "Phi3ForCausalLM": frozenset(),
    "Qwen2ForCausalLM": frozenset(),
    "Qwen2MoeForCausalLM": frozenset({EXPERTS}),
    "Qwen3ForCausalLM": frozenset({HEAD_NORMS}),
    "Qwen3MoeForCausalLM": frozenset({EXPERTS, HEAD_NORMS}),
}
"""What vLLM 0.32's own models do. Nothing is assumed of those that are not here."""

KEYS: Mapping[str, frozenset[int]] = {
    "index_topk": frozenset({HEAD_NORMS, OWN_FP8}),
    "mrope_section": frozenset({SECTIONS}),
    "qk_norm": frozenset({HEAD_NORMS}),
    "use_qk_norm": frozenset({HEAD_NORMS}),
    "xdrope_section": frozenset({SECTIONS}),
}
"""What a key in the model's configuration adds."""

CUT = (
    "vllm::unified_attention_with_output",
    "vllm::unified_mla_attention_with_output",
    "vllm::unified_kv_cache_update",
    "vllm::unified_mla_kv_cache_update",
)
"""Some of the ops at which vLLM cuts graphs, unless Inductor does or it is told otherwise."""

PLAIN_CACHES = frozenset({"auto", "bfloat16", "float16", "half"})
"""Dtypes of key-value caches that are not quantised."""

_EXPERT_OPS = ("_moe_C::*", "vllm::*moe*", "vllm::*topk*")
_LATENT_OPS = ("vllm::*mla*",)
_ROTARY_OPS = ("_C::rotary_embedding", "vllm::rocm_aiter_triton_rotary_embedding", "vllm::mrope")
_AITER_OPS = ("vllm::rocm_aiter_*", "vllm_aiter::*")
_QUANT_OPS = (
    "_C::*fp8*",
    "_C::*fp4*",
    "_C::*int8*",
    "vllm::gemm_with_dynamic_quant",
    "vllm::rocm_aiter_*quant*",
)
_QUANTISED = ("fp8", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "i8")


@dataclass(frozen=True)
class Engine:
    """An engine that is not there yet. What is None is not known."""

    architectures: tuple[str, ...] = ()
    """Of the model and its draft model; none where one of them is not vLLM's own."""
    keys: frozenset[str] = frozenset()
    """Of the configurations of these models, at any depth, that say more than no."""
    hidden_sizes: frozenset[int] = frozenset()
    dtypes: tuple[str, ...] = ()
    """What activations may be."""
    ranks: int | None = None
    """How many there are, in parallel of any kind."""
    quantised: bool = True
    """Weights, activations or the key-value cache may be."""
    cut: tuple[str, ...] = ()
    """Torch ops at which graphs are cut, which are then in none."""
    rotary: bool | None = None
    """Rotary embeddings are custom ops."""
    aiter: bool | None = None
    answers: tuple[Answer, ...] = ()
    """To extern predicates, whatever the layers will be."""
    written: frozenset[str] = frozenset()
    """Ops that other rules of the engine write."""


def surroundings_of(engine: Engine) -> Surroundings:
    """What rules may reckon with."""
    does = _done_by(engine)
    return Surroundings(
        absent=tuple(_absent(engine, does)),
        absent_dtypes=tuple((dtype, _UNQUANTISED) for dtype in _without_quantisation(engine, does)),
        plain_heads=None if does is None or HEAD_NORMS in does else f"{_who(engine)} {_PLAIN}",
        reduced_rows=None if does is None else _reduced_rows(engine),
        answers=engine.answers,
        written=engine.written,
    )


_UNQUANTISED = "nothing in the model is quantised"
_PLAIN = "turns queries and keys as they are projected, without a norm"


def _done_by(engine: Engine) -> frozenset[int] | None:
    """What the models do; None where that is not known of all of them."""
    if not engine.architectures or not MODELS.keys() >= set(engine.architectures):
        return None
    own = [MODELS[name] for name in engine.architectures]
    return frozenset().union(*own, *[KEYS[key] for key in engine.keys & KEYS.keys()])


def _absent(engine: Engine, does: frozenset[int] | None) -> Iterator[tuple[str, str]]:
    for op in engine.cut:
        yield op, f"vLLM cuts its graphs at {op}"
    if engine.aiter is False:
        yield from ((op, "AITER is not installed") for op in _AITER_OPS)
    if does is None:
        return
    yield "_c10d_functional::all_reduce", "vLLM reduces by vllm::all_reduce"
    if engine.ranks == 1:
        yield "vllm::all_reduce", "the engine has one rank"
    if engine.rotary is False:
        why = "vLLM's custom op `rotary_embedding` is off, so that its parts are in the graph"
        yield from ((op, why) for op in _ROTARY_OPS)
    if SECTIONS not in does:
        yield "vllm::mrope", "the configuration of the model has no `mrope_section`"
    if EXPERTS not in does:
        yield from ((op, f"{_who(engine)} has no experts") for op in _EXPERT_OPS)
    if LATENT not in does:
        yield from ((op, f"{_who(engine)} has no latent attention") for op in _LATENT_OPS)
    if _without_quantisation(engine, does):
        yield from ((op, _UNQUANTISED) for op in _QUANT_OPS)


def _without_quantisation(engine: Engine, does: frozenset[int] | None) -> tuple[str, ...]:
    """Dtypes that only quantised values have."""
    return () if engine.quantised or does is None or OWN_FP8 in does else _QUANTISED


def _reduced_rows(engine: Engine) -> tuple[int, tuple[str, ...]] | None:
    """The width that all rows have that are reduced, and their dtypes."""
    if len(engine.hidden_sizes) != 1 or not engine.dtypes:
        return None
    (width,) = engine.hidden_sizes
    return width, engine.dtypes


def _who(engine: Engine) -> str:
    return " or ".join(dict.fromkeys(engine.architectures))


# --- a model's configuration ---------------------------------------------------------------------


def keys_of(config: Mapping[str, Any]) -> frozenset[str]:
    """Its keys at any depth, but for those of which the value says no."""
    found: set[str] = set()
    pending: list[Any] = [config]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            found.update(str(key) for key, value in item.items() if value not in (None, False))
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
    return frozenset(found)
