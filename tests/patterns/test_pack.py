"""The shipped pack as a whole: clean, documented, with examples that hold."""

from __future__ import annotations

from functools import cache

import pytest

import fusiondsl
from fusiondsl.cli.main import main
from fusiondsl.ir.program import Rule
from fusiondsl.resources import patterns_root
from fusiondsl.rules import RuleSet

RULES = {
    "add_rms_norm_group_quant",
    "add_rms_norm_mxfp4_gemm",
    "add_rms_norm_mxfp4_quant",
    "add_rms_norm_pad",
    "add_rms_norm_pad_beside",
    "add_rms_norm_per_token_quant",
    "add_rms_norm_static_quant",
    "allreduce_add_gemma_rms_norm",
    "allreduce_add_rms_norm",
    "allreduce_add_rms_norm_group_quant",
    "allreduce_add_rms_norm_group_quant_with_norm",
    "allreduce_gemma_rms_norm",
    "allreduce_rms_norm",
    "allreduce_rms_norm_group_quant",
    "gated_rms_norm_flat_group_quant",
    "gated_rms_norm_group_quant",
    "mla_dual_rms_norm",
    "mla_dual_rms_norm_group_quant",
    "mla_dual_rms_norm_mxfp8_quant",
    "mla_dual_rms_norm_per_token_quant",
    "qk_norm_mrope_kv_cache_update",
    "qk_norm_rope_kv_cache_update",
    "rms_norm_group_quant",
    "rms_norm_mxfp8_quant",
    "rms_norm_per_token_quant",
    "rms_norm_static_quant",
    "silu_mul_group_quant",
    "silu_mul_mxfp4_gemm",
    "silu_mul_mxfp4_quant",
    "silu_mul_static_quant",
}


@cache
def pack() -> RuleSet:
    return fusiondsl.load(patterns_root())


def rule(name: str) -> Rule:
    return next(r for r in pack().program.rules if r.name == name)


def test_loads_without_a_warning() -> None:
    assert pack().warnings == ()
    assert {r.name for r in pack().program.rules} == RULES


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_is_documented_and_has_both_kinds_of_example(name: str) -> None:
    found = rule(name)
    assert found.doc
    assert any(example.fires for example in found.examples)
    refused = [example for example in found.examples if not example.fires]
    assert refused
    assert all(example.because for example in refused)


def test_examples_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", str(patterns_root())]) == 0
    assert "0 failed, 0 skipped" in capsys.readouterr().out


def test_every_op_of_ours_has_a_doc_and_a_meaning() -> None:
    for decl in pack().program.ops.values():
        if not decl.extern:
            assert decl.doc, decl.name
            assert decl.axiom or decl.means is not None, decl.name


def test_targets_say_where_they_exist() -> None:
    targets = [decl for decl in pack().program.ops.values() if decl.impls]
    assert len(targets) == 23
    for decl in targets:
        assert decl.available, decl.name
        assert decl.where, decl.name


def test_larger_sources_go_first() -> None:
    order = [r.name for r in pack().program.rules]

    def before(first: str, second: str) -> bool:
        return order.index(first) < order.index(second)

    quant = "allreduce_add_rms_norm_group_quant"
    assert before(quant, "allreduce_add_rms_norm")
    assert before(quant, "add_rms_norm_group_quant")
    assert before(quant, f"{quant}_with_norm")
    assert before("add_rms_norm_per_token_quant", "rms_norm_per_token_quant")
    assert before("allreduce_add_gemma_rms_norm", "allreduce_add_rms_norm")
