"""The closed list of primitives: the operations that need no declaration.

In a body they are written as operators, functions or torch-like methods; in the checked program
they are calls named `prim.<name>`. Dims and axes are normalised to negative numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    params: tuple[str, ...]
    """Tensor operands first, then attributes."""
    tensors: int
    """How many leading params are tensors (or scalars that broadcast)."""
    commutative: bool = False
    typing: str = "elementwise"
    """`elementwise`, `cast`, `reduce`, `view`, `slice`, `cat`, `create`, `matmul`."""


# `maybe_round` is `round?(x)`: a kernel may or may not round here. Only in `means`.


def _elementwise(name: str, *params: str, commutative: bool = False) -> Primitive:
    tensors = 2 if len(params) > 1 and params[1] == "y" else 1
    return Primitive(name, params, tensors, commutative)


PRIMITIVES: dict[str, Primitive] = {
    p.name: p
    for p in (
        _elementwise("add", "x", "y", commutative=True),
        _elementwise("sub", "x", "y"),
        _elementwise("mul", "x", "y", commutative=True),
        _elementwise("div", "x", "y"),
        _elementwise("maximum", "x", "y", commutative=True),
        _elementwise("minimum", "x", "y", commutative=True),
        _elementwise("pow", "x", "exponent"),
        _elementwise("neg", "x"),
        _elementwise("abs", "x"),
        _elementwise("exp", "x"),
        _elementwise("exp2", "x"),
        _elementwise("log2", "x"),
        _elementwise("sqrt", "x"),
        _elementwise("rsqrt", "x"),
        _elementwise("reciprocal", "x"),
        _elementwise("square", "x"),
        _elementwise("sigmoid", "x"),
        _elementwise("silu", "x"),
        _elementwise("relu", "x"),
        _elementwise("tanh", "x"),
        _elementwise("ceil", "x"),
        _elementwise("floor", "x"),
        _elementwise("round_even", "x"),
        _elementwise("clamp_min", "x", "min"),
        _elementwise("clamp_max", "x", "max"),
        _elementwise("maybe_round", "x"),
        Primitive("cast", ("x", "dtype"), 1, typing="cast"),
        Primitive("bitcast", ("x", "dtype"), 1, typing="cast"),
        Primitive("mean", ("x", "dim"), 1, typing="reduce"),
        Primitive("sum", ("x", "dim"), 1, typing="reduce"),
        Primitive("amax", ("x", "dim"), 1, typing="reduce"),
        Primitive("amin", ("x", "dim"), 1, typing="reduce"),
        Primitive("view", ("x", "shape"), 1, typing="view"),
        Primitive("slice", ("x", "dim", "start", "stop"), 1, typing="slice"),
        Primitive("cat", ("xs", "dim"), 0, typing="cat"),
        Primitive("pad", ("x", "before", "after", "value"), 1, typing="view"),
        Primitive("zeros", ("shape", "dtype"), 0, typing="create"),
        Primitive("zeros_like", ("x",), 1, typing="create"),
        Primitive("full", ("shape", "value", "dtype"), 0, typing="create"),
        Primitive("empty", ("shape", "dtype"), 0, typing="create"),
        Primitive("empty_like", ("x",), 1, typing="create"),
        Primitive("matmul", ("x", "y"), 2, typing="matmul"),
    )
}

METHODS: dict[str, str] = {
    "to": "cast",
    "float": "cast",
    "view": "view",
    "reshape": "view",
    "flatten": "view",
    "unsqueeze": "view",
    "squeeze": "view",
    "pow": "pow",
    "square": "square",
    "mean": "mean",
    "sum": "sum",
    "amax": "amax",
    "amin": "amin",
    "abs": "abs",
    "neg": "neg",
    "exp": "exp",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "sigmoid": "sigmoid",
    "clamp_min": "clamp_min",
    "clamp_max": "clamp_max",
    "clamp": "clamp",
}
"""Torch-like methods. `.float()` is `.to(f32)`; `.clamp(a, b)` is `clamp_max(clamp_min(x, a), b)`;
reductions take `keepdim = true`, which adds a `view`."""

FUNCTIONS: frozenset[str] = frozenset(PRIMITIVES) - {"cast", "slice", "maybe_round"} | {
    "split",
    "chunk",
    "clamp",
    "round?",
}
"""What a body may call as a function without a declaration. `split` and `chunk` become `slice`s."""

REDUCTIONS: frozenset[str] = frozenset(
    name for name, primitive in PRIMITIVES.items() if primitive.typing == "reduce"
)

CHEAP: frozenset[str] = frozenset({"prim.cast", "prim.view", "prim.slice"})
"""What a rule matches and simply leaves there where somebody else reads it too."""

OPERATORS: dict[str, str] = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow"}
"""Operators on tensors; `x ** 2` and `x * x` are `square`, which rounds the same."""
