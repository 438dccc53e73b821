"""Answers as data: the sites of rules, and all that keeps a rule from firing at one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fusiondsl.diagnostics.source import Span

CODES: dict[str, str] = {
    "structure": "another operation, or none, stands where the rule wants one",
    "constant": "a literal or an argument differs",
    "dtype": "a value has another dtype",
    "fp8-flavour": "a value is FP8 in another flavour",
    "shape": "a size or rank does not fit",
    "layout": "strides differ from what is wanted",
    "difference": "the spelling differs in numerics by more than the rule allows",
    "predicate-false": "a condition does not hold",
    "predicate-unknown": "a condition may or may not hold for the sizes that can occur",
    "extra-user": "a value that would disappear has another reader",
    "effect": "memory is written, or a resource used, in between",
    "lost-to-rule": "a better rule took the same operations",
    "already-fused": "what the rule writes stands there already",
    "environment": "the target lacks a capability, or it is not known whether it has it",
    "needs-the-graph-pass": "only the graph pass can rewrite this",
}
"""Every code of a cause. They are stable."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that keeps a rule from firing."""

    code: str
    message: str
    node: str | None = None
    """The node of the graph to look at."""
    field: str | None = None
    """What about it: an argument, a name of the rule, a reader, a fact, a rule."""
    expected: str | None = None
    found: str | None = None
    label: str | None = None
    """Of the condition, where one is to blame."""
    span: Span | None = None
    """The place in the rule."""
    source: str | None = None
    """The node's line in the model."""
    call: int | None = None
    """Which call of the rule's source it is about, where it is about one."""
    because: tuple[Cause, ...] = ()
    """Why what is found is not a spelling of what is expected."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change that was tried: with it, the rule fires at the site."""

    text: str
    span: Span | None = None
    """Where in the rule; None where the change is one of the command line."""


@dataclass(frozen=True, slots=True)
class SiteAnswer:
    """One place where a rule fires or comes close."""

    node: str
    fired: bool
    matched: int
    calls: int
    causes: tuple[Cause, ...] = ()
    """All there are, the first cause first; empty where the rule fires."""
    edits: tuple[Edit, ...] = ()
    """All of them together make the rule fire here; empty where none was found."""
    nodes: tuple[str, ...] = ()
    """The nodes that stand for calls of the rule."""
    source: str | None = None
    """The line in the model of `node`."""
    whole: bool = True
    """No operation of the source is missing."""
    part: float = 1.0
    """How much of the source stands there; views, slices and the like weigh less than ops."""
    differs: tuple[str, ...] = ()
    """Where the rule fires: what the spelling there differs by, beyond the proof of the rule."""

    @property
    def is_near(self) -> bool:
        """More than half of the source stands there, and the rule does not fire."""
        return not self.fired and 2 * self.matched > self.calls

    @property
    def is_fused(self) -> bool:
        """What the rule writes stands there."""
        return not self.matched and any(c.code == "already-fused" for c in self.causes)


@dataclass(frozen=True, slots=True)
class Group:
    """Sites of one rule where the same things are in the way."""

    sites: tuple[SiteAnswer, ...]

    @property
    def first(self) -> SiteAnswer:
        return self.sites[0]


@dataclass(frozen=True, slots=True)
class RuleAnswer:
    """What one rule does in a graph."""

    rule: str
    sites: tuple[SiteAnswer, ...] = ()
    """Best first."""
    causes: tuple[Cause, ...] = ()
    """What keeps the rule from firing anywhere, and what there is to say where nothing is near."""
    span: Span | None = None

    @property
    def fired(self) -> tuple[SiteAnswer, ...]:
        return tuple(site for site in self.sites if site.fired)

    @property
    def near(self) -> tuple[SiteAnswer, ...]:
        return tuple(site for site in self.sites if not site.fired)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The sites that come close, those with the same causes together."""
        return groups_of(self.near)


def groups_of(sites: Iterable[SiteAnswer]) -> tuple[Group, ...]:
    grouped: dict[tuple[Any, ...], list[SiteAnswer]] = {}
    for site in sites:
        key = (site.matched, *(_alike(cause) for cause in site.causes))
        grouped.setdefault(key, []).append(site)
    return tuple(Group(tuple(members)) for members in grouped.values())


def _alike(cause: Cause) -> tuple[Any, ...]:
    """What two causes have in common where only the nodes differ."""
    field = None if cause.code == "extra-user" else cause.field
    if cause.expected is None and cause.found is None and cause.code not in _ABOUT_NODES:
        return cause.code, field, cause.label, cause.message
    return cause.code, field, cause.label, cause.expected, cause.found, str(cause.span)


_ABOUT_NODES = frozenset({"structure", "extra-user", "effect", "already-fused"})
"""Causes whose messages name nodes."""


@dataclass(frozen=True)
class Answer:
    """What all rules that were asked about do in one graph."""

    rules: tuple[RuleAnswer, ...] = field(default=())

    def of(self, rule: str) -> RuleAnswer:
        return next(answer for answer in self.rules if answer.rule == rule)

    def __str__(self) -> str:
        from fusiondsl.engine.why.text import lines

        return "\n".join(lines(self))
