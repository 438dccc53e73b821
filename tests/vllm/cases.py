"""The cases of the differential test: sources, spellings, and what is planted in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tests.support.rocm_vllm import (
    CACHING,
    GATED_HEADS,
    GATED_WIDTH,
    HEAD_SIZE,
    HEADS,
    INTERLEAVED,
    KV_HEADS,
    TP_GROUP,
)
from tests.vllm import sources
from tests.vllm.sources import Change, Layers, Site

CDNA = ("gfx942", "gfx950")
RDNA = ("gfx1201",)
ARCHS = (*CDNA, *RDNA)
TOKENS = 6
EPSILONS = (1e-5, 1e-6)
"""For which vLLM has patterns."""

DEFAULTS: dict[str, list[list[Any]]] = {"vllm::rocm_aiter_fused_allreduce_rmsnorm": [[4, False]]}
"""Trailing arguments of vLLM's ops that may be left out."""

HIDDEN = 512
_X = (TOKENS, HIDDEN)
_W = (HIDDEN,)
_NORM = {"x": _X, "weight": _W}
_ADD = {"x": _X, "residual": _X, "weight": _W}
_PAD = (TOKENS, 2880)
_MLA = {"x": (TOKENS, 256 + 128 + 64), "q_weight": (256,), "kv_weight": (128,)}


