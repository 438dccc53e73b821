"""References of rotary embedding and of the key-value cache, next to other ways to compute them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fusiondsl.ops.references.attention import (
    LayerCache,
    attention,
    kv_cache_update,
    mrope,
    reference_caches,
    rotary_embedding,
)

T, HEADS, H = 5, 3, 8


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def table(rows: int, width: int) -> Tensor:
    angles = numbers(rows, width // 2)
    return torch.cat([angles.cos(), angles.sin()], -1)


def as_complex(x: Tensor, width: int, is_neox: bool) -> Tensor:
    part = x.view(T, -1, H)[..., :width]
    pairs = (
        part.unflatten(-1, (2, -1)).transpose(-1, -2) if is_neox else part.unflatten(-1, (-1, 2))
    )
    return torch.view_as_complex(pairs.contiguous())


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("width", [H, H // 2])
def test_a_pair_is_a_complex_number_that_is_turned(width: int, is_neox: bool) -> None:
    positions = torch.tensor([3, 0, 8, 3, 1])
    query, key, cos_sin = numbers(T, HEADS * H), numbers(T, H), table(9, width)
    factor = torch.complex(*cos_sin[positions].chunk(2, -1)).unsqueeze(1)
    turned = rotary_embedding(positions, query, key, cos_sin, H, is_neox)
    for before, after in zip((query, key), turned, strict=True):
        torch.testing.assert_close(
            as_complex(after, width, is_neox), as_complex(before, width, is_neox) * factor
        )
        rest = after.view(T, -1, H)[..., width:]
        assert torch.equal(rest, before.view(T, -1, H)[..., width:])


@pytest.mark.parametrize(
    ("interleaved", "axes"), [(False, [0, 1, 1, 2]), (True, [0, 1, 2, 0])], ids=["rows", "turns"]
)
def test_each_pair_has_the_position_of_its_section(interleaved: bool, axes: list[int]) -> None:
    """Four pairs; with turns, what is left of the height is for the time."""
    sections = (2, 1, 1) if interleaved else (1, 2, 1)
    positions = torch.randint(0, 9, (3, T), generator=torch.Generator().manual_seed(1))
    query, key, cos_sin = numbers(T, HEADS * H), numbers(T, H), table(9, H)
    q, k = mrope(positions, query, key, cos_sin, H, H, *sections, interleaved, True)
    for pair, axis in enumerate(axes):
        one_q, one_k = rotary_embedding(positions[axis], query, key, cos_sin, H, True)
        for got, wanted in ((q, one_q), (k, one_k)):
            columns = [pair, pair + H // 2]
            assert torch.equal(
                got.view(T, -1, H)[..., columns], wanted.view(T, -1, H)[..., columns]
            )


def cache(slots: list[int]) -> LayerCache:
    return LayerCache(
        torch.zeros(9, 1, H), torch.zeros(9, 1, H), torch.tensor(slots), torch.tensor([7, 2, 0, 4])
    )


def test_tokens_without_a_slot_are_not_written() -> None:
    keys, values = numbers(3, 1, H), numbers(3, 1, H) + 1
    there = cache([2, -1, 4])
    with reference_caches({"layers.0": there}):
        done = kv_cache_update(keys, values, "layers.0")
        kv_cache_update(keys, values, "layers.1")  # has no cache
    assert done.shape == (0,)
    assert torch.equal(there.keys[[2, 4]], keys[[0, 2]])
    assert torch.equal(there.values[[2, 4]], values[[0, 2]])
    assert there.keys[[0, 1, 3, 5, 6, 7, 8]].abs().sum() == 0


def test_attention_reads_the_cache_and_nothing_else() -> None:
    there = cache([0, 4, -1])
    there.keys.copy_(numbers(9, 1, H))
    there.values.copy_(numbers(9, 1, H) * 2)
    query, nothing = numbers(3, 2, H), torch.full((3, 1, H), torch.nan)
    with reference_caches({"layers.0": there}):
        result = attention(query, nothing, nothing, torch.empty(3, 2, H), "layers.0", None)
    for token, seen in ((0, [7, 2, 0]), (1, [7, 2, 0, 4])):
        expected = torch.nn.functional.scaled_dot_product_attention(
            query[token, :, None], there.keys[seen, 0], there.values[seen, 0]
        )
        torch.testing.assert_close(result[token], expected[:, 0])
    assert result[2].abs().sum() == 0


def test_without_caches_nothing_is_written_and_zeros_come_back() -> None:
    x = numbers(3, 1, H)
    kv_cache_update(x, x, "layers.0")
    assert torch.equal(attention(x, x, x, torch.ones(3, 1, H), "layers.0", None), x * 0)
