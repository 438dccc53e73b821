"""Entry point `vllm.general_plugins`: called in every process of vLLM, and cheap without rules."""

from __future__ import annotations

import os
import sys
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

from fusiondsl.pause import collection_paused

RULES = "FUSIONDSL_RULES"
"""Rule files for all engines."""


def register() -> None:
    """Makes vLLM use the rules that `FUSIONDSL_RULES` names."""
    if os.environ.get(RULES):
        hooks().install()
    else:
        _wait()


def hooks() -> ModuleType:
    """What puts rules in. One run of the collector would walk all that vLLM has imported."""
    with collection_paused():
        return import_module(f"{__package__}.hooks")


def _wait() -> None:
    """The variable may be set between two engines of a process: no plugin is called again."""
    owner = getattr(sys.modules.get("vllm.config"), "VllmConfig", None)
    theirs = getattr(owner, "_set_compile_ranges", None)
    if owner is None or theirs is None:
        return

    @wraps(theirs)
    def asked(config: Any, *args: Any, **kwargs: Any) -> Any:
        if os.environ.get(RULES) and hooks().install():  # around this
            return config._set_compile_ranges(*args, **kwargs)
        return theirs(config, *args, **kwargs)

    owner._set_compile_ranges = asked
