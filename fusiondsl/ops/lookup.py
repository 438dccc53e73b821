"""Finding torch ops by declaration or name. Nothing is imported to find one."""

from __future__ import annotations

import torch

from fusiondsl.ir.program import OpDecl


def torch_overload(qualified: str, overload: str = "default") -> torch._ops.OpOverload | None:
    """The overload of `namespace::name`, None where no library has defined it."""
    namespace, _, name = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def declared_overload(decl: OpDecl) -> torch._ops.OpOverload | None:
    return torch_overload(decl.torch_name, decl.overload if decl.extern else "default")
