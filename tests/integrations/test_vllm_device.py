"""Compute units, as the driver says, with a driver that is stood in for. Needs no vLLM."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from fusiondsl.integrations.vllm.device import Units, compute_units, units_of_this_rank


def driver(monkeypatch: pytest.MonkeyPatch, *counts: object) -> list[str]:
    """Puts in place a driver of GPUs with these counts, and gives what is done with it."""
    done: list[str] = []
    module = ModuleType("amdsmi")
    functions = {
        "amdsmi_init": lambda: done.append("init"),
        "amdsmi_shut_down": lambda: done.append("shut down"),
        "amdsmi_get_processor_handles": lambda: list(range(len(counts))),
        "amdsmi_get_gpu_asic_info": lambda handle: {"num_compute_units": counts[handle]},
    }
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return done


def test_gpus_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    done = driver(monkeypatch, 304, 304)
    assert compute_units() == Units(304)
    assert done == ["init", "shut down"]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((304, 80), "the GPUs differ: 80 and 304"),
        ((), "amdsmi finds no GPU"),
        (("N/A",), "amdsmi does not say: `num_compute_units` is 'N/A'"),
        ((True,), "amdsmi does not say: `num_compute_units` is True"),
        ((0,), "amdsmi does not say: `num_compute_units` is 0"),
    ],
)
def test_what_is_no_number_for_all(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[object, ...], reason: str
) -> None:
    done = driver(monkeypatch, *counts)
    assert compute_units() == Units(None, reason)
    assert done == ["init", "shut down"]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    units = compute_units()
    assert units.count is None
    assert units.reason.startswith("amdsmi does not say: ")


def test_the_device_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        multi_processor_count = 304

    started = False
    monkeypatch.setattr(torch.version, "hip", "7.0", raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: Properties)
    assert units_of_this_rank() is None  # nothing is started to ask
    started = True
    assert units_of_this_rank() == 304
    monkeypatch.setattr(torch.version, "hip", None)
    assert units_of_this_rank() is None
