"""Diagnostics: located findings with stable codes, and how they are printed."""

from __future__ import annotations

from fusiondsl.diagnostics.diagnostic import (
    Diagnostic,
    Diagnostics,
    FusionError,
    Label,
    Severity,
)
from fusiondsl.diagnostics.source import Source, Span

__all__ = ["Diagnostic", "Diagnostics", "FusionError", "Label", "Severity", "Source", "Span"]
