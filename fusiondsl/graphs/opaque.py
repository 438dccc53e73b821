"""Stand-ins for call targets that this process does not have."""

from __future__ import annotations

from typing import NoReturn

import torch


class OpaqueOp:
    """A function known by name only: it can be matched and printed, but never run.

    `name` is the target as FX prints it (`torch.ops.vllm.all_reduce.default`).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        module, _, last = name.rpartition(".")
        # FX writes a call target as `__module__.__name__`, and code that it compiles looks a name
        # below `torch` up again. An op that is missing there stays missing; any other function
        # must not be found, so it gets a name that FX binds to this object.
        self.__module__ = module if name.startswith("torch.ops.") else "opaque"
        self.__name__ = last
        self.__qualname__ = last

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{self.name} is not available in this process")

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueOp) and other.name == self.name

    def __hash__(self) -> int:
        return hash((OpaqueOp, self.name))

    def __reduce__(self) -> tuple[type[OpaqueOp], tuple[str]]:
        return OpaqueOp, (self.name,)

    @property
    def torch_name(self) -> str | None:
        """`namespace::op`, where the target is a torch op."""
        parts = self.name.split(".")
        if parts[:2] != ["torch", "ops"] or len(parts) < 4:
            return None
        return f"{parts[2]}::{parts[3]}"

    @property
    def overload(self) -> str | None:
        parts = self.name.split(".")
        return parts[4] if parts[:2] == ["torch", "ops"] and len(parts) > 4 else None


class OpaqueModule(torch.nn.Module):
    """A submodule whose code was not in the text."""

    def forward(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError("the submodule is not available")
