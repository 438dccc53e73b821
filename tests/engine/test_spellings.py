"""Arguments of aten operations by position and by keyword, and ones their schema does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import fusiondsl

aten, prims = torch.ops.aten, torch.ops.prims

RULES = """
rule squared(x: D[t.., H]) {
  match { y = relu(square(x)) }
  replace { y = x * x }
  where { D == f32 }
  allow { unproved }
}
rule narrowed(x: D[t.., H]) {
  match { y = neg(x.to(bf16)) }
  replace { y = x.to(bf16) * -1.0 }
  where { D == f32 }
}
rule doubled(x: D[t.., H]) {
  match { y = exp(x * 2.0) }
  replace { y = x + 2.0 }
  where { D == f32 }
  allow { unproved }
}
"""

Write = Callable[[fx.Graph, fx.Node], fx.Node]


def _counts(write: Write) -> dict[str, int]:
    graph, mode = fx.Graph(), FakeTensorMode()
    x = graph.placeholder("x")
    with mode:
        x.meta["val"] = torch.empty(4, 8)
    graph.output((write(graph, x),))
    for node in graph.nodes:
        if node.op == "call_function":
            # `wrong` is what no schema has: the operation itself would refuse it.
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            known = {k: v for k, v in kwargs.items() if k != "wrong"}
            with mode:
                node.meta["val"] = node.target(*args, **known)
    report = fusiondsl.load_source(RULES).compile().apply(graph)
    graph.lint()
    return report.counts


def _after(outer: Any, inner: Any, *args: Any, **kwargs: Any) -> Write:
    def write(graph: fx.Graph, x: fx.Node) -> fx.Node:
        given = {k: x if v is INPUT else v for k, v in kwargs.items()}
        rest = tuple(x if a is INPUT else a for a in args)
        return graph.call_function(outer, (graph.call_function(inner, rest, given),))

    return write


INPUT = object()


@pytest.mark.parametrize(
    ("write", "rule"),
    [
        (_after(aten.relu.default, aten.pow.Tensor_Scalar, INPUT, 2), "squared"),
        (_after(aten.relu.default, aten.pow.Tensor_Scalar, INPUT, exponent=2), "squared"),
        (_after(aten.relu.default, aten.pow.Tensor_Scalar, self=INPUT, exponent=2), "squared"),
        (
            _after(
                aten.neg.default, prims.convert_element_type.default, a=INPUT, dtype=torch.bfloat16
            ),
            "narrowed",
        ),
        (_after(aten.exp.default, aten.mul.Tensor, INPUT, other=2.0), "doubled"),
    ],
)
def test_a_keyword_is_the_position_it_names(write: Write, rule: str) -> None:
    assert _counts(write) == {rule: 1}


@pytest.mark.parametrize(
    "write",
    [
        _after(aten.exp.default, aten.mul.Tensor, INPUT, 2.0, wrong=3),
        _after(aten.relu.default, aten.pow.Tensor_Scalar, INPUT, 2, wrong=3),
    ],
)
def test_an_argument_no_schema_has_is_not_ignored(write: Write) -> None:
    assert _counts(write) == {}


def test_an_empty_token_range_is_refused() -> None:
    with pytest.raises(ValueError, match="no token count"):
        fusiondsl.load_source(RULES).compile().apply(fx.Graph(), tokens=range(0))
