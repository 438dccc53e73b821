"""fusiondsl dtype names and torch dtypes, both ways."""

from __future__ import annotations

from functools import lru_cache

import torch

from fusiondsl.decl.dtypes import DTYPES, FP8, fp8_of

_BY_NAME: dict[str, torch.dtype] = {
    name: getattr(torch, attribute)
    for name, (attribute, _, _) in DTYPES.items()
    if hasattr(torch, attribute)
}
_BY_TORCH: dict[torch.dtype, str] = {dtype: name for name, dtype in _BY_NAME.items()}

FP8_DTYPES: tuple[torch.dtype, ...] = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
"""What a value typed `fp8` may be."""


def to_torch(name: str, arch: str | None = None) -> torch.dtype:
    """The torch dtype called `name`; `fp8` is the flavour of `arch`."""
    return _BY_NAME[fp8_of(arch) if name == FP8 else name]


def from_torch(dtype: torch.dtype) -> str:
    """The fusiondsl name of a torch dtype, torch's own name where fusiondsl has none."""
    return _BY_TORCH.get(dtype, str(dtype).removeprefix("torch."))


def is_concrete(name: str) -> bool:
    """Whether `name` denotes exactly one dtype on every architecture."""
    return name in _BY_NAME


def is_half(dtype: torch.dtype) -> bool:
    return dtype in (torch.bfloat16, torch.float16)


@lru_cache(maxsize=1)
def device_arch() -> str | None:
    """The architecture of the first GPU as ROCm names it, None without one."""
    if torch.version.hip is None or not torch.cuda.is_available():
        return None
    name: str = torch.cuda.get_device_properties(0).gcnArchName
    return name.partition(":")[0]
