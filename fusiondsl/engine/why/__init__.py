"""Why rules do not fire: the engine's own checks, run without stopping at the first failure."""

from __future__ import annotations

from fusiondsl.engine.why.answer import Answer, Cause, Edit, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.ask import why

__all__ = ["Answer", "Cause", "Edit", "RuleAnswer", "SiteAnswer", "why"]
