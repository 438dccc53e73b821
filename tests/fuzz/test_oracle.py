"""What is wrong on purpose is found: rules, faults of the engine, and rewritten graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, fx

from fusiondsl.engine import apply, mutation, place
from fusiondsl.graphs.saved import dumps
from tests.fuzz import oracle, planted, shipped_graphs
from tests.fuzz.engine import LAB_KINDS, Check, of_shipped
from tests.fuzz.rule_sets import GUARDED, RuleSet, compiled
from tests.properties.graphs import RULES
from tests.properties.test_mutation import RULES as MUTATING

_INPUTS = 60
"""Within so many inputs it must be found."""


class Differs(Exception):
    """The rewritten graph computes something else."""


def check(
    rules: RuleSet,
    number: int,
    tokens: tuple[int, int] | None = None,
    writes: bool | None = None,
) -> Check:
    gm = planted.graph_for(rules, Random(f"oracle {number}"), writes)
    return Check(compiled(rules.text), dumps(gm), tokens, LAB_KINDS)


def tried(checked: Check) -> bool:
    """Whether rules fired; raises `Differs`."""
    expected = checked.expected()
    gm = checked.graph()
    report = checked.rules.apply(gm, tokens=checked.tokens)
    try:
        checked.compare(gm, expected)
    except AssertionError as error:
        raise Differs from error
    return bool(report.fired)


def found(checks: Iterator[Check]) -> bool:
    try:
        for checked in checks:
            tried(checked)
    except Differs:
        return True
    return False


# --- rules ---------------------------------------------------------------------------------------

WRONG = {
    "another eps": (
        "added",
        "w, eps, by) }\n}",
        "w, 1.5e-6, by) }\n  where { eps == 1e-6 }\n}",
    ),
    "a summand dropped": (
        "added",
        "q, s, total = lab.add_norm_codes(x, r, w, eps, by)",
        "total = x + r; q, s = lab.norm_codes(x, w, eps, by)",
    ),
    "a residual that is not added to": (
        "added",
        "q, s, total = lab.add_norm_codes(x, r, w, eps, by)",
        "q, s, _ = lab.add_norm_codes(x, r, w, eps, by); total = lab.mix(r, [1])",
    ),
    "operands exchanged": ("pair", "lab.act_sum(a, b)", "lab.act_sum(b, a)"),
    "results exchanged": ("pair", "done, s = lab.act_sum", "s, done = lab.act_sum"),
    "not reduced": (
        "reduced",
        "lab.reduce_norm(x, w, eps, group) }\n}",
        'lab.norm(x, w, eps) }\n  where { group == "tp" }\n}',
    ),
    "reduced twice": ("reduced", "lab.reduce_norm(x,", "lab.reduce_norm(lab.reduce(x, group),"),
    "reduced afterwards": (
        "reduced",
        "lab.reduce_norm(x, w, eps, group)",
        "lab.reduce(lab.norm(x, w, eps), group)",
    ),
    "an operation dropped": ("twice", "lab.twice(x)", "lab.other(x)"),
}


def _edited(name: str, old: str, new: str) -> RuleSet:
    assert RULES[name].count(old) == 1
    return RuleSet(RULES[name].replace(old, new), (), (name,))


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_rules(fault: str) -> None:
    rules = _edited(*WRONG[fault])
    assert found(check(rules, number) for number in range(_INPUTS))


@pytest.mark.parametrize("name", [name for name in RULES if name != "into"])
def test_right_rules(name: str) -> None:
    """What tells the wrong ones from the right ones is what is wrong with them."""
    fired = [tried(check(RuleSet(RULES[name], (), (name,)), number)) for number in range(6)]
    assert any(fired)


UNGUARDED = {
    "for any number of rows": ("  where { rows: tokens <= 8 }\n", "", "many"),
    "for any reader": ("  where { read: read_as(y, twin.left.x) }\n", "", ""),
    "one row too many": ("tokens <= 8", "tokens <= 9", "many"),
}


@pytest.mark.parametrize("fault", UNGUARDED)
def test_conditions_that_are_missing(fault: str) -> None:
    old, new, without = UNGUARDED[fault]
    kept = [
        part for part in GUARDED.split("\nrule ") if not without or not part.startswith(without)
    ]
    text = "\nrule ".join(kept).replace(old, new) + RULES["twice"]
    rules = RuleSet(text, (), ("twice",), guarded=True)
    assert found(check(rules, number, (2, 9)) for number in range(_INPUTS))


# --- the engine ----------------------------------------------------------------------------------


def _off(owner: Any, name: str, value: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, return_value=value)


_WRITING = RuleSet(MUTATING, (), ("twice",))
_REDUCING = RuleSet(RULES["reduced"], (), ("reduced",))
_GUARDED = RuleSet(GUARDED + RULES["twice"], (), ("twice",), guarded=True)

FAULTS: dict[str, tuple[RuleSet, Callable[[], AbstractContextManager[Any]]]] = {
    "reads cross writes": (_WRITING, lambda: _off(place, "_crosses_write", None)),
    "effects cross": (_REDUCING, lambda: _off(place, "_crosses_effect", None)),
    "versions are not told apart": (
        _WRITING,
        lambda: mock.patch.object(mutation.Mutations, "version", lambda self, user, value: value),
    ),
    "readers are not asked for": (_GUARDED, lambda: _off(apply, "misread", None)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_engine(fault: str) -> None:
    rules, faulty = FAULTS[fault]
    writes = True if rules is _WRITING else None
    with faulty():
        assert found(check(rules, number, writes=writes) for number in range(2 * _INPUTS))


def test_a_range_of_tokens_that_is_not_looked_at() -> None:
    def checks() -> Iterator[Check]:
        for number in range(_INPUTS):
            checked = check(_GUARDED, number, (2, 9))
            checked.tokens = range(2, 9)
            yield checked

    assert found(checks())


# --- rewritten graphs of the shipped rules -------------------------------------------------------

Edit = Callable[[fx.Node], bool]
"""Changes a call that a rule has written; False where there is nothing of the kind."""


def _tensors(node: fx.Node) -> list[int]:
    return [
        i
        for i, arg in enumerate(node.args)
        if isinstance(arg, fx.Node) and isinstance(arg.meta.get("val"), Tensor)
    ]


def _eps(node: fx.Node) -> bool:
    for i, arg in enumerate(node.args):
        if isinstance(arg, float) and 0 < arg < 1e-3:
            node.update_arg(i, arg + 1e-6)
            return True
    return False


def _exchanged(node: fx.Node) -> bool:
    """Two arguments of one form, unless they are summands."""
    places = _tensors(node)
    for one, other in pairwise(places):
        left, right = node.args[one], node.args[other]
        assert isinstance(left, fx.Node)
        assert isinstance(right, fx.Node)
        if "add" in str(node.target) or left is right or not _alike(left, right):
            continue
        node.update_arg(one, right)
        node.update_arg(other, left)
        return True
    return False


def _alike(left: fx.Node, right: fx.Node) -> bool:
    one, other = left.meta["val"], right.meta["val"]
    return bool(one.dtype == other.dtype and str(one.shape) == str(other.shape))


def _instead(node: fx.Node, place: int, target: Any, *args: Any) -> bool:
    """Something of an argument instead of it."""
    with node.graph.inserting_before(node):
        node.update_arg(place, node.graph.call_function(target, (node.args[place], *args)))
    return True


def _rows(node: fx.Node) -> bool:
    """Every row is the one before."""
    for i in _tensors(node):
        value = node.args[i].meta["val"]  # type: ignore[union-attr]
        if value.dim() > 1 and value.dtype.is_floating_point:
            return _instead(node, i, torch.ops.aten.roll.default, [1], [0])
    return False


def _columns(node: fx.Node) -> bool:
    """A weight of another column."""
    for i in _tensors(node):
        value = node.args[i].meta["val"]  # type: ignore[union-attr]
        if value.dim() == 1 and value.numel() > 1 and value.dtype.is_floating_point:
            return _instead(node, i, torch.ops.aten.roll.default, [1], [0])
    return False


def _result(node: fx.Node, target: Any, *args: Any, kinds: tuple[torch.dtype, ...]) -> bool:
    """Somebody who reads a result gets something else."""
    for item in node.users:
        value = item.meta.get("val")
        if item.target is not operator.getitem or not isinstance(value, Tensor):
            continue
        if value.dtype not in kinds or not item.users or value.dim() < 2:
            continue
        with node.graph.inserting_after(item):
            other = node.graph.call_function(target, (item, *args))
        item.replace_all_uses_with(other, delete_user_cb=other.__ne__)
        return True
    return False


def _scale(node: fx.Node) -> bool:
    return _result(node, torch.ops.aten.mul.Tensor, 1.00001, kinds=(torch.float32,))


def _scale_rows(node: fx.Node) -> bool:
    return _result(node, torch.ops.aten.flip.default, [0], kinds=(torch.float32,))


def _residual(node: fx.Node) -> bool:
    """The sum that is given back is one of the summands."""
    for item in list(node.users):
        value = item.meta.get("val")
        if item.target is not operator.getitem or not isinstance(value, Tensor) or not item.users:
            continue
        for i in _tensors(node):
            source = node.args[i]
            assert isinstance(source, fx.Node)
            if _alike(source, item) and value.dim() > 1:
                item.replace_all_uses_with(source)
                return True
    return False


def _flag(node: fx.Node) -> bool:
    for i, arg in enumerate(node.args):
        if isinstance(arg, bool):
            node.update_arg(i, not arg)
            return True
    return False


def _group(node: fx.Node) -> bool:
    """Other ranks, or another layer."""
    for i, arg in enumerate(node.args):
        if isinstance(arg, str):
            node.update_arg(i, arg + "1")
            return True
    return False


EDITS: dict[str, Edit] = {
    "another eps": _eps,
    "operands exchanged": _exchanged,
    "another row": _rows,
    "another weight": _columns,
    "another scale": _scale,
    "scales of another row": _scale_rows,
    "a summand for the sum": _residual,
    "the other half turned": _flag,
    "another group": _group,
}


@pytest.mark.parametrize("fault", EDITS)
def test_wrong_graphs(fault: str) -> None:
    """The first two rewritten graphs that can be wrong in this way."""
    seen = 0
    for number in range(_INPUTS):
        arch, source = shipped_graphs.source(Random(f"edited {number}"))
        with oracle.on(arch):
            seen += _edited_differs(EDITS[fault], of_shipped(arch, dumps(source)))
        if seen == 2:
            return
    pytest.fail(f"{seen} graphs can be wrong in this way")


def _edited_differs(edit: Edit, checked: Check) -> bool:
    gm = checked.graph()
    before = set(gm.graph.nodes)
    checked.rules.apply(gm, tokens=checked.tokens)
    calls = [node for node in gm.graph.nodes if node not in before and _is_fused(node)]
    if not any(edit(node) for node in calls):
        return False
    gm.graph.lint()
    expected = checked.expected()
    if not expected:
        return False
    with pytest.raises(AssertionError):
        checked.compare(gm, expected)
    return True


def _is_fused(node: fx.Node) -> bool:
    return str(node.target).startswith("fusiondsl.")
