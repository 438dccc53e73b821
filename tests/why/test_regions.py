"""What is fused in a graph and what not: on graphs of real models, and held against contracts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from torch import fx

import fusiondsl
from fusiondsl import CompiledRules, Target
from fusiondsl.engine.why import Audit, failures, read_contracts
from fusiondsl.graphs import read
from fusiondsl.resources import patterns_root
from fusiondsl.rules import load_source
from tests.graphs.test_reader import CASES, INDEX
from tests.graphs.test_shipped_rules import FACTS, FEW, FIRES
from tests.properties.graphs import random_graphs
from tests.why.test_agreement import CHECKS, Drawn, all_rules

AUDIT = Path(__file__).parents[1] / "cases" / "audit"
CONTRACTS = AUDIT / "contracts"


@pytest.fixture(scope="module")
def shipped() -> CompiledRules:
    target = Target(arch="gfx950", tp_size=2, tp_group="tp:0", facts=FACTS)
    return fusiondsl.load(patterns_root()).compile(target)


def broken(rules: CompiledRules, graph: Path, contract: Path, tokens: range | None) -> list[str]:
    """The counts of a contract that an audit does not show."""
    (found,) = read(graph, program=rules.program)
    names = [rule.name for rule in rules.program.rules]
    contracts = read_contracts(contract, names, [(1, found.name)])
    held = contracts.of(found.name, 1)
    assert held, "the graph has a contract"
    audit = rules.audit(found.gm, tokens=tokens)
    return [f"{f.rule}: {f.of} {f.number}, not {f.wanted}" for f in failures(held, audit)]


# --- graphs of real models -----------------------------------------------------------------------


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_real_graphs(stem: str, shipped: CompiledRules) -> None:
    tokens = FEW.get(stem, range(1, 2049))
    assert broken(shipped, CASES / f"{stem}.txt", CONTRACTS / f"{stem}.yaml", tokens) == []


@pytest.mark.parametrize("stem", sorted(FIRES))
def test_what_was_rewritten_is_fused_already(stem: str, shipped: CompiledRules) -> None:
    (found,) = read(CASES / f"{stem}.txt", program=shipped.program)
    shipped.apply(found.gm, tokens=FEW.get(stem, range(1, 2049)))
    audit = shipped.audit(found.gm)
    assert fused(audit) == FIRES[stem]
    assert audit.count("fires") == 0


def test_every_contract_has_its_graph_and_a_reason() -> None:
    files = sorted(CONTRACTS.glob("*.yaml"))
    assert [file.stem for file in files] == sorted(INDEX)
    for file in files:
        assert len(file.read_text().partition("\nexpect:")[0]) > 80, file.name


@pytest.mark.parametrize("when", ["", "vllmfused.AFTER_VLLM_FUSION."])
def test_a_graph_has_the_same_sites_before_and_after_vllm_has_fused_it(when: str) -> None:
    graph = {
        "": "llama_fp8_static.gpuops.r1-256.g1",
        "vllmfused.AFTER_VLLM_FUSION.": (
            "llama_fp8_static.gpuops.vllmfused.AFTER_VLLM_FUSION.r1-256.g3"
        ),
    }[when]
    rules = fusiondsl.load(AUDIT / "vllm.fuse").compile()
    (found,) = read(CASES / f"{graph}.txt", program=rules.program)
    audit = rules.audit(found.gm)
    told = {line.rule: (line.sites, line.fused) for line in audit.coverage}
    assert told == {
        "norm_quant": (0, 0),
        "add_norm_quant": (2, 2 if when else 0),
        "silu_mul_quant": (1, 1 if when else 0),
    }


# --- what counts as fused ------------------------------------------------------------------------

PACK = """\
extern op mine.a(x: D[t.., H]) -> D[t.., H]
extern op mine.b(x: D[t.., H], n: int = 1) -> D[t.., H]
extern op mine.ab(x: D[t.., H], n: int = 1) -> D[t.., H]
extern op mine.head(x: D[t.., H]) -> D[t.., H]
extern op mine.tail(x: D[t.., H]) -> D[t.., H]
op mine.kernel(x: D[t.., H], n: int = 1) -> (y: D[t.., H]) {
  impl "torch:other::kernel"(x, true, n) -> y
}

