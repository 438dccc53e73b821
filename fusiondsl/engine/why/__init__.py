"""Why rules do not fire: the engine's own checks, run without stopping at the first failure."""

from __future__ import annotations

from fusiondsl.engine.why.answer import Answer, Cause, Edit, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.ask import why
from fusiondsl.engine.why.audit import Audit, Coverage, Region, audit_of
from fusiondsl.engine.why.contracts import Contracts, Failure, failures, read_contracts

__all__ = [
    "Answer",
    "Audit",
    "Cause",
    "Contracts",
    "Coverage",
    "Edit",
    "Failure",
    "Region",
    "RuleAnswer",
    "SiteAnswer",
    "audit_of",
    "failures",
    "read_contracts",
    "why",
]
