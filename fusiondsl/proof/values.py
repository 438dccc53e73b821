"""Values of a body: a term together with what `~` gives of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusiondsl.diagnostics.source import Span
from fusiondsl.ir.program import OpDecl
from fusiondsl.proof.formats import Formats
from fusiondsl.proof.known import Known
from fusiondsl.proof.terms import Pool, Term


class Unprovable(Exception):
    """Nothing can be said about a body; the message says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """`unrounded` is None where nothing was rounded; `dtype` is what types speak of."""

    term: Term
    unrounded: Term | None
    dtype: str

    @property
    def exact(self) -> Term:
        return self.term if self.unrounded is None else self.unrounded

    def skipping_rounding(self) -> Value:
        return Value(self.exact, None, self.dtype)

    def forgetting_rounding(self) -> Value:
        return Value(self.term, None, self.dtype)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a term comes from."""

    name: str | None
    """What the text calls it."""
    span: Span | None
    """The line that computes it, in a declaration or in the rule."""
    call: Span | None
    """The call of the rule that this line belongs to."""


@dataclass
class Context:
    """What one proof shares between both sides."""

    ops: Mapping[str, OpDecl]
    dtype_sets: Mapping[str, tuple[str, ...]]
    formats: Formats = field(default_factory=Formats)
    pool: Pool = field(default_factory=Pool)
    known: Known = field(default_factory=Known)
