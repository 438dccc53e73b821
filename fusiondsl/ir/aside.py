"""What of a program only proofs, references and tests look at."""

from __future__ import annotations

from dataclasses import dataclass

from fusiondsl.ir.program import Example, Step


@dataclass(frozen=True, slots=True)
class Aside:
    """Meanings of ops and examples of rules, by their names."""

    means: dict[str, tuple[Step, ...]]
    examples: dict[str, tuple[Example, ...]]
