"""Rules in vLLM: by environment variables, in its configuration, or inside one of its passes.

Importing this imports neither vLLM nor torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusiondsl.integrations.vllm.build import fusion_pass
    from fusiondsl.integrations.vllm.passes import VllmFusionPass
    from fusiondsl.integrations.vllm.patterns import as_pattern_replacements
    from fusiondsl.integrations.vllm.reports import Piece, last_start
    from fusiondsl.integrations.vllm.settings import Settings

__all__ = [
    "Piece",
    "Settings",
    "VllmFusionPass",
    "as_pattern_replacements",
    "fusion_pass",
    "last_start",
]

_HOMES = {
    "Piece": "reports",
    "Settings": "settings",
    "VllmFusionPass": "passes",
    "as_pattern_replacements": "patterns",
    "fusion_pass": "build",
    "last_start": "reports",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
