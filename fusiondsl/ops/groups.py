"""Process groups by name, as the host of this process keeps them: never made or destroyed here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed

from fusiondsl.ops.errors import OpError

_HOSTS = ("vllm.distributed.parallel_state", "aiter.dist.parallel_state")
"""Modules that keep their groups by name, as `tp:0`; nothing is imported to look there."""


class MissingGroupError(OpError):
    """No process group has the name that a collective is called with."""


def process_group(name: str, device: torch.device) -> distributed.ProcessGroup | None:
    """The group of that name for tensors on `device`; None where this process is the only one.

    It is looked up in every call, as the host may make its groups late and anew.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    found = _of_host(name, device) or _of_torch(name)
    if found is None and distributed.get_world_size() > 1:
        raise MissingGroupError(
            f"no process group is called `{name}` here, and {distributed.get_world_size()} "
            "processes run: without it the sum over them is not known"
        )
    return found


def _of_host(name: str, device: torch.device) -> distributed.ProcessGroup | None:
    for module in _HOSTS:
        groups: Mapping[str, Callable[[], Any]] = getattr(sys.modules.get(module), "_groups", {})
        coordinator = groups[name]() if name in groups else None
        if coordinator is not None:
            own = "cpu_group" if device.type == "cpu" else "device_group"
            group: distributed.ProcessGroup = getattr(coordinator, own)
            return group
    return None


def _of_torch(name: str) -> distributed.ProcessGroup | None:
    resolve: Callable[[str], Any] = vars(distributed.distributed_c10d)["_resolve_process_group"]
    try:
        group: distributed.ProcessGroup = resolve(name)
    except (LookupError, RuntimeError):
        return None
    return group
