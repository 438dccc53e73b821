"""Rules in vLLM: by environment variables, in its configuration, or inside one of its passes.

Importing this imports neither vLLM nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusiondsl.lazy import on_first_use

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

__getattr__ = on_first_use(__name__, _HOMES)
