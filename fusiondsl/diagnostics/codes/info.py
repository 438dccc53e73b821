"""What is known about one diagnostic code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """`title` names the problem in general; `explanation` says why it is one and what to do."""

    title: str
    explanation: str
    example: str | None = None
    """A text that provokes the diagnostic, where a short one exists."""
