"""Sources built from rules: mutating ops, wildcards, strides, constants, kept values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

import fusiondsl
from fusiondsl.engine import CompiledRules
from fusiondsl.graphs.externs import define_missing
from fusiondsl.ir import Anything, Call, Const, ListOf, Ref, Rule
from fusiondsl.verify.examples import Outcome, run_rule
from fusiondsl.verify.source_graph import NoSource, source_graph

PACK = """
extern op example_demo.norm(out result: D[t.., H], x: D[t.., H], eps: float = 1e-6)
extern op example_demo.add(inout x: D[t.., H], y: D[t.., H], alpha: float = 1.0)
extern op example_demo.pick(x: D[t.., H], table: any[N], scale: float) -> D[t.., H]

op example_demo.fused(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H], s: D[t.., H]) {
  means {
    s = x + y
    z = s * 2.0
  }
  impl "nowhere:fused"(x, y) -> (z, s)
}

rule mutating(x: D[tokens.., H], y: D[tokens.., H]) {
  match {
    s = example_demo.add(x, y)
    z = example_demo.norm(s, 1e-6)
  }
  replace { z, s = example_demo.fused(x, y) }
  where { narrow: H <= 64 }
  example { tokens = 7, H = 64, D = f32 } fires
  example { tokens = 7, H = 128, D = f32 } refused because narrow
}

rule shaped(x: D[T, 2 * H] strides (1, T), y: D[T, H]) {
  match {
    a = x[.., :H]
    z = a.to(f32) * y.to(f32)
  }
  replace { z = (x[.., :H] * y).to(f32) }
  example { T = 7, H = 64, D = bf16 } fires
}

rule picking(x: D[tokens.., H], table: u8[N], scale: float) {
  match { z = example_demo.pick(x, table, scale) }
  replace { z = x * scale }
  where { N == 8 }
}
"""


@cache
def _compiled() -> CompiledRules:
    rules = fusiondsl.load_source(PACK)
    define_missing(rules.program)
    return rules.compile()


def _rule(name: str) -> Rule:
    return next(rule for rule in _compiled().program.rules if rule.name == name)


def _outcomes(name: str) -> list[Outcome]:
    return list(run_rule(_compiled(), _rule(name)))


def test_mutating_ops_are_written_functionalised() -> None:
    outcomes = _outcomes("mutating")
    assert [o.title for o in outcomes] == [
        "matches its own source",
        "fires",
        "refused because narrow",
    ]
    assert all(o.passed for o in outcomes), outcomes


def test_the_graph_is_what_match_says() -> None:
    values = {"tokens": (7,), "H": 64, "D": torch.float32}
    gm = source_graph(_rule("mutating"), _compiled().compiled, values)
    gm.graph.lint()
    targets = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    assert targets == [
        "auto_functionalized",
        "<built-in function getitem>",
        "aten.empty.memory_format",
        "auto_functionalized",
        "<built-in function getitem>",
    ]
    (output,) = gm.graph.output_node().args
    assert [tuple(node.meta["val"].shape) for node in output] == [(7, 64), (7, 64)]


def test_views_and_strides() -> None:
    assert [o.passed for o in _outcomes("shaped")] == [True, True]
    values = {"T": 7, "H": 64, "D": torch.bfloat16}
    gm = source_graph(_rule("shaped"), _compiled().compiled, values)
    x = next(node for node in gm.graph.nodes if node.name == "x")
    assert x.meta["val"].stride() == (1, 7)


def test_created_values() -> None:
    rule = _rule("shaped")
    lists = ListOf((Ref("y"), Ref("zero")))
    body = (
        Call("prim.zeros_like", (Ref("y"),), ("zero",)),
        Call("prim.cat", (lists, Const(-1)), ("z",)),
    )
    values = {"T": 7, "H": 64, "D": torch.bfloat16}
    gm = source_graph(replace(rule, match=body, kept=()), _compiled().compiled, values)
    ((z,),) = gm.graph.output_node().args
    assert tuple(z.meta["val"].shape) == (7, 128)


def test_wildcards() -> None:
    rule, compiled = _rule("picking"), _compiled().compiled
    (call,) = rule.match
    values = {"tokens": (7,), "H": 8, "N": 8, "scale": 0.5, "D": torch.float32}
    loose = replace(rule, match=(replace(call, args=(*call.args[:2], Anything())),))
    node = source_graph(loose, compiled, values).graph.find_nodes(
        op="call_function", target=torch.ops.example_demo.pick.default
    )[0]
    assert node.args[2] == 1.0
    looser = replace(rule, match=(replace(call, args=(call.args[0], Anything(), Anything())),))
    with pytest.raises(NoSource, match=r"`_` for table of example_demo.pick can be anything"):
        source_graph(looser, compiled, values)


def test_without_an_example_the_sizes_are_chosen() -> None:
    (outcome,) = _outcomes("picking")
    assert outcome.passed


def test_an_op_this_process_lacks() -> None:
    compiled = _compiled()
    ops = {**compiled.program.ops}
    name = "example_demo.norm"
    ops[name] = replace(ops[name], name="example_demo.absent")
    lacking = CompiledRules(replace(compiled.program, ops=ops))
    first = next(iter(run_rule(lacking, _rule("mutating"))))
    assert first.passed is None
    assert first.message == (
        "the source cannot be built: this process has no op example_demo::absent as declared"
    )


TARGETS = """
extern op example_demo.a(x: D[t.., H]) -> D[t.., H]
op example_demo.b(x: D[t.., H]) -> (y: D[t.., H]) {
  available { there: env.aiter }
  where { even: H % 8 == 0 }
}
rule labelled(x: D[tokens.., H]) {
  match { y = example_demo.a(x) }
  replace { y = example_demo.b(x) }
  where { dtypes: D in (f32, bf16) }
  example { tokens = 7, H = 64, D = f32, env.aiter = true } fires
  example { tokens = 7, H = 60, D = f32, env.aiter = true } refused because even
  example { tokens = 7, H = 64, D = f32, env.aiter = false } refused because there
  example { tokens = 7, H = 60, D = f32, env.aiter = true } refused because there
  example { tokens = 7, H = 60, D = f64, env.aiter = true } refused because even
}
"""


def test_conditions_of_the_ops_that_are_written() -> None:
    rules = fusiondsl.load_source(TARGETS).compile()
    define_missing(rules.program)
    (rule,) = rules.program.rules
    outcomes = list(run_rule(rules, rule))
    assert [outcome.passed for outcome in outcomes[1:]] == [True, True, True, False, False]
    assert outcomes[4].message.startswith(
        "there does not refuse it; instead: predicate false [even]"
    )
    assert outcomes[5].message.startswith(
        "even does not refuse it; instead: predicate false [dtypes]"
    )
