"""Symbolic sizes, what is known of them, and three-valued conditions over them. No torch."""

from fusiondsl.dims.dim import Dim, DimTooComplex
from fusiondsl.dims.dtypes import is_dtype, itemsize
from fusiondsl.dims.evaluate import (
    LookupTable,
    Scope,
    as_truth,
    constant_fold,
    equal,
    evaluate,
    truth,
)
from fusiondsl.dims.facts import NO_FACTS, Facts, Range
from fusiondsl.dims.functions import BUILTINS, Function
from fusiondsl.dims.names import children, names
from fusiondsl.dims.render import render
from fusiondsl.dims.solve import Equation, Mismatch, Solution, solve
from fusiondsl.dims.truth import Truth, all_of, any_of
from fusiondsl.dims.values import (
    PRESENT,
    UNKNOWN_VALUE,
    Invalid,
    Presence,
    Unknown,
    Value,
    Verdict,
    as_dim,
    kind_of,
    show,
)

__all__ = [
    "BUILTINS",
    "NO_FACTS",
    "PRESENT",
    "UNKNOWN_VALUE",
    "Dim",
    "DimTooComplex",
    "Equation",
    "Facts",
    "Function",
    "Invalid",
    "LookupTable",
    "Mismatch",
    "Presence",
    "Range",
    "Scope",
    "Solution",
    "Truth",
    "Unknown",
    "Value",
    "Verdict",
    "all_of",
    "any_of",
    "as_dim",
    "as_truth",
    "children",
    "constant_fold",
    "equal",
    "evaluate",
    "is_dtype",
    "itemsize",
    "kind_of",
    "names",
    "render",
    "show",
    "solve",
    "truth",
]
