"""Collectives over the process groups of the host, or the ranks that `reference_world` supplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import distributed

from fusiondsl.ops.groups import process_group
from fusiondsl.ops.references import axiom

World: TypeAlias = Callable[[torch.Tensor, str], Sequence[torch.Tensor]]
"""Maps this rank's tensor and the group to the tensors of all ranks, in rank order."""

_worlds: list[World] = []


@contextmanager
def reference_world(world: World) -> Iterator[None]:
    """Inside the block, reference collectives see the ranks that `world` supplies."""
    _worlds.append(world)
    try:
        yield
    finally:
        _worlds.pop()


@axiom("all_reduce")
def all_reduce(x: torch.Tensor, group: str) -> torch.Tensor:
    """The sum over ranks: added in f32 in rank order, rounded once."""
    ranks = _worlds[-1](x, group) if _worlds else _gathered(x, group)
    if len(ranks) == 1:
        return x.clone()
    total = ranks[0].float()
    for other in ranks[1:]:
        total = total + other.float()
    return total.to(x.dtype)


def _gathered(x: torch.Tensor, group: str) -> Sequence[torch.Tensor]:
    """The tensors of all ranks, which is `x` alone where there is one process."""
    members = process_group(group, x.device)
    if members is None:
        return (x,)
    # as bytes, because not every backend moves every dtype
    raw = x.contiguous().flatten().view(torch.uint8)
    ranks = [torch.empty_like(raw) for _ in range(members.size())]
    distributed.all_gather(ranks, raw, group=members)
    return [rank.view(x.dtype).view(x.shape) for rank in ranks]
