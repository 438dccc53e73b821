"""Rotary embedding, and attention over the caches that `reference_caches` supplies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fusiondsl.ops.references import axiom


@dataclass(frozen=True)
class LayerCache:
    """What an attention layer has at run time: one sequence, and where its tokens are."""

    keys: torch.Tensor
    """(slots, heads, columns)."""
    values: torch.Tensor
    slots: torch.Tensor
    """The slot of each token of the batch, -1 for padding."""
    sequence: torch.Tensor
    """The slots of all tokens of the sequence, oldest first."""


_caches: list[Mapping[str, LayerCache]] = []


@contextmanager
def reference_caches(caches: Mapping[str, LayerCache]) -> Iterator[None]:
    """Inside the block, reference attention has the caches of these layers, by name."""
    _caches.append(caches)
    try:
        yield
    finally:
        _caches.pop()


def _cache_of(layer: Any) -> LayerCache | None:
    """None where there are no slots, as when the memory of a model is measured."""
    name = layer if isinstance(layer, str) else getattr(layer, "value", getattr(layer, "name", ""))
    return _caches[-1].get(name) if _caches else None


# --- rotary embedding ----------------------------------------------------------------------------


@axiom("rotary_embedding")
def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = cos_sin_cache[positions].float().chunk(2, -1)
    return _turned(query, cos, sin, head_size, is_neox), _turned(key, cos, sin, head_size, is_neox)


@axiom("mrope")
def mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    rotary_dim: int,
    section_t: int,
    section_h: int,
    section_w: int,
    interleaved: bool,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = torch.arange(rotary_dim // 2, device=query.device)
    if interleaved:
        height = (pairs % 3 == 1) & (pairs < 3 * section_h)
        width = (pairs % 3 == 2) & (pairs < 3 * section_w)
    else:
        height = (pairs >= section_t) & (pairs < section_t + section_h)
        width = pairs >= section_t + section_h
    axis = height.long() + 2 * width.long()
    cos, sin = (
        half.gather(0, axis.expand(1, *half.shape[1:]))[0]
        for half in cos_sin_cache[positions].float().chunk(2, -1)
    )
    return _turned(query, cos, sin, head_size, is_neox), _turned(key, cos, sin, head_size, is_neox)


def _turned(
    rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head_size: int, is_neox: bool
) -> torch.Tensor:
    """Every head of every row, in f32."""
    heads = rows.float().view(rows.shape[0], rows.shape[1] // head_size, head_size)
    width = 2 * cos.shape[-1]
    turning, rest = heads[..., :width], heads[..., width:]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if is_neox:
        a, b = turning.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = turning[..., ::2], turning[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([turned, rest], -1).view(rows.shape)


# --- the cache -----------------------------------------------------------------------------------


@axiom("kv_cache_update")
def kv_cache_update(key: torch.Tensor, value: torch.Tensor, layer: Any) -> torch.Tensor:
    cache = _cache_of(layer)
    if cache is not None:
        kept = cache.slots >= 0
        cache.keys[cache.slots[kept]] = key[kept].to(cache.keys.dtype)
        cache.values[cache.slots[kept]] = value[kept].to(cache.values.dtype)
    return key.new_empty(0)


@axiom("attention")
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    layer: Any,
    done: torch.Tensor | None,
) -> torch.Tensor:
    """Each token attends to those before it and to itself, all taken from the cache."""
    result = torch.zeros_like(output)
    cache = _cache_of(layer)
    if cache is None:
        return result
    sequence = cache.sequence.tolist()
    shared = query.shape[1] // cache.keys.shape[1]
    for token, slot in enumerate(cache.slots.tolist()):
        if slot < 0:
            continue
        seen = cache.sequence[: sequence.index(slot) + 1]
        keys, values = (
            rows[seen].float().repeat_interleave(shared, 1) for rows in (cache.keys, cache.values)
        )
        scores = torch.einsum("hc,shc->hs", query[token].float(), keys) * query.shape[-1] ** -0.5
        attended = torch.einsum("hs,shc->hc", scores.softmax(-1), values)
        result[token] = attended.to(result.dtype)
    return result
