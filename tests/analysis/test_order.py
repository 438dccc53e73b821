"""The computed order: what contains goes first, then the more special."""

from __future__ import annotations

import random

import pytest

from fusiondsl.analysis.overlap import demands_of, disjoint
from fusiondsl.analysis.source import source_of
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.ir.program import Program
from tests.support.analysed import analysed

OPS = """
op f(x: D[t.., H]) -> (y: D[t.., H]) { means { y = abs(x) } }
op g(x: D[t.., H], n: int) -> (y: D[t.., H], z: D[t.., H]) { means axiom }
op h(x: D[t.., H], n: int) -> (y: D[t.., H], z: D[t.., H]) { means axiom }
op k(x: D[t.., H]) -> (y: D[t.., H]) { means { y = sqrt(x) } }
op k2(x: D[t.., H]) -> (y: D[t.., H]) { means { y = exp(x) } }
"""


def program(*rules: str) -> Program:
    shuffled = list(rules)
    random.Random(len(rules)).shuffle(shuffled)
    return analysed(OPS + "\n".join(shuffled))


def order(*rules: str) -> list[str]:
    return [rule.name for rule in program(*rules).rules]


def rule(name: str, match: str, replace: str = "y = k(x)", rest: str = "") -> str:
    params = "x: D[T, H], n: int" if "n)" in match or "n)" in replace else "x: D[T, H]"
    return f"rule {name}({params}) {{\nmatch {{ {match} }}\nreplace {{ {replace} }}\n{rest}\n}}"


def test_larger_sources_first() -> None:
    small, large = rule("a", "y = f(x)"), rule("b", "y = k2(f(x))")
    assert order(small, large) == ["b", "a"]


def test_containment_is_by_wiring_not_by_count() -> None:
    inner = rule("a", "y = f(f(x))")
    outer = rule("z", "y = k2(f(f(x)))")
    apart = rule("b", "y = f(k2(f(x)))")
    assert order(inner, outer, apart) == ["b", "z", "a"]
    sources = {r.name: source_of(r) for r in program(inner, outer, apart).rules}
    from fusiondsl.analysis.source import contains

    assert contains(sources["z"], sources["a"])
    assert not contains(sources["b"], sources["a"])


def test_literal_before_any_value() -> None:
    any_value = rule("a", "y, z = g(x, n)", "y = k(x); _, z = h(x, n)")
    literal = rule("b", "y, z = g(x, 3)", "y = k2(x); _, z = h(x, 3)")
    assert order(any_value, literal) == ["b", "a"]


def test_fewer_survivors_first() -> None:
    both = rule("a", "t, u = g(x, 3); y = f(t)", "y = k(x); t = k(x)")
    one = rule("b", "t, u = g(x, 3); y = f(t)", "y = k2(x)")
    assert order(both, one) == ["b", "a"]


def test_stronger_condition_first() -> None:
    weak = rule("a", "y = f(x)", "y = k(x)", "where { H % 8 == 0 }")
    strong = rule("b", "y = f(x)", "y = k2(x)", "where { H % 8 == 0; T <= 4 }")
    assert order(weak, strong) == ["b", "a"]


def test_stated_order_decides() -> None:
    first = rule("b", "y = f(x)", "y = k2(x)", "where { T <= 4 }\nbefore a")
    second = rule("a", "y = f(x)", "y = k(x)", "where { H <= 4 }")
    assert order(first, second) == ["b", "a"]


def test_names_do_not_matter() -> None:
    one = rule("a", "y = f(x)", "y = k(x)", "where { H <= 4 }")
    other = "rule b(v: E[A, B]) { match { w = f(v) }; replace { w = k2(v) }; where { B <= 4 } }"
    with pytest.raises(FusionError, match="FD401"):
        program(one, other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("H <= 4", "H > 4", True),
        ("H <= 4", "H >= 4", False),
        ("H < 4", "H >= 4", True),
        ("H in (1, 2)", "H in (3, 4)", True),
        ("H in (1, 2)", "H in (2, 4)", False),
        ("H == 5", "H <= 4", True),
        ("4 >= H", "H == 5", True),
        ("D == bf16", "D == f16", True),
        ("D in (bf16, f16)", "D == f32", True),
        ("env.aiter", "not env.aiter", True),
        ("H % 8 == 0", "not H % 8 == 0", True),
        ('env.arch == "gfx942"', 'env.arch in ("gfx950", "gfx1250")', True),
        ("H <= 4", "T > 4", False),
        ("H != 4", "H == 4", False),
    ],
)
def test_conditions_that_exclude_each_other(one: str, other: str, expected: bool) -> None:
    rules = program(
        rule("a", "y = f(x)", "y = k(x)", f"where {{ {one} }}\nbefore b"),
        rule("b", "y = f(x)", "y = k2(x)", f"where {{ {other} }}"),
    )
    a, b = (demands_of(source_of(r), rules) for r in rules.rules)
    assert disjoint(a, b) is expected
    assert disjoint(b, a) is expected


def test_availability_excludes_too() -> None:
    ops = """
op k942(x: D[t.., H]) -> (y: D[t.., H]) { means { y = x }; available { env.arch == "gfx942" } }
op k950(x: D[t.., H]) -> (y: D[t.., H]) { means { y = x }; available { env.arch == "gfx950" } }
"""
    found = program(
        ops,
        rule("b", "y = f(x)", "y = k942(x)", "where { H <= 8 }"),
        rule("a", "y = f(x)", "y = k950(x)", "where { T <= 8 }"),
    )
    assert [r.name for r in found.rules] == ["a", "b"]


def test_unnamed_results_are_the_same_source() -> None:
    one = rule("b", "y, _ = g(x, 3)", "y = k(x)", "where { H <= 4 }")
    other = rule("a", "y = g(x, 3)", "y = k2(x)", "where { H <= 4; T <= 3 }")
    assert order(one, other) == ["a", "b"]
    assert len({source_of(r).skeleton for r in program(one, other).rules}) == 1