@dataclass(frozen=True)
class Source:
    function: Callable[..., tuple[Tensor, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    passes: tuple[str, ...]
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    """Of inputs that have one whatever the activations have."""
    tokens: int = 2048
    """Up to how many vLLM runs the passes."""


_QUANT = ("RocmAiterRMSNormQuantFusionPass",)
_ALLREDUCE = ("RocmAiterAllReduceFusionPass",)
_BOTH = (*_ALLREDUCE, *_QUANT)
_SILU = ("RocmAiterSiluMulFp8GroupQuantFusionPass",)
_PADDING = ("RocmAiterTritonAddRMSNormPadFusionPass",)
_DUAL = ("MLADualRMSNormFusionPass",)
_CACHING = (CACHING,)

_HEADS = (TOKENS, GATED_HEADS, GATED_WIDTH)
_GATED = {"x": _HEADS, "z": _HEADS, "weight": (GATED_WIDTH,)}
_ROUTED = {"router": (8, 2880), "bias": (8,)}
_QKV = {
    "qkv": (TOKENS, (HEADS + 2 * KV_HEADS) * HEAD_SIZE),
    "q_weight": (HEAD_SIZE,),
    "k_weight": (HEAD_SIZE,),
    "cos_sin": (4096, HEAD_SIZE),
}
_SCALED = {**_QKV, "q_scale": (1,)}
_F32 = {"q_scale": torch.float32}

SOURCES = {
    source.function.__name__: source
    for source in (
        Source(sources.allreduce_norm, _NORM, _ALLREDUCE),
        Source(sources.allreduce_add_norm, _ADD, _ALLREDUCE),
        Source(sources.allreduce_gemma, _NORM, _ALLREDUCE),
        Source(sources.allreduce_add_gemma, _ADD, _ALLREDUCE),
        Source(sources.allreduce_norm_quant, _NORM, _BOTH),
        Source(sources.allreduce_add_norm_quant, _ADD, _BOTH),
        Source(sources.allreduce_add_norm_quant_indexer, {**_ADD, "indexer": (8, HIDDEN)}, _BOTH),
        Source(sources.norm_group_quant, _NORM, _QUANT),
        Source(sources.add_norm_group_quant, _ADD, _QUANT),
        Source(sources.norm_two_group_quants, _NORM, _QUANT),
        Source(sources.norm_token_quant, _NORM, _QUANT),
        Source(sources.add_norm_token_quant, _ADD, _QUANT),
        Source(sources.gated_norm_quant, _GATED, _QUANT),
        Source(sources.silu_mul_quant, {"x": (TOKENS, 2 * HIDDEN)}, _SILU),
        Source(
            sources.add_norm_pad,
            {"x": _PAD, "residual": _PAD, "weight": (2880,), **_ROUTED},
            _PADDING,
        ),
        Source(sources.mla_norms, _MLA, _DUAL),
        Source(sources.mla_norms_token_quant, _MLA, _DUAL),
        Source(sources.mla_norms_group_quant, _MLA, _DUAL),
        Source(sources.mla_norm_then_token_quant, _MLA, (*_QUANT, *_DUAL)),
        Source(sources.mla_norm_then_group_quant, _MLA, (*_QUANT, *_DUAL)),
        Source(sources.rope_attention, _QKV, _CACHING, tokens=256),
        Source(sources.mrope_attention, _QKV, _CACHING, tokens=256),
        Source(sources.rope_quant_attention, _SCALED, _CACHING, _F32, 256),
        Source(sources.mrope_quant_attention, _SCALED, _CACHING, _F32, 256),
    )
}


@dataclass(frozen=True)
class Case:
    source: str
    spelling: str = "aiter"
    planted: str = ""
    """What is unusual, in words."""
    eps: float = 1e-6
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    """Of inputs that are not bf16."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    read: str | None = None
    dead: int | None = None
    """The output that nobody reads."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Inputs that are another one."""
    without: str | None = None
    """The input that is None."""
    sizes: int = 1
    """How many placeholders there are for the number of tokens."""
    group: str = TP_GROUP
    width: int = 128
    neox: bool = True
    interleaved: bool = INTERLEAVED
    heads: int = HEADS
    static: bool = False
    archs: tuple[str, ...] = ARCHS

    @property
    def passes(self) -> tuple[str, ...]:
        return SOURCES[self.source].passes

    @property
    def tokens(self) -> range:
        return range(1, SOURCES[self.source].tokens + 1)

    @property
    def name(self) -> str:
        return "-".join(part for part in (self.source, self.spelling, self.planted) if part)


def source_and_inputs(case: Case) -> tuple[Callable[..., Any], list[Tensor]]:
    """A function for `torch.compile` and the tensors to trace it with."""
    source = SOURCES[case.source]
    shapes = {**source.shapes, **case.shapes}
    layers = Layers.of_width(case.width)
    names = [name for name in shapes if name not in case.given.keys() - case.given.values()]
    names = [name for name in names if name != case.without]

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        site = Site(
            layers,
            case.eps,
            case.spelling,
            case.changes,
            case.group,
            case.width,
            case.neox,
            case.interleaved,
            case.heads,
        )
        passed = dict(zip(names, tensors, strict=True))
        named = {name: passed.get(case.given.get(name, name)) for name in shapes}
        results = source.function(site, **named)
        kept = [value for place, value in enumerate(results) if place != case.dead]
        return (*kept, *([] if case.read is None else [site.seen[case.read]]))

    dtypes = {**case.dtypes, **source.dtypes}
    inputs = [torch.zeros(shapes[name], dtype=dtypes.get(name, torch.bfloat16)) for name in names]
    return run, inputs


def _spellings() -> Iterator[Case]:
    """Every source in every spelling that vLLM has a pattern for, with every epsilon it lists."""
    for name, eps in product(SOURCES, EPSILONS):
        for spelling in SPELLINGS.get(name, ("aiter",)):
            yield Case(name, spelling, named_eps(eps), eps)


def named_eps(eps: float) -> str:
    """In the name of a case that differs from others by its epsilon."""
    return f"eps {eps:g}"


_THREE = ("aiter", "vllm", "native")
SPELLINGS: dict[str, tuple[str, ...]] = {
    "norm_group_quant": _THREE,
    "add_norm_group_quant": _THREE,
    "norm_two_group_quants": _THREE,
    "norm_token_quant": _THREE,
    "add_norm_token_quant": _THREE,
    "gated_norm_quant": _THREE,
    "silu_mul_quant": _THREE,
    "allreduce_norm_quant": ("aiter", "native"),
    "allreduce_add_norm_quant": ("aiter", "native"),
    "mla_norm_then_token_quant": ("aiter", "native"),
}


# --- what is planted ------------------------------------------------------------------------------


def _doubled(value: Tensor) -> Tensor:
    return value * 2.0


def _rows(value: Tensor) -> Tensor:
    return value.reshape(-1, value.shape[-1])


def _halves(value: Tensor) -> Tensor:
    return value.reshape(-1, 2, value.shape[-1] // 2)


def _copied(value: Tensor) -> Tensor:
    return value.clone()


def _first_256(value: Tensor) -> Tensor:
    return value[..., :256]


_WEIGHTED = tuple(name for name, source in SOURCES.items() if "weight" in source.shapes)
_ADDING = tuple(name for name, source in SOURCES.items() if "residual" in source.shapes)
_REDUCING = tuple(name for name in SOURCES if name.startswith("allreduce"))
_QUANTISING = tuple(name for name in SOURCES if name.endswith("quant") and "mla" not in name)
_LATENT = tuple(name for name in SOURCES if name.startswith("mla"))
_TURNING = tuple(name for name in SOURCES if name.endswith("attention"))
_NORMING = ("norm_group_quant", "add_norm_group_quant", "norm_token_quant", "add_norm_token_quant")


def _between(source: str) -> str:
    """The place between the first and the second op."""
    if source in _REDUCING:
        return "reduced"
    if source in _LATENT:
        return "query"
    if source in _TURNING:
        return "key"
    return "activated" if source == "silu_mul_quant" else "normed"


def _all(source: str, dtype: torch.dtype) -> dict[str, torch.dtype]:
    return dict.fromkeys(SOURCES[source].shapes, dtype)


def _deep(source: str) -> dict[str, tuple[int, ...]]:
    """Activations of three dimensions."""
    shapes = SOURCES[source].shapes
    return {name: (s[0], 2, s[1]) for name, s in shapes.items() if s[0] == TOKENS}


def _wide(source: str, width: int) -> dict[str, tuple[int, ...]]:
    shapes = SOURCES[source].shapes
    return {name: (*s[:-1], width) for name, s in shapes.items() if s[-1] == HIDDEN}


def _planted_anywhere(source: str) -> Iterator[Case]:
    place = _between(source)
    yield Case(source, planted="eps 0.1", eps=0.1)
    yield Case(source, planted="static tokens", static=True)
    yield Case(source, planted="f16", dtypes=_all(source, torch.float16))
    yield Case(source, planted="f32", dtypes=_all(source, torch.float32))
    yield Case(source, planted=f"{place} doubled", changes={place: _doubled})
    yield Case(source, planted=f"{place} copied", changes={place: _copied})
    yield Case(source, planted=f"{place} read by another", read=place)


def _planted() -> Iterator[Case]:
    for source in SOURCES:
        yield from _planted_anywhere(source)
    for source in _WEIGHTED:
        yield Case(source, planted="f32 weight", dtypes={"weight": torch.float32})
    for source in _ADDING:
        yield Case(source, planted="x as residual", given={"residual": "x"})
        yield Case(source, planted="operands swapped", given={"x": "residual", "residual": "x"})
    for source in _REDUCING:
        yield Case(source, planted="another group", group="ep:0")
        yield Case(source, planted="520 columns", shapes=_wide(source, 520))
    for source in ("allreduce_norm", "allreduce_add_norm"):
        yield Case(source, planted="256 columns", shapes=_wide(source, 256))
    for source in _QUANTISING:
        yield Case(source, "native", planted="groups of 64", width=64)
    for source in (*_NORMING, "allreduce_norm", "allreduce_add_norm"):
        yield Case(source, planted="no weight", without="weight")
    # AITER's group quantisation takes rows only.
    for source in ("norm_token_quant", "add_norm_token_quant", *_REDUCING[:2]):
        yield Case(source, planted="three dimensions", shapes=_deep(source))
    for source in ("norm_token_quant", "add_norm_token_quant"):
        yield Case(source, planted="viewed as halves", changes={"normed": _halves})
    yield Case("add_norm_token_quant", "vllm", planted="two sizes", sizes=2)
    for source in _NORMING:
        rows = {"normed": _rows}
        yield Case(source, planted="viewed as rows", shapes=_deep(source), changes=rows)
        yield Case(source, planted="first columns", changes={"normed": _first_256})
        yield Case(source, planted="16384 columns", shapes=_wide(source, 16_384))
        yield Case(source, planted="500 columns", shapes=_wide(source, 500))
    for source in ("allreduce_add_norm", "allreduce_add_gemma"):
        yield Case(source, planted="residual dead", dead=1)
    for source in ("add_norm_group_quant", "add_norm_token_quant", "allreduce_add_norm_quant"):
        yield Case(source, planted="residual dead", dead=2)
        yield Case(source, planted="scale dead", dead=1)
    yield Case("norm_two_group_quants", planted="viewed as rows", shapes=_deep("norm_group_quant"),
               changes={"normed": _rows})  # fmt: skip
    yield Case("add_norm_pad", planted="router dead", dead=2)
    yield Case("add_norm_pad", planted="padded to 256", width=256)
    yield Case("add_norm_pad", planted="1000 columns", shapes={
        "x": (TOKENS, 1000), "residual": (TOKENS, 1000), "weight": (1000,), "router": (8, 1000)
    })  # fmt: skip
    for source in _LATENT:
        yield Case(source, planted="rest read by another", read="rest")
        yield Case(source, planted="latent doubled", changes={"latent": _doubled})
        yield Case(source, planted="rotary dead", dead=2 if source == "mla_norms" else 3)
    for source in _TURNING:
        yield Case(source, planted="adjacent columns", neox=False)
        yield Case(source, planted="query doubled", changes={"query": _doubled})
        yield Case(source, planted="query read by another", read="query")
        yield Case(source, planted="normed doubled", changes={"normed": _doubled})
        yield Case(source, planted="normed read by another", read="normed")
        yield Case(source, planted="other heads", heads=HEADS + 2)
    for source in ("mrope_attention", "mrope_quant_attention"):
        yield Case(source, planted="in a row", interleaved=not INTERLEAVED)


def _cases() -> Iterator[Case]:
    """Every spelling on every chip; what is planted on one, for the patterns are the same."""
    for case in _spellings():
        yield replace(case, archs=_chips(case))
    for case in _planted():
        yield replace(case, archs=("gfx950",))


def _chips(case: Case) -> tuple[str, ...]:
    """Where vLLM runs the passes."""
    return CDNA if _CDNA_ONLY & set(case.passes) else ARCHS


_CDNA_ONLY = {*_ALLREDUCE, *_DUAL, *_CACHING}
CASES = tuple(_cases())
