"""Stands for a kernel package: functions that `impl` clauses of the tests name."""

from __future__ import annotations

import torch


def add_scaled(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return x + y * scale


def nested(x: torch.Tensor) -> tuple[tuple[torch.Tensor, torch.Tensor], None, torch.Tensor]:
    return (x * 2, x.sum(-1, keepdim=True)), None, x * 3


def into(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> None:
    out.copy_(x * 2)
    scale.fill_(7.0)


def in_place(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    residual += x
    return residual


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def raw_bytes(x: torch.Tensor) -> torch.Tensor:
    return torch.full(x.shape, 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)


def too_wide(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, x), -1)


class Family:
    @staticmethod
    def negate(x: torch.Tensor) -> torch.Tensor:
        return -x


def memory(x: torch.Tensor) -> torch.Tensor:
    """The first elements of the storage, row by row: right for dense input alone."""
    return torch.as_strided(x, x.shape, (x.shape[1], 1)).clone()


def memory_by_column(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, x.shape, (1, x.shape[0])).contiguous()


def bump_memory(x: torch.Tensor) -> None:
    torch.as_strided(x, (x.numel(),), (1,)).add_(1)
