"""What only a device says: how many compute units it has, asked without starting its runtime."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CU_COUNT = "env.cu_count"


@dataclass(frozen=True)
class Units:
    """Compute units of every GPU; None, with the reason, where there is no such number."""

    count: int | None
    reason: str = ""


def compute_units() -> Units:
    """Of the GPUs of this machine, by its driver: vLLM forks, so that HIP must not be started.

    They have to be alike, for a rank may run on any of them.
    """
    try:
        found = sorted(set(_counts()))
    except Exception as error:  # whatever a driver that is not there raises
        return Units(None, f"amdsmi does not say: {str(error) or type(error).__name__}")
    if len(found) == 1:
        return Units(found[0])
    if not found:
        return Units(None, "amdsmi finds no GPU")
    return Units(None, f"the GPUs differ: {' and '.join(map(str, found))}")


def _counts() -> Iterator[int]:
    driver = import_module("amdsmi")
    driver.amdsmi_init()
    try:
        for handle in driver.amdsmi_get_processor_handles():
            count = driver.amdsmi_get_gpu_asic_info(handle).get("num_compute_units")
            if type(count) is not int or count < 1:
                raise ValueError(f"`num_compute_units` is {count!r}")
            yield count
    finally:
        driver.amdsmi_shut_down()


def units_of_this_rank() -> int | None:
    """Those of the device that a worker runs on, when its runtime has been started anyway."""
    import torch

    if torch.version.hip is None or not torch.cuda.is_initialized():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return int(properties.multi_processor_count)
