"""What is fuzzed: inputs that follow from a seed, and what must hold for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

CORPUS = Path(__file__).parent / "corpus"


class Finding(AssertionError):
    """A check was stopped, or left a trace it must not leave."""


@dataclass(frozen=True)
class Case:
    """One input, as it stands in a file."""

    data: bytes
    suffix: str


@dataclass(frozen=True)
class Target:
    """A part of fusiondsl that reads input from anywhere."""

    name: str
    make: Callable[[Random], Case]
    check: Callable[[Case], str]
    """Raises for a finding; else what became of the input, in a word."""
    share: int
    """Of the time of a whole run."""
    outcomes: frozenset[str]
    """What becomes of some inputs of every run that is worth anything."""
    passes: int = 1
    """How often a check goes through its input."""
    smaller: Callable[[Case], Iterator[Case]] | None = None
    """Inputs that are this one with a part left out; None where any lines or bytes may go."""

    def case(self, seed: int, number: int) -> Case:
        """The same in every process."""
        return self.make(Random(f"{self.name} {seed} {number}"))

    def corpus(self) -> list[Path]:
        return sorted((CORPUS / self.name).glob("*"))


def stored(path: Path) -> Case:
    return Case(path.read_bytes(), path.suffix)
