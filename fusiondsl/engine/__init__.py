"""Matching and rewriting: the normal view, recognition, match programs, judgement, emission."""

from __future__ import annotations

from fusiondsl.engine.compile import PlanRow
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Fired, Ineligible, Refusal, RefusalKind, Report

__all__ = ["CompiledRules", "Fired", "Ineligible", "PlanRow", "Refusal", "RefusalKind", "Report"]