rule one(x: D[t.., H]) {
  match { y = mine.b(mine.a(x)) }
  replace { y = mine.ab(x) }
}
rule two(x: D[t.., H]) {
  match { y = mine.b(mine.a(x), 2) }
  replace { y = mine.ab(x, 2) }
}
rule both(x: D[t.., H]) {
  match { y = mine.b(mine.a(x), 3) }
  replace { y = mine.tail(mine.head(x)) }
}
rule kernel(x: D[t.., H]) {
  match { y = mine.b(mine.a(x), 4) }
  replace { y = mine.kernel(x, 4) }
}
"""

OUT = '"f32[4, 8][8, 1]cpu"'


def graph(rules: CompiledRules, *lines: str) -> fx.GraphModule:
    """Of one input `x`; the last line is the output."""
    body = "\n".join(f"        {line}" for line in lines)
    result = lines[-1].partition(":")[0]
    head = f"class M(torch.nn.Module):\n    def forward(self, x: {OUT}):\n"
    (found,) = read(f"{head}{body}\n        return ({result},)\n", program=rules.program)
    return found.gm


def audited(*lines: str) -> Audit:
    rules = load_source(PACK).compile()
    return rules.audit(graph(rules, *lines))


def fused(audit: Audit) -> dict[str, int]:
    return {line.rule: line.fused for line in audit.coverage if line.fused}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((f"y: {OUT} = torch.ops.mine.ab.default(x)",), {"one": 1}),
        ((f"y: {OUT} = torch.ops.mine.ab.default(x, 1)",), {"one": 1}),
        ((f"y: {OUT} = torch.ops.mine.ab.default(x, n = 2)",), {"two": 1}),
        ((f"y: {OUT} = torch.ops.mine.ab.default(x, 5)",), {}),
        ((f"y: {OUT} = torch.ops.mine.tail.default(x)",), {}),
        (
            (
                f"h: {OUT} = torch.ops.mine.head.default(x)",
                f"y: {OUT} = torch.ops.mine.tail.default(h)",
            ),
            {"both": 1},
        ),
        (
            (
                f"h: {OUT} = torch.ops.mine.head.default(x)",
                f"n: {OUT} = torch.ops.aten.neg.default(h)",
                f"y: {OUT} = torch.ops.mine.tail.default(n)",
            ),
            {},
        ),
        ((f"y: {OUT} = torch.ops.other.kernel.default(x, True, 4)",), {"kernel": 1}),
        ((f"y: {OUT} = torch.ops.other.kernel.default(x, True, 1)",), {}),
        ((f"y: {OUT} = torch.ops.other.kernel.default(x, False, 4)",), {}),
        ((f"y: {OUT} = torch.ops.other.kernel.default(x, True)",), {}),
    ],
)
def test_what_is_fused_already(lines: tuple[str, ...], expected: dict[str, int]) -> None:
    audit = audited(*lines)
    assert fused(audit) == expected
    assert [region.state for region in audit.regions] == ["already fused"] * len(expected)
    assert audit.count("fires") == 0


ZEROS = """\
extern op mine.c(x: D[t.., H]) -> D[t.., H]
extern op mine.sum(x: D[t.., H], r: D[t.., H]) -> D[t.., H]
rule alone(x: D[t.., H]) {
  match { y = mine.c(x) }
  replace { y = mine.sum(x, zeros_like(x)) }
}
rule with_sum(x: D[t.., H], r: D[t.., H]) {
  match { y = mine.c(x + r) }
  replace { y = mine.sum(x, r) }
}
"""


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        ("aten.full.default([4, 8], 0, dtype = torch.float32)", "alone"),
        ("aten.neg.default(x)", "with_sum"),
    ],
)
def test_no_input_of_a_rule_is_a_constant(made: str, rule: str) -> None:
    rules = load_source(ZEROS).compile()
    gm = graph(
        rules,
        f"r: {OUT} = torch.ops.{made}",
        f"y: {OUT} = torch.ops.mine.sum.default(x, r)",
    )
    assert fused(rules.audit(gm)) == {rule: 1}


def test_what_a_rule_has_fused_is_fused_for_it_alone() -> None:
    rules = load_source(PACK).compile()
    gm = graph(
        rules,
        f"a: {OUT} = torch.ops.mine.a.default(x)",
        f"b: {OUT} = torch.ops.mine.b.default(a, 4)",
    )
    before = rules.audit(gm)
    assert before.of("kernel").fires == 1
    assert fused(before) == {}
    rules.apply(gm)
    after = rules.audit(gm)
    assert fused(after) == {"kernel": 1}
    assert after.of("kernel").sites == before.of("kernel").sites


def test_operations_are_one_region_however_many_rules_are_close() -> None:
    audit = audited(
        f"a: {OUT} = torch.ops.mine.a.default(x)",
        f"b: {OUT} = torch.ops.mine.b.default(a, 9)",
    )
    (region,) = audit.regions
    assert (region.state, region.site.node) == ("not fused", "b")
    assert region.cause is not None
    assert (region.cause.code, region.cause.found) == ("constant", "9")
    assert sorted([region.rule, *region.also]) == ["both", "kernel", "one", "two"]
    assert all(line.close == 1 for line in audit.coverage)


LATER = """\
extern op mine.c(x: D[t.., H]) -> D[t.., H]
extern op mine.all(x: D[t.., H]) -> D[t.., H]
rule late(x: D[t.., H]) {
  match { z = mine.ab(mine.c(mine.b(x, 1)), 7) }
  replace { z = mine.all(x) }
}
"""


def test_a_rule_whose_operations_an_earlier_stratum_takes() -> None:
    rules = load_source(PACK + LATER).compile()
    gm = graph(
        rules,
        f"a: {OUT} = torch.ops.mine.a.default(x)",
        f"b: {OUT} = torch.ops.mine.b.default(a)",
        f"c: {OUT} = torch.ops.mine.c.default(b)",
        f"d: {OUT} = torch.ops.mine.ab.default(c, 7)",
    )
    (site,) = rules.why(gm, rules=["late"]).of("late").near
    first = site.causes[0]
    assert (first.code, first.field, first.expected) == ("lost-to-rule", "one", "mine.b")
    assert first.message == "one has taken the mine.b that stood there"
    line = rules.audit(gm).of("late")
    assert (line.taken, line.close) == (1, 0)


# --- together with the engine --------------------------------------------------------------------


@CHECKS
@given(random_graphs(plants=4))
def test_an_audit_counts_what_apply_does(drawn: Drawn) -> None:
    gm, _ = drawn
    rules = all_rules()
    audit = rules.audit(gm)
    copied = fx.Graph()
    copied.output(copied.graph_copy(gm.graph, {}))
    counts = rules.apply(copied).counts
    assert {line.rule: line.fires for line in audit.coverage if line.fires} == counts
    assert audit.count("fires") == sum(counts.values())
    assert fused(rules.audit(copied)) == counts
    nodes = [
        n for region in audit.regions if region.state == "not fused" for n in region.site.nodes
    ]
    assert len(nodes) == len(set(nodes)), "no operation is in two regions that are not fused"
