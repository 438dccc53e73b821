"""What a proof says about a rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from fusiondsl.diagnostics.source import Span
from fusiondsl.ir.program import UNREAD

ORDER = ("round", "assoc", "recip", "reduce_order", "neg_zero", "amax_floor", "saturate", UNREAD)
"""Every named difference, in the order it is listed."""


class Level(Enum):
    """How much is known about a rule before anything runs."""

    EXACT = "exact"
    DIFFERS = "up to"
    UNPROVED = "not proved"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why there is no proof, or where one difference first shows."""

    message: str
    refuted: bool = False
    """Both sides are known, and they part; otherwise one of them is not known."""
    output: str | None = None
    source: str = ""
    """What the matched graph computes there."""
    target: str = ""
    source_span: Span | None = None
    target_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One replaced value."""

    name: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A difference that the text of an op or a form names, or that a form was found to have."""

    kind: str
    owner: str
    """Who differs, as a diagnostic says it."""
    span: Span | None = None
    """The call of the rule that brings it in."""
    owner_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`differences` is the worst over all outputs, admitted forms and declarations."""

    level: Level
    differences: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    declared: tuple[Declared, ...] = ()
    because: Cause | None = None

    def __str__(self) -> str:
        if self.because is not None:
            return f"not proved, because {self.because.message}"
        if not self.differences:
            return "exact"
        return f"up to {{{', '.join(self.differences)}}}"


def listed(kinds: Iterable[str]) -> tuple[str, ...]:
    """Differences in their usual order, each once."""
    found = set(kinds)
    return tuple(kind for kind in ORDER if kind in found)
