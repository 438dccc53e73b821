"""What moves where a condition permits it: the moves keep every bit, and need their conditions."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

from fusiondsl.analysis.modules import Loader
from fusiondsl.decl.axioms import GROUPED
from fusiondsl.diagnostics.diagnostic import Diagnostics, Severity
from fusiondsl.diagnostics.render import render_all
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Program
from fusiondsl.ops import reference
from fusiondsl.ops.context import Context
from fusiondsl.proof import Level, Prover, Verdict
from fusiondsl.rules import analyse_loaded

SPECIAL = (0.0, -0.0, 1e-12, 6e4, -6e4, float("inf"), float("nan"), 0.1)


def checked(text: str) -> tuple[Program, Verdict]:
    loader = Loader(Diagnostics())
    loader.add_source(Source("moves.fuse", text))
    found = Diagnostics()
    program = analyse_loaded(loader, found)
    errors = [d for d in found if d.severity is Severity.ERROR and d.code != "FD318"]
    assert not errors, render_all(errors)
    return program, Prover(program).rule(program.rules[0])


@dataclass(frozen=True)
class Quant:
    """A call of an op of `GROUPED`, and the types of its results for rows of `R` and `W`."""

    call: str
    results: str
    group: int


QUANTS = {
    "fp8_static_quant": [Quant("fp8_static_quant({x}, s, f8e4m3fn)", "f8e4m3fn[{R}, {W}]", 1)],
    "fp8_group_quant": [
        Quant(
            f"fp8_group_quant({{x}}, {group}, {dtype}, {flags})",
            f"{dtype}[{{R}}, {{W}}], f32[{{R}}, {{W}} / {group}]",
            group,
        )
        for group in (8, 32)
        for dtype in ("f8e4m3fn", "f8e4m3fnuz")
        for flags in ("false, false", "false, true", "true, false")
    ],
    "mxfp4_quant": [
        Quant(f'mxfp4_quant({{x}}, "{mode}")', "u8[{R}, {W} / 2], u8[{R}, {W} / 32]", 32)
        for mode in ("even", "round_up", "half_up")
    ],
    "mxfp8_quant": [Quant("mxfp8_quant({x})", "f8e4m3fn[{R}, {W}], u8[{R}, {W} / 32]", 32)],
}

TEXT = """
import "fusiondsl:ops/quant_fp8.fuse"
import "fusiondsl:ops/quant_mx.fuse"

op before(x: bf16[{rows}, {width}], s: f32[1]) -> ({old}) {{
  means {{ {names} = {viewed} }}
}}
op behind(x: bf16[{rows}, {width}], s: f32[1]) -> ({old}) {{
  means {{
    {inner} = {plain}
    {views}
  }}
}}
rule same(x: bf16[{rows}, {width}], s: f32[1]) {{
  match {{ {names} = before(x, s) }}
  replace {{ {names} = behind(x, s) }}
}}
"""


def text_of(quant: Quant, rows: int, width: int, other_rows: int) -> str:
    """A quantisation of a view, and the views of a quantisation."""
    other = rows * width // other_rows
    kinds = quant.results.format(R=other_rows, W=other).split("], ")
    kinds = [kind if kind.endswith("]") else f"{kind}]" for kind in kinds]
    names = [f"r{i}" for i in range(len(kinds))]
    shapes = [kind[kind.index("[") + 1 : -1] for kind in kinds]
    return TEXT.format(
        rows=rows,
        width=width,
        old=", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True)),
        names=", ".join(names),
        inner=", ".join(f"i{n}" for n in names),
        viewed=quant.call.format(x=f"x.view({other_rows}, {other})"),
        plain=quant.call.format(x="x"),
        views="; ".join(f"{n} = i{n}.view({s})" for n, s in zip(names, shapes, strict=True)),
    )


def results(program: Program, name: str, x: torch.Tensor) -> list[torch.Tensor]:
    given = {"x": x, "s": torch.tensor([0.37])}
    found = reference.run(program.ops[name], Context.of(program), given)
    return [value.contiguous().view(torch.uint8) for value in found.values() if value is not None]


def test_every_grouped_op_is_tried() -> None:
    assert QUANTS.keys() == GROUPED.keys()


@pytest.mark.parametrize("name", sorted(GROUPED))
def test_regrouping_keeps_every_bit(name: str) -> None:
    chosen = random.Random(name)
    exact = 0
    for quant in QUANTS[name]:
        for _ in range(6):
            heads, groups, tokens = (chosen.choice((1, 2, 3, 4)) for _ in range(3))
            width, rows = groups * quant.group, heads * tokens
            program, verdict = checked(text_of(quant, rows, width, tokens))
            exact += verdict.level is Level.EXACT
            if verdict.level is not Level.EXACT:
                continue
            numbers = [chosen.choice((*SPECIAL, chosen.gauss(0, 3))) for _ in range(rows * width)]
            x = torch.tensor(numbers).to(torch.bfloat16).view(rows, width)
            one, other = (results(program, op, x) for op in ("before", "behind"))
            assert all(map(torch.equal, one, other)), quant
    assert exact >= 6


def test_columns_of_scales_are_not_regrouped() -> None:
    columns = Quant("fp8_group_quant({x}, 8, f8e4m3fn, true)", QUANT_TYPES, 8)
    program, verdict = checked(text_of(columns, 4, 16, 2))
    assert verdict.level is Level.UNPROVED
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    (codes, scales), (other_codes, other_scales) = (
        results(program, op, x) for op in ("before", "behind")
    )
    assert torch.equal(codes, other_codes)
    assert not torch.equal(scales, other_scales)


QUANT_TYPES = "f8e4m3fn[{R}, {W}], f32[{R}, {W} / 8]"

SYMBOLIC = """
import "fusiondsl:ops/quant_fp8.fuse"

