"""What is known of axiom ops beyond their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Grouped:
    """An op that computes each group of adjacent elements of a row by itself.

    So it does not matter how whole groups are cut into rows. Its first tensor is the one that is
    cut; the others hold for all groups.
    """

    group: int | str
    """How many elements are a group, or the parameter that says it."""
    per_element: tuple[int | None, ...]
    """For each result: how many elements of a row one of its elements is for; None: a group."""
    only_where: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Values of parameters without which results lie otherwise in memory."""


GROUPED: Mapping[str, Grouped] = MappingProxyType(
    {
        "fp8_static_quant": Grouped(1, (1,)),
        "fp8_group_quant": Grouped("group_size", (1, None), {"column_major": False}),
        "mxfp4_quant": Grouped(32, (2, None)),
        "mxfp8_quant": Grouped(32, (1, None)),
    }
)
"""By the name of the op. Tests hold each against its reference."""
