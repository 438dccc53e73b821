"""Proofs: whether the two sides of a rule compute the same, and up to which named differences."""

from __future__ import annotations

from fusiondsl.proof.prove import Prover
from fusiondsl.proof.verdict import Cause, Level, Output, Verdict

__all__ = ["Cause", "Level", "Output", "Prover", "Verdict"]
