"""Whole sets of rules: what follows from conditions, forms and chains."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusiondsl.analysis import analyse, containment
from fusiondsl.analysis import order as arrangement
from fusiondsl.analysis.modules import Loader
from fusiondsl.diagnostics.diagnostic import Diagnostic, Diagnostics
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Program
from fusiondsl.ir.strata import strata

CASES = Path(__file__).parent.parent / "cases" / "check"

OPS = """
op f(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op g(x: D[t.., H], n: int) -> (y: D[t.., H]) { means axiom }
op n(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = relu(x) }
  form kernel { y = ext.n(x) }
  form rough { y = g(f(x), 3) } differs { round }
}
extern op ext.n(x: D[t.., H]) -> D[t.., H]
op k1(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op k2(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op k3(x: D[t.., H]) -> (y: D[t.., H]) { means axiom }
op kn(x: D[t.., H], n: int, m: int) -> (y: D[t.., H]) { means axiom }
"""


def checked(rules: str) -> tuple[Program, list[Diagnostic]]:
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    loader.add_source(Source("<string>.fuse", OPS + rules))
    program = analyse(loader.finish(), diagnostics)
    return program, list(diagnostics)


def order(rules: str) -> list[str]:
    program, diagnostics = checked(rules)
    assert diagnostics == []
    return [rule.name for rule in program.rules]


def rule(name: str, match: str, replace: str, rest: str = "", params: str = "x: D[t.., H]") -> str:
    return f"rule {name}({params}) {{ match {{ {match} }}; replace {{ {replace} }}; {rest} }}\n"


# --- what conditions imply -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("H % 8 == 0", "H % 8 == 4"),
        ("H % 128 == 0", "H % 64 == 1"),
        ("t * H <= 64", "t * H > 64"),
        ("D in (bf16, f16)", "D != bf16 and D != f16"),
        ('env.arch == "gfx950"', 'env.arch != "gfx950"'),
        ("H <= 64", "t > 2 and H > 2 and not H < 65"),
    ],
)
def test_rules_that_nothing_fits_need_no_order(one: str, other: str) -> None:
    order(
        rule("a", "y = f(x)", "y = k1(x)", f"where {{ H > 0; {one} }}")
        + rule("b", "y = f(x)", "y = k2(x)", f"where {{ t > 0; {other} }}")
    )


@pytest.mark.parametrize(
    ("rare", "often"),
    [
        ("H % 128 == 0", "H % 32 == 0"),
        ("H <= 4096; t > 7", "H < 8192"),
        ("D == bf16", "D in (bf16, f16)"),
        ("H == 64", "H % 32 == 0 and H <= 128"),
        ("H > 64 and D == f16", "itemsize(D) == 2"),
    ],
)
def test_what_fits_more_rarely_goes_first(rare: str, often: str) -> None:
    last = rule("a", "y = f(x)", "y = k1(x)", f"where {{ {often} }}")
    first = rule("b", "y = f(x)", "y = k2(x)", f"where {{ {rare} }}")
    assert order(last + first) == ["b", "a"]


def test_a_fixed_size_is_rarer_than_any() -> None:
    last = rule("a", "y = f(x)", "y = k1(x)")
    first = rule("b", "y = f(x)", "y = k2(x)", params="x: bf16[T, 4096]")
    assert order(last + first) == ["b", "a"]


def test_equal_rules_need_an_order() -> None:
    _, found = checked(rule("a", "y = f(x)", "y = k1(x)") + rule("b", "y = f(x)", "y = k2(x)"))
    assert [d.code for d in found] == ["FD401"]


# --- rules that never fire -----------------------------------------------------------------------

SAME = ("y = g(g(x, n), n)", "y = kn(x, n, n)", "x: D[t.., H], n: int")
FREE = ("y = g(g(x, n), m)", "y = kn(x, n, m)", "x: D[t.., H], n: int, m: int")


def test_one_scalar_twice_is_rarer_than_two() -> None:
    last = rule("a", *FREE[:2], params=FREE[2])
    first = rule("b", *SAME[:2], params=SAME[2])
    assert order(last + first) == ["b", "a"]
    _, found = checked(rule("a", *FREE[:2], "before b", FREE[2]) + first)
    assert [(d.code, d.message.split("`")[1]) for d in found] == [("FD404", "b")]


def test_a_rule_that_admits_more_forms_is_not_shadowed() -> None:
    exact = rule("a", "y = n(x)", "y = k1(x)", "before b")
    rough = rule("b", "y = n(x)", "y = k2(x)", "allow { round }")
    assert order(exact + rough) == ["a", "b"]
    _, found = checked(
        rule("a", "y = n(x)", "y = k1(x)", "after b")
        + rule("b", "y = n(x)", "y = k2(x)", "allow { round }")
    )
    assert [(d.code, d.message.split("`")[1]) for d in found] == [("FD404", "a")]


@pytest.mark.parametrize(
    ("large", "shadowed"),
    [
        (rule("b", "v = f(x); y = g(v, 1)", "y = k2(x)"), True),
        (rule("b", "v = f(x); y = g(v, 1)", "y = k2(x); v = v"), True),
        (rule("b", "y = g(n(x), 1)", "y = k2(x)"), False),
    ],
)
def test_a_part_that_goes_first(large: str, shadowed: bool) -> None:
    small = rule("a", "y = f(x)", "y = k1(x)", "before b")
    _, found = checked(small + large)
    assert [d.code for d in found] == (["FD404"] if shadowed else [])


def test_a_part_with_its_own_conditions_may_go_first() -> None:
    small = rule("a", "y = f(x)", "y = k1(x)", "where { H <= 64 }; before b")
    large = rule("b", "y = g(f(x), 1)", "y = k2(x)", "where { H <= 128 }")
    assert order(small + large) == ["a", "b"]


def test_a_part_that_hides_what_others_may_read_does_not_shadow() -> None:
    small = rule("a", "y = g(f(x), 1)", "y = k1(x)", "before b")
    large = rule("b", "v = f(x); y = relu(g(v, 1))", "v, y = kk(x)")
    _, found = checked(
        "op kk(x: D[t.., H]) -> (y: D[t.., H], z: D[t.., H]) { means axiom }\n" + small + large
    )
    assert found == []


@pytest.mark.parametrize(
    ("target", "shadowed"),
    [
        ("op kk(x: E[s.., N]) -> (y: E[s.., N]) { means axiom; where { N % 8 == 0 } }", True),
        ("op kk(x: E[s.., N]) -> (y: E[s.., N]) { means axiom; where { N % 128 == 0 } }", False),
        ("op kk(x: E[s.., N]) -> (y: E[s.., N]) { means axiom; where { s > 4 } }", False),
        ("extern op kk.kk(x: E[s.., N]) -> E[s.., N]", False),
    ],
)
def test_what_a_kernel_refuses_the_next_rule_may_take(target: str, shadowed: bool) -> None:
    op = "kk.kk" if "extern" in target else "kk"
    _, found = checked(
        f"{target}\n"
        + rule("a", "y = f(x)", f"y = {op}(x)", "before b")
        + rule("b", "y = f(x)", "y = k2(x)", "where { H % 64 == 0 }")
    )
    assert [d.code for d in found] == (["FD404"] if shadowed else [])


# --- forms ---------------------------------------------------------------------------------------


def test_what_is_written_for_a_form_goes_first() -> None:
    general = rule("a", "y = f(n(x))", "y = k1(x)", "where { H > 0; t > 0 }")
    special = rule("b", "y = f(ext.n(x))", "y = k2(x)")
    assert order(general + special) == ["b", "a"]


def test_a_source_may_contain_another_through_a_form() -> None:
    small = rule("a", "y = f(g(x, 3))", "y = k1(x)", "where { H > 0; t > 0 }")
    large = rule("b", "y = f(n(x))", "y = k2(x)", "allow { round }")
    assert order(small + large) == ["b", "a"]


# --- chains --------------------------------------------------------------------------------------


def test_a_target_may_be_a_form_of_what_another_rule_matches() -> None:
    program, found = checked(
        rule("late", "y = f(n(x))", "y = k1(x)") + rule("early", "y = k3(x)", "y = ext.n(x)")
    )
    assert found == []
    assert strata(program.rules, program.ops) == {"early": 0, "late": 1}


def circle(rules: str) -> Diagnostic:
    _, found = checked(rules)
    assert [d.code for d in found] == ["FD403"]
    return found[0]


def test_a_circle_through_three_rules_is_followed() -> None:
    found = circle(
        rule("a", "y = k1(x)", "y = k2(x)")
        + rule("b", "y = k2(x)", "y = k3(x)")
        + rule("c", "y = g(k3(x), 1)", "y = k1(x)")
        + rule("beside", "y = relu(k2(x))", "y = f(x)")
    )
    assert found.message.startswith("`a`, `b`, `c` rewrite")
    assert found.notes == (
        "`a` makes `k2`, which `b` matches",
        "`b` makes `k3`, which `c` matches",
        "`c` makes `k1`, which `a` matches",
    )


def test_a_circle_through_a_form() -> None:
    found = circle(rule("a", "y = n(x)", "y = k1(x)") + rule("b", "y = k1(x)", "y = ext.n(x)"))
    assert found.notes == (
        "`a` makes `k1`, which `b` matches",
        "`b` makes `ext.n`, which `a` matches as a form of `n`",
    )


def test_a_rule_may_make_a_form_of_its_own_source() -> None:
    found = circle(rule("a", "y = n(x)", "y = ext.n(x)"))
    assert found.message == "`a` would rewrite its own result again"


def test_a_circle_of_primitives() -> None:
    found = circle(
        rule("a", "y = relu(x)", "y = maximum(x, zeros_like(x))")
        + rule("b", "y = maximum(x, zeros_like(x))", "y = relu(x)")
    )
    assert found.notes == (
        "`a` makes the whole source of `b`",
        "`b` makes the whole source of `a`",
    )


# --- many rules ----------------------------------------------------------------------------------


def test_many_overlaps_are_not_all_reported() -> None:
    rules = "".join(
        rule(f"r{i}", f"v = f(x); y = g(v, {i})", "v, y = kk(x)", "where { H > 0 }")
        for i in range(12)
    )
    _, found = checked(
        "op kk(x: D[t.., H]) -> (y: D[t.., H], z: D[t.., H]) { means axiom }\n" + rules
    )
    assert {d.code for d in found} == {"FD405"}
    assert len([d for d in found if d.witness is not None]) == 20
    assert found[-1].message == "20 pairs of rules overlap: further overlaps are not reported"


# --- what is not looked at -----------------------------------------------------------------------


def test_a_stated_order_settles_what_is_not_compared_to_the_end() -> None:
    text = (CASES / "fd407_too_much.fuse").read_text()
    assert [d.code for d in checked(text)[1]] == ["FD407"]
    settled = text.replace(
        "  where { D in (bf16, f16) }", "  where { D in (bf16, f16) }\n  before gated_choice", 1
    )
    assert not checked(settled)[1]


def test_pairs_that_are_not_put_in_order_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "MAX_PARTNERS", 1)
    rules = [rule(f"r{i}", "y = f(x)", "y = k1(x)", f"where {{ H == {i} }}") for i in (1, 2, 3)]
    (found,) = checked("".join(rules))[1]
    assert (found.code, found.message) == (
        "FD407",
        "1 pairs of rules with equal sources were not put in order",
    )


def test_pairs_that_are_not_asked_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = rule("wide", "y = f(x)", "y = k1(x)") + rule(
        "narrow", "y = f(x)", "y = k2(x)", "where { H == 8 }; after wide"
    )
    assert [d.code for d in checked(text)[1]] == ["FD404"]
    monkeypatch.setattr(arrangement, "MAX_LOOKS", 0)
    (found,) = checked(text)[1]
    assert (found.code, found.message) == (
        "FD407",
        "1 pairs of rules were not asked whether one can never fire",
    )
