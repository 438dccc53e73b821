"""Graphs that show an overlap: the reader reads them, and the engine does what is said of them."""

from __future__ import annotations

import pytest

import fusiondsl
from fusiondsl.analysis.overlay import overlays
from fusiondsl.analysis.rivals import Entry, Spelled, contested
from fusiondsl.analysis.side import Side
from fusiondsl.analysis.source import source_of
from fusiondsl.analysis.trial import Trial, find_trial
from fusiondsl.analysis.witness import witness_of
from fusiondsl.diagnostics.diagnostic import Diagnostic
from fusiondsl.diagnostics.render import render_all
from fusiondsl.graphs import read
from fusiondsl.ir.program import Program
from fusiondsl.ir.strata import strata
from tests.support.judge import CONTEST, checked, judge

SHIPPED = fusiondsl.load("fusiondsl:").program


def contests(program: Program) -> list[Trial]:
    """For all pairs of rules, in their order, one trial for each op that is written out."""
    levels = strata(program.rules, program.ops)
    entries = [Entry(source_of(r), i, levels[r.name]) for i, r in enumerate(program.rules)]
    spelled = Spelled(program)
    found: dict[tuple[str, ...], Trial] = {}
    for second in entries:
        for first in entries[: second.place]:
            if first.stratum != second.stratum:
                continue
            for left, right in spelled.pairs(first, second):
                ops = (left.spelled.partition(":")[0], right.spelled.partition(":")[0])
                key = (first.rule.name, second.rule.name, *ops)
                trial = None if key in found else first_trial(left, right, program)
                if trial is not None:
                    found[key] = trial
    return list(found.values())


def first_trial(left: Side, right: Side, program: Program) -> Trial | None:
    trials = (find_trial(o, program) for o in overlays(left, right) if contested(o))
    return next((trial for trial in trials if isinstance(trial, Trial)), None)


@pytest.mark.slow
def test_shipped_rules_contest_what_is_said() -> None:
    """Also pairs whose order is stated: the engine agrees about every one."""
    found = contests(SHIPPED)
    spelled = [bool(t.overlay.left.spelled or t.overlay.right.spelled) for t in found]
    assert set(spelled) == {True, False}
    for trial in found:
        witness = witness_of(trial, SHIPPED)
        assert witness is not None
        first, second = trial.overlay.left.rule, trial.overlay.right.rule
        assert judge(SHIPPED, witness, first, second) == CONTEST, (first.name, second.name)


OPS = """
op f(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op g(x: D[t.., H], n: int) -> (y: D[t.., H]) { means axiom }
op norm(x: D[t.., H], w: D[H]) -> (y: D[t.., H]) {
  means { y = relu(x) * w }
  form torch { y = relu(x) * w }
}
extern op ext.into(out result: D[t.., H], x: D[t.., H])
extern op ext.both_(inout x: D[t.., H], inout r: D[t.., H], eps: float)
extern predicate ready(n: int)
op k1(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op k2(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op k3(x: D[t.., H]) -> (y: D[t.., 1]) { means axiom }
op k22(x: D[t.., H]) -> (y: D[t.., H], z: D[t.., H]) { means axiom }
op kw2(x: D[t.., H], w: D[H]) -> (y: D[t.., H], z: D[t.., H]) { means axiom }
op kr(x: D[t.., H], r: D[t.., H]) -> (y: D[t.., H], z: D[t.., H]) { means axiom }
"""


def single(diagnostics: list[Diagnostic]) -> Diagnostic:
    assert [d.code for d in diagnostics] == ["FD405"]
    assert diagnostics[0].witness is not None
    return diagnostics[0]


PAIRS = [
    """
rule a(x: D[T, H]) { match { y = f(g(x, 1)) }; replace { y = k1(x) } }
rule b(x: D[t.., H]) { match { y = g(f(x), 1) }; replace { y = k2(x) } }
""",
    """
rule a(x: D[t.., H]) { match { v = g(x, 2); y = f(v) }; replace { v, y = k22(x) } }
rule b(x: D[t.., H], n: int) { match { v = g(x, n); y = relu(v) }
  replace { v, y = k22(x) }; where { n > 0; ready(n) } }
""",
    """
rule a(x: D[t.., H]) { match { v = ext.into(x); y = f(v) }
  replace { v, y = k22(x) } }
rule b(x: D[t.., H]) { match { v = ext.into(x); y = abs(v) }
  replace { v, y = k22(x) } }
""",
    """
rule a(x: bf16[t.., H], r: bf16[t.., H]) {
  match { y, z = ext.both_(x, r, 1e-6); v = f(y) }
  replace { v, z = kr(x, r) } }
rule b(x: D[t.., H], r: D[t.., H]) {
  match { y, z = ext.both_(x, r, 1e-6); v = abs(z) }
  replace { v, y = kr(x, r) } }
""",
    """
rule a(x: D[t.., 2 * H]) { match { v = f(x[.., :H]); y = f(v) }
  replace { v, y = k22(x[.., :H]) }; where { H % 48 == 0 } }
rule b(x: D[t.., N]) { match { y = sum(f(x), -1, keepdim = true) }
  replace { y = k3(x) }; where { N > 5000 } }
""",
    """
rule a(x: D[t.., H]) { match { v = f(x); y = g(v, 3) }; replace { v, y = k22(x) }
  where { env.arch == "gfx942"; env.tp_size in (2, 4); ready(3) } }
rule b(x: D[t.., H]) { match { v = f(x); y = x.to(f32).to(D) + v }
  replace { v, y = k22(x) }
  where { D != f32; D != f64; D != bf16; not D == f8e4m3fn } }
""",
    """
rule a(x: D[t.., H], w: D[H]) { match { v = norm(x, w); y = f(v) }
  replace { v, y = kw2(x, w) } }
rule b(x: D[t.., H], w: D[H]) { match { v = x * w; y = abs(v) }
  replace { v, y = kw2(x, w) } }
""",
]


@pytest.mark.parametrize("rules", PAIRS)
def test_a_witness_is_a_contest(rules: str) -> None:
    program, diagnostics = checked(OPS + rules)
    witness = single(diagnostics).witness
    assert witness is not None
    first, second = program.rules
    assert judge(program, witness, first, second) == CONTEST


def test_a_report_can_be_read_as_a_file_of_graphs() -> None:
    program, diagnostics = checked(OPS + PAIRS[1])
    (graph,) = read(render_all(diagnostics), program=program)
    calls = [str(node.target) for node in graph.gm.graph.nodes if node.op == "call_function"]
    assert calls == ["fusiondsl.g.default", "aten.relu.default", "fusiondsl.f.default"]


def test_what_fp8_is_depends_on_the_chip() -> None:
    program, diagnostics = checked(
        OPS
        + """
rule a(x: fp8[t.., H]) { match { v = f(x); y = g(v, 1) }; replace { v, y = k22(x) } }
rule b(x: f8e4m3fnuz[t.., H]) { match { v = f(x); y = g(v, 2) }; replace { v, y = k22(x) } }
"""
    )
    witness = single(diagnostics).witness
    assert witness is not None
    assert dict(witness.target) == {"env.arch": "gfx942"}
    first, second = program.rules
    assert judge(program, witness, first, second) == CONTEST
