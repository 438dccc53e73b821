"""Random meanings: one expression, written in two ways that may or may not be the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

LEAVES = ("x", "y", "w.to(f32)", "2.5", "1")
UNARY = (
    "neg",
    "square",
    "abs",
    "sigmoid",
    "silu",
    "exp",
    "half",
    "wide",
    "mean",
    "maybe",
    "root",
    "cut",
)
BINARY = ("add", "sub", "mul", "div", "maximum")


@dataclass(frozen=True)
class Node:
    op: str
    args: tuple[Tree, ...]


Tree: TypeAlias = "Node | str"
Pick: TypeAlias = Callable[[int], int]
"""A number below its argument: which of several spellings is taken."""


def trees() -> st.SearchStrategy[Tree]:
    leaves: st.SearchStrategy[Tree] = st.sampled_from(LEAVES)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Node, st.sampled_from(UNARY), st.tuples(inner)),
            st.builds(Node, st.sampled_from(BINARY), st.tuples(inner, inner)),
        ),
        max_leaves=6,
    )


def written(tree: Tree, pick: Pick) -> str:
    """The text of an expression, in spellings that `pick` chooses."""
    if isinstance(tree, str):
        return tree
    args = [f"({written(arg, pick)})" for arg in tree.args]
    spellings = _SPELLINGS[tree.op](*args)
    return spellings[pick(len(spellings))]


def _unary(*spellings: str) -> Callable[[str], list[str]]:
    return lambda a: [s.replace("A", a) for s in spellings]


def _binary(*spellings: str) -> Callable[[str, str], list[str]]:
    return lambda a, b: [s.replace("A", "\0").replace("B", b).replace("\0", a) for s in spellings]


# The first spelling is the usual one; some of the others are the same, and some are nearly so.
_SPELLINGS: dict[str, Callable[..., list[str]]] = {
    "neg": _unary("-A", "-A", "A * -1.0", "0.0 - A", "-(-(-A))"),
    "square": _unary("square(x + A)", "(x + A) ** 2", "(A + x) * (x + A)", "square(-(x + A))"),
    "abs": _unary("abs(x * A)", "abs(-(x * A))", "abs(A * x)", "maximum(x * A, -(x * A))"),
    "sigmoid": _unary(
        "sigmoid(x + A)", "1.0 / (exp(-(x + A)) + 1)", "reciprocal(1 + exp(-(x + A)))"
    ),
    "silu": _unary(
        "silu(y * A)",
        "(y * A) / (exp(-(y * A)) + 1)",
        "(A * y) * sigmoid(y * A)",
        "(y * A) / (exp2((y * A) * -1.44269504089) + 1)",
    ),
    "exp": _unary("exp(x - A)", "exp(-(A - x))", "exp(x + -(y * 0.0 + A))"),
    "half": _unary(
        "(y + A).to(D)", "(y + A).to(f32).to(D)", "(y + A).to(D).to(f32).to(D)", "(y + A)"
    ),
    "wide": _unary("(x * A).to(f32)", "x.to(f32) * A", "(x.to(D) * A).to(f32).to(f32)"),
    "mean": _unary(
        "mean(x * A, -1, keepdim = true)",
        "mean(A * x, -1, keepdim = true)",
        "sum(x * A, -1, keepdim = true) / 4.0",
        "mean(x * A, -1, keepdim = true).view(T, 1)",
    ),
    "maybe": _unary("(x + A)", "(x + A)", "round?(x + A)"),
    "root": _unary("rsqrt(square(y + A) + 1.0)", "1.0 / (square(A + y) + 1.0) ** 0.5"),
    "cut": _unary(
        "(x + A)",
        "pad(x + A, 1, 2, 0.0)[.., 1:5]",
        "pad(x + A, 0, 3, 1.0)[.., :4]",
        "pad(x + A, 1, 2, 0.0)[.., 0:4]",
    ),
    "add": _binary("A + B", "B + A", "A - (0.0 - B)", "A + B + 0.0", "A + (B - 0.0)"),
    "sub": _binary("x * A - y * B", "x * A + -(y * B)", "-(B * y) + x * A", "-(y * B - x * A)"),
    "mul": _binary("(x * A) * B", "B * (A * x)", "x * (A * B)", "(x * (A)) * (B * 1.0)"),
    "div": _binary("(x + A) / (y + B)", "(A + x) / (B + y)", "(x + A) * reciprocal(y + B)"),
    "maximum": _binary("maximum(x + A, y + B)", "maximum(y + B, x + A)"),
}
