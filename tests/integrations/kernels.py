"""Stands for a kernel package."""

from __future__ import annotations

import torch


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