rule same(x: bf16[h.., H], T: int, N: int) {{
  match {{
    flat = x.view(T, N)
    q, s = fp8_group_quant(flat, 128, f8e4m3fn)
  }}
  replace {{
    codes, scales = fp8_group_quant(x, 128, f8e4m3fn)
    q = codes.view(T, N)
    s = scales.view(T, N / 128)
  }}
  where {{ {where} }}
}}
"""


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ("H % 128 == 0; N % 128 == 0", None),
        ("H % 128 == 0 and N % 256 == 0", None),
        ("H == 512; N % 128 == 0", None),
        ("H % 128 == 0; N == 4 * H", None),
        ("H % 128 == 0", "nothing says that `128` divides `N`"),
        ("N % 128 == 0", "nothing says that `128` divides `H`"),
        ("H % 64 == 0; N % 128 == 0", "nothing says that `128` divides `H`"),
        ("H % 128 == 0 or N == 8; N % 128 == 0", "nothing says that `128` divides `H`"),
        ("H % 128 == 1; N % 128 == 0", "nothing says that `128` divides `H`"),
        ("H // 128 > 1; N % 128 == 0", "nothing says that `128` divides `H`"),
    ],
)
def test_regrouping_needs_whole_groups(where: str, missing: str | None) -> None:
    _, verdict = checked(SYMBOLIC.format(where=where))
    proved = [output.differences for output in verdict.outputs]
    if missing is None:
        assert proved == [(), ()]
    else:
        assert not proved
        assert str(verdict).endswith(missing)


PADDED = """
op source(x: bf16[T, H], a: int, b: int) -> (y: bf16[T, H]) {{
  means {{ y = neg(x) }}
}}
op target(x: bf16[T, H], a: int, b: int) -> (y: bf16[T, H]) {{
  means {{
    p = pad(x, a, b, 0.0)
    y = neg(p[.., {start}:{stop}])
  }}
}}
rule same(x: bf16[T, H], a: int, b: int) {{
  match {{ y = source(x, a, b) }}
  replace {{ y = target(x, a, b) }}
  where {{ {where} }}
}}
"""


@pytest.mark.parametrize(
    ("start", "stop", "where", "exact"),
    [
        ("a", "a + H", "a >= 0; b >= 0", True),
        ("a", "a + H", "a > 3; 2 <= b", True),
        ("a", "a + H", "a == 4; b == 0", True),
        ("a", "a + H", "a >= 0", False),
        ("a", "a + H", "b >= 0", False),
        ("a", "a + H", "a >= -1; b >= 0", False),
        ("b", "b + H", "a >= 0; b >= 0", False),
        ("b", "b + H", "a >= 0; b == a", True),
        ("b", "b + H", "a >= 0; a - b == 0", True),
    ],
)
def test_padding_is_cut_off(start: str, stop: str, where: str, exact: bool) -> None:
    _, verdict = checked(PADDED.format(start=start, stop=stop, where=where))
    assert (verdict.level is Level.EXACT) is exact, verdict


@pytest.mark.parametrize(("a", "b"), [(0, 0), (2, 3), (0, 5), (-1, 2), (3, -2)])
def test_a_negative_padding_is_another_tensor(a: int, b: int) -> None:
    x = torch.arange(1.0, 9.0).view(1, 8)
    cut = torch.nn.functional.pad(x, (a, b))[..., a : a + 8]
    assert torch.equal(cut, x) is (a >= 0 and b >= 0)
