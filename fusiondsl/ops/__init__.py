"""What declarations become at run time: registered torch ops, fakes, references, kernel calls."""

from fusiondsl.ops.dispatch import MissingKernelError, reference_ops
from fusiondsl.ops.references import axiom
from fusiondsl.ops.registry import overload, register

__all__ = ["MissingKernelError", "axiom", "overload", "reference_ops", "register"]
