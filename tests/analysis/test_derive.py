"""Rules made from meanings: what is found in them, where, and under which names."""

from __future__ import annotations

import pytest

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source
from fusiondsl.dims.expr import Name, Spread
from fusiondsl.ir.program import Call, Const, Program, Ref, Rule, TensorType
from fusiondsl.rules import load_source
from fusiondsl.syntax import parse, print_module

NORMS = 'import "fusiondsl:ops/norms.fuse"\n'
NORM = """op k.norm(x: D[T, H], weight: D[H], eps: float) -> (y: D[T, H]) {
  means {
    xf = x.to(f32)
    n = xf * rsqrt(mean(square(xf), -1, keepdim = true) + eps)
    y = (n * weight.to(f32)).to(D)
  }
  where { D in (bf16, f16) }
}
fuse k.norm where { D in (bf16, f16) } allow { round }
"""


def program(text: str, name: str = "case.fuse") -> Program:
    return load_source(text, name).program


def only(text: str) -> Rule:
    (rule,) = program(text).rules
    return rule


def called(rule: Rule) -> list[str]:
    return [call.op for call in rule.match]


def test_a_form_is_its_op() -> None:
    rule = only(NORMS + NORM)
    assert rule.match == (Call("rms_norm", (Ref("x"), Ref("weight"), Ref("eps")), ("y",)),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mean(square(xf)", "sum(square(xf)"),
        ("+ eps)", "- eps)"),
        ("square(xf)", "square(weight.to(f32))"),
        ("n * weight", "n / weight"),
        ("xf * rsqrt", "x * rsqrt"),
    ],
)
def test_what_is_no_form_stays_as_written(old: str, new: str) -> None:
    assert old in NORM
    assert "rms_norm" not in called(only(NORMS + NORM.replace(old, new, 1)))


def test_the_cast_of_a_weight_is_part_of_a_form_where_dtypes_say_so() -> None:
    loose = NORM.replace("where { D in (bf16, f16) }", "")
    assert called(only(NORMS + loose)) == ["prim.cast", "rms_norm"]


def test_dtypes_one_by_one_where_each_gives_the_same() -> None:
    """In f32 the cast of the weight does nothing, and in the others it is part of a form."""
    every = NORM.replace("(bf16, f16)", "(bf16, f16, f32)")
    assert only(NORMS + every).match == only(NORMS + NORM).match


def test_dtypes_that_give_several_sources_give_that_of_all() -> None:
    every = NORM.replace("(bf16, f16)", "(bf16, f16, f64)")
    assert called(only(NORMS + every)) == ["prim.cast", "rms_norm"]


def test_a_result_that_is_cast_to_its_own_dtype() -> None:
    text = NORM.replace("(bf16, f16)", "(f32, )")
    assert called(only(NORMS + text)) == ["rms_norm"]


def test_a_scalar_that_stands_in_an_expression_only_is_not_said() -> None:
    with pytest.raises(FusionError) as caught:
        program(NORMS + NORM.replace("+ eps)", "+ 2.0 * eps)"))
    assert [d.code for d in caught.value.diagnostics] == ["FD234"]


def test_only_ops_that_the_file_sees() -> None:
    assert "rms_norm" not in called(only(NORM))


def test_a_value_inside_that_is_a_result_keeps_the_op_apart() -> None:
    text = NORM.replace("(y: D[T, H])", "(y: D[T, H], r: f32[T, 1])")
    text = text.replace("n = xf * rsqrt(", "r = rsqrt(").replace("+ eps)", "+ eps)\n    n = xf * r")
    assert "rms_norm" not in called(only(NORMS + text))


def test_a_value_without_a_name_gets_one() -> None:
    text = NORM.replace("y = (n * weight.to(f32)).to(D)", "y = relu((n * weight.to(f32)).to(D))")
    rule = only(NORMS + text)
    assert called(rule) == ["rms_norm", "prim.relu"]
    assert rule.match[1].args == (Ref(str(rule.match[0].results[0])),)


def test_the_largest_part_wins_and_a_dead_result_is_dropped() -> None:
    rule = only(
        NORMS
        + """op k.add_norm(x: D[T, H], r: D[T, H], w: D[H], eps: float) -> (y: D[T, H]) {
          means {
            s = x.to(f32) + r.to(f32)
            y = (s * rsqrt(mean(square(s), -1, keepdim = true) + eps) * w.to(f32)).to(D)
          }
          where { D in (bf16, f16) }
        }
        fuse k.add_norm allow { round }
        """
    )
    (call,) = rule.match
    assert call.op == "fused_add_rms_norm"
    assert call.results == ("y", None)


def test_effects_belong_to_the_source_though_nothing_reads_them() -> None:
    rule = only(
        """extern op lib.sum(x: D[t..], group: str) -> D[t..] { effect link(group) }
        op k.relu(x: D[t..], group: str) -> (y: D[t..]) {
          effect link(group)
          means { total = lib.sum(x, group); y = relu(x) }
        }
        fuse k.relu
        """
    )
    assert sorted(called(rule)) == ["lib.sum", "prim.relu"]


# --- parameters ----------------------------------------------------------------------------------


def leading(rule: Rule) -> object:
    kind = rule.params[0].type
    assert isinstance(kind, TensorType)
    return kind.dims[0]


def test_rows_of_a_kernel_are_any_leading_dimensions() -> None:
    assert leading(only(NORMS + NORM)) == Spread("tokens")


def test_rows_that_the_meaning_counts_stay_one_dimension() -> None:
    text = (
        "op k.flat(x: D[T, H]) -> (y: D[T, H]) { means { y = relu(x).view(T, H) } }\nfuse k.flat\n"
    )
    assert leading(only(text)) == Name("T")


def test_two_kinds_of_rows_keep_their_names() -> None:
    text = """op k.both(x: D[T, K], w: D[N, K], v: D[K]) -> (a: D[T, K], b: D[N, K]) {
      means { a = x * v; b = w * v }
    }
    fuse k.both
    """
    rule = only(text)
    kinds = [p.type for p in rule.params if isinstance(p.type, TensorType)]
    assert [kind.dims[0] for kind in kinds] == [Spread("T"), Spread("N"), Name("K")]


OPTIONAL = """op k.scale(x: D[t.., H], bias: D[H]? = none, by: float = 2.0) -> (y: D[t.., H]) {
  means { case bias is none { y = x * by } else { y = x * by + bias } }
}
"""


def test_defaults_are_fixed() -> None:
    rule = only(OPTIONAL + "fuse k.scale")
    assert [p.name for p in rule.params] == ["x"]
    assert rule.match == (Call("prim.mul", (Ref("x"), Const(2.0)), ("y",)),)
    assert rule.replace[0].args == (Ref("x"), Const(None), Const(2.0))


def test_named_parameters_are_read() -> None:
    rule = only(OPTIONAL + "fuse k.scale(bias, by) as with_bias")
    assert [p.name for p in rule.params] == ["x", "bias", "by"]
    assert called(rule) == ["prim.mul", "prim.add"]
    bias = rule.params[1].type
    assert isinstance(bias, TensorType)
    assert not bias.optional


def test_fixed_parameters_may_stand_in_conditions() -> None:
    rule = only(
        """let WIDE = 16
        table most(n) { (16) = 128; (_) = 64 }
        op k.grouped(x: D[t.., H], size: int) -> (y: D[t.., H / size, size]) {
          means { y = relu(x).view(t.., H / size, size) }
        }
        fuse k.grouped(size = WIDE) where { few: H <= most(size) }
        """
    )
    assert rule.replace[0].args == (Ref("x"), Const(16))
    assert "size" not in str(rule.where)


# --- positions and spellings ---------------------------------------------------------------------


def test_positions_are_those_of_the_item_and_of_the_declaration() -> None:
    rule = only(NORMS + NORM)
    assert rule.span is not None
    assert rule.span.text == "k.norm"
    assert rule.span.line > NORM.count("\n")
    (match,), (replace,) = rule.match, rule.replace
    assert match.span is not None
    assert match.span.text == "(n * weight.to(f32)).to(D)"
    assert replace.span == rule.span


def test_both_spellings_are_one_rule() -> None:
    text = NORMS + OPTIONAL + NORM + "fuse k.scale(bias, by = 0.5) as other\n"
    module = parse(Source("case.fuse", text), Diagnostics())
    as_yaml = print_module(module, "yaml")
    again = print_module(parse(Source("case.yaml", as_yaml), Diagnostics()), "fuse")
    first, second, third = program(text), program(as_yaml, "case.yaml"), program(again)
    assert len(first.rules) == 2
    assert first.rules == second.rules == third.rules


def test_diagnostics_about_derived_parts_point_at_the_item() -> None:
    text = """op k.kernel(x: D[t.., H], y: E[t.., H]) -> (z: D[t.., H]) {
      means { z = x + y.to(D) }
    }
    op k.user(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H]) { means { a = relu(x); z = relu(y) } }
    fuse k.user
    """
    with pytest.raises(FusionError) as caught:
        program(text)
    (error,) = [d for d in caught.value.diagnostics if d.code == "FD234"]
    assert error.span is not None
    assert error.span.text == "k.user"
    assert [label.span.text for label in error.labels] == ["x: D[t.., H]"]
