"""From syntax trees to the checked program: names, types, lints and the order of rules."""

from __future__ import annotations

from fusiondsl.analysis.program import analyse

__all__ = ["analyse"]
