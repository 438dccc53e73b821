"""What is proved exact is exact: both meanings give the same bits, whatever goes in."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusiondsl.analysis.modules import Loader
from fusiondsl.diagnostics.diagnostic import Diagnostics, Severity
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Program
from fusiondsl.ops import reference
from fusiondsl.ops.context import Context
from fusiondsl.proof import Level, Prover, Verdict
from fusiondsl.rules import analyse_loaded
from tests.proof.programs import Tree, trees, written

TEXT = """
op one(x: D[T, 4], y: D[T, 4], w: D[4]) -> (z: D[T, 4]) {{
  means {{ z = (({0}) + y).to(D) }}
}}
op other(x: D[T, 4], y: D[T, 4], w: D[4]) -> (z: D[T, 4]) {{
  means {{ z = (({1}) + y).to(D) }}
}}
rule same(x: D[T, 4], y: D[T, 4], w: D[4]) {{
  match {{ z = one(x, y, w) }}
  replace {{ z = other(x, y, w) }}
  where {{ D in ({2}) }}
}}
"""
"""Adding `y` gives numbers and narrow tensors the shape of the result."""

HALVES = (("bf16", torch.bfloat16), ("f16", torch.float16))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 1e-7, 6e4, -6e4, float("inf"), float("nan"), 0.1, -2.7)
EXAMPLES = 80


def checked(one: str, other: str, dtypes: str = "bf16, f16") -> tuple[Program, Verdict]:
    loader = Loader(Diagnostics())
    loader.add_source(Source("same.fuse", TEXT.format(one, other, dtypes)))
    found = Diagnostics()
    program = analyse_loaded(loader, found)
    errors = [d for d in found if d.severity is Severity.ERROR]
    wrong = [d for d in errors if d.code not in ("FD315", "FD318")]
    assert not wrong, wrong
    return program, Prover(program).rule(program.rules[0])


def results(program: Program, name: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    found = reference.run(program.ops[name], Context.of(program), inputs)["z"]
    assert found is not None
    return found


def inputs(dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    chosen = random.Random(seed)

    def values(count: int) -> torch.Tensor:
        numbers = [chosen.choice((*SPECIAL, chosen.gauss(0, 2))) for _ in range(count)]
        return torch.tensor(numbers).to(dtype)

    return {"x": values(20).view(5, 4), "y": values(20).view(5, 4), "w": values(4)}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Zeros by sign; one NaN is as good as another."""
    a, b = a.float(), b.float()
    signs = (torch.signbit(a) == torch.signbit(b)) | a.isnan()
    return (
        a.dtype == b.dtype and torch.equal(a.nan_to_num(7), b.nan_to_num(7)) and bool(signs.all())
    )


@given(trees(), st.randoms(use_true_random=False), st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, deadline=None)
def test_exact_is_bitwise(tree: Tree, choices: random.Random, seed: int) -> None:
    one = written(tree, choices.randrange)
    other = written(tree, choices.randrange)
    program, verdict = checked(one, other)
    if verdict.level is not Level.EXACT:
        return
    for _, dtype in HALVES:
        given_values = inputs(dtype, seed)
        left, right = (results(program, name, given_values) for name in ("one", "other"))
        assert same_bits(left, right), f"{one}\n{other}"


def test_the_property_says_something() -> None:
    """Random pairs of texts are often different texts, and still often proved exact."""
    levels: Counter[tuple[Level, bool]] = Counter()

    @given(trees(), st.randoms(use_true_random=False))
    @settings(max_examples=80, deadline=None, database=None, derandomize=True)
    def count(tree: Tree, choices: random.Random) -> None:
        one, other = (written(tree, choices.randrange) for _ in range(2))
        levels[checked(one, other)[1].level, one == other] += 1

    count()
    assert levels[Level.EXACT, False] >= 5
    assert levels[Level.DIFFERS, False] >= 5


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("x + y", "y + x", "exact"),
        ("square(x)", "x * x", "exact"),
        ("x ** 2", "square(-x)", "exact"),
        ("x - y", "x + -y", "exact"),
        ("x * -2.0", "-(x * 2.0)", "exact"),
        ("x.to(f32).to(D)", "x", "exact"),
        ("silu(x)", "x.to(f32) / (exp(-x.to(f32)) + 1)", "up to {round}"),
        ("silu(x)", "(x.to(f32) / (exp(-x.to(f32)) + 1)).to(D)", "exact"),
        ("abs(x).to(f32)", "abs(x.to(f32))", "exact"),
        ("(x + y).to(f32)", "x.to(f32) + y.to(f32)", "up to {round}"),
        (
            "x.to(f32) + (y.to(f32) + w.to(f32))",
            "(x.to(f32) + y.to(f32)) + w.to(f32)",
            "up to {assoc}",
        ),
        ("x + (y + w)", "(x + y) + w", "up to {round, assoc}"),
        ("x.to(f32) / y.to(f32)", "x.to(f32) * reciprocal(y.to(f32))", "up to {recip}"),
        ("x / y", "x * reciprocal(y)", "up to {round, recip}"),
        ("sigmoid(x.to(f32))", "1.0 / (exp(-x.to(f32)) + 1)", "up to {recip}"),
        ("exp(x.to(f32))", "exp2(x.to(f32) * 1.442695)", "up to {round}"),
        ("rsqrt(x.to(f32))", "1.0 / sqrt(x.to(f32))", "up to {recip}"),
        ("x + zeros_like(x)", "x", "up to {neg_zero}"),
        ("abs(x) + zeros_like(x)", "abs(x)", "exact"),
        ("x - zeros_like(x)", "x", "exact"),
        ("maximum(x, y)", "maximum(y, x)", "up to {neg_zero}"),
        ("mean(x.to(f32), -1).view(T, 1)", "mean(x.to(f32), -1, keepdim = true)", "exact"),
        ("round?(x + y)", "x + y", "up to {round}"),
        ("round?(x + y)", "round?(x + y)", "up to {round}"),
        ("exp(x[.., :4])", "exp(x)[.., :4]", "exact"),
        ("pad(x, 1, 2, 0.0)[.., 1:5]", "x", "exact"),
        ("pad(x, 1, 2, 0.0)[.., 1:5]", "pad(x, 0, 1, 3.0)[.., :4]", "exact"),
        ("cat([x, y], -1)[.., 2:6]", "cat([x, y], -1)[.., 1:7][.., 1:5]", "exact"),
    ],
)
def test_verdicts(one: str, other: str, verdict: str) -> None:
    assert str(checked(one, other)[1]) == verdict
