"""Our logger: a child of vLLM's, whose handlers and levels it has."""

from __future__ import annotations

import logging


def log() -> logging.Logger:
    return logging.getLogger("vllm.fusiondsl")
