"""Run-time errors of fusiondsl ops, raised from inside a call."""

from __future__ import annotations


class OpError(RuntimeError):
    """A call of a fusiondsl op that cannot be carried out."""


class ArgumentError(OpError):
    """An argument does not have the declared dtype, rank or size, or a condition does not hold."""


class MissingKernelError(OpError):
    """No kernel of the op is available here, and reference implementations are not allowed."""


class KernelContractError(OpError):
    """A kernel returned something else than its declaration says."""
