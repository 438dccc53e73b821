"""Diagnostics as data: a stable code, a message, located labels, notes and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from fusiondsl.diagnostics.source import Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Label:
    """A secondary location: where the other half of the problem is."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Witness:
    """A graph that shows the problem, as FX prints one."""

    graph: str
    target: tuple[tuple[str, int | float | str | bool], ...] = ()
    """Facts of the target it is shown for, by name."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str
    """`FD` and three digits; a key of `fusiondsl.diagnostics.codes.CODES`."""
    severity: Severity
    message: str
    span: Span | None
    """The primary location, None only where no text exists (a missing file)."""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    witness: Witness | None = None


class Diagnostics:
    """Collects the diagnostics of one run, in the order they are found."""

    def __init__(self) -> None:
        self._items: dict[Diagnostic, None] = {}
        self._errors = 0

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: str | None = None,
        witness: Witness | None = None,
    ) -> None:
        found = (tuple(labels), tuple(notes), help, witness)
        self.add(Diagnostic(code, Severity.ERROR, message, span, *found))

    def warning(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: str | None = None,
        witness: Witness | None = None,
    ) -> None:
        found = (tuple(labels), tuple(notes), help, witness)
        self.add(Diagnostic(code, Severity.WARNING, message, span, *found))

    def add(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self._items:
            self._items[diagnostic] = None
            self._errors += diagnostic.severity is Severity.ERROR

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            self.add(diagnostic)

    @property
    def has_errors(self) -> bool:
        return self._errors > 0

    @property
    def error_count(self) -> int:
        return self._errors

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class FusionError(Exception):
    """The one exception of the public API: input that cannot be used, with its diagnostics.

    `exit_code` is what the command line returns: 2 for input that cannot be read, 3 for rules
    that do not compile, 4 for an environment that lacks what was required.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], exit_code: int = 3) -> None:
        self.diagnostics = tuple(diagnostics)
        self.exit_code = exit_code
        super().__init__("\n".join(f"{d.code}: {d.message}" for d in self.diagnostics))
