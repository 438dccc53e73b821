"""What `fuse` derives is the rule an author would have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusiondsl import load
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Call
from fusiondsl.syntax import ast, parse
from tests.support.rules import canonical

WRITTEN = Path(__file__).parent.parent / "cases" / "derived" / "written.fuse"
RULES = {rule.name: rule for rule in load(WRITTEN).program.rules}
SHIPPED = {rule.name: rule for rule in load("fusiondsl:rocm_aiter").program.rules}


@pytest.mark.parametrize("name", RULES)
def test_same_rule_up_to_names(name: str) -> None:
    # Among which rules it goes first is said, not derived.
    shipped = replace(SHIPPED[name], before=(), after=())
    written = replace(RULES[name], before=(), after=())
    assert canonical(shipped) == canonical(written)


def test_these_are_derived() -> None:
    diagnostics = Diagnostics()
    files = [Path(path) for path in load("fusiondsl:rocm_aiter").program.files]
    trees = [parse(Source(path.name, path.read_text()), diagnostics) for path in files]
    items = [item for tree in trees for item in tree.items]
    assert {i.rule.name for i in items if isinstance(i, ast.Fuse)} == set(RULES)


def test_a_different_rule_is_told_apart() -> None:
    rule = RULES["rms_norm_per_token_quant"]
    call = rule.match[0]
    swapped = replace(call, args=(call.args[1], call.args[0], *call.args[2:]))
    assert isinstance(swapped, Call)
    other = replace(rule, match=(swapped, *rule.match[1:]))
    assert canonical(other) != canonical(rule)
