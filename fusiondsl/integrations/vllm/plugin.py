"""Entry point `vllm.general_plugins`: called in every process of vLLM, and cheap without rules."""

from __future__ import annotations

import os

RULES = "FUSIONDSL_RULES"
"""Rule files for all engines."""


def register() -> None:
    """Makes vLLM use the rules that `FUSIONDSL_RULES` names."""
    if os.environ.get(RULES):
        from fusiondsl.integrations.vllm.hooks import install

        install()
