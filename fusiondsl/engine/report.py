"""What applying rules to a graph did, and why a site was left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Protocol


class RefusalKind(Enum):
    """Why a rule did not fire at a site."""

    STRUCTURE = "structure"
    CONSTANT = "constant"
    DTYPE = "dtype"
    SHAPE = "shape"
    LAYOUT = "layout"
    DIFFERENCE = "difference"
    PREDICATE_FALSE = "predicate false"
    PREDICATE_UNKNOWN = "predicate unknown"
    EXTRA_USER = "extra user"
    LOST = "lost to rule"
    EFFECT = "effect"
    ENVIRONMENT = "environment"
    GRAPH_PASS = "needs the graph pass"


@dataclass(frozen=True, slots=True)
class Fired:
    """One rewritten site."""

    rule: str
    node: str
    """Name of the node the match was anchored at, as it was before the rewrite."""
    forms: tuple[str, ...]
    """Spelling of each semantic op, as `rms_norm:vllm_ir`."""
    new_nodes: tuple[str, ...]
    differs: tuple[str, ...] = ()
    """Named differences of this site's spelling from what the rule says, beyond its proof."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One site where a rule came close and did not fire."""

    rule: str
    node: str
    kind: RefusalKind
    message: str
    label: str | None = None
    """Label of the condition, where one is to blame."""
    matched: int = 0
    """How many of the rule's calls stood there."""
    calls: int = 0
    """How many calls the rule's source has."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}: {self.kind.value}: {self.message}"


@dataclass(frozen=True, slots=True)
class Ineligible:
    """A rule that cannot fire for this target at all."""

    rule: str
    message: str
    label: str | None = None


class NearMiss(Protocol):
    """A stopped match program, kept without the graph and spelled out on demand."""

    def refusals(self) -> Iterable[Refusal]: ...


@dataclass(frozen=True)
class Report:
    """The outcome of one `apply`."""

    fired: tuple[Fired, ...] = ()
    settled: tuple[Refusal, ...] = ()
    """Refusals of sites whose whole source stood there."""
    near: tuple[NearMiss, ...] = ()
    """Places where part of a source stood; `refused` spells them out."""
    ineligible: tuple[Ineligible, ...] = ()
    nodes_before: int = 0
    nodes_after: int = 0
    counts: dict[str, int] = field(init=False)
    """Rewritten sites by rule, only rules that fired."""

    def __post_init__(self) -> None:
        counts = Counter(site.rule for site in self.fired)
        object.__setattr__(self, "counts", dict(sorted(counts.items())))

    @cached_property
    def refused(self) -> tuple[Refusal, ...]:
        """Every site where a rule was tried and did not fire."""
        done = {(site.rule, site.node) for site in self.fired}
        refused = {(r.rule, r.node): r for r in self.settled if (r.rule, r.node) not in done}
        for miss in self.near:
            for refusal in miss.refusals():
                key = (refusal.rule, refusal.node)
                known = refused.get(key)
                if key not in done and (known is None or known.matched < refusal.matched):
                    refused[key] = refusal
        return tuple(refused.values())

    def refusals_of(self, rule: str) -> tuple[Refusal, ...]:
        return tuple(r for r in self.refused if r.rule == rule)

    def close(self) -> tuple[Refusal, ...]:
        """Refusals worth showing: the whole source stood there, or more than one call of it."""
        return tuple(
            r for r in self.refused if r.kind is not RefusalKind.STRUCTURE or r.matched > 1
        )

    def __str__(self) -> str:
        lines = [f"nodes: {self.nodes_before} -> {self.nodes_after}"]
        lines += [f"fired {count:4d}  {rule}" for rule, count in self.counts.items()]
        lines += [f"refused     {refusal}" for refusal in self.close()]
        lines += [f"ineligible  {item.rule}: {item.message}" for item in self.ineligible]
        return "\n".join(lines)
