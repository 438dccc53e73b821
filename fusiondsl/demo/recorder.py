"""Inductor with the rules in its post-grad slot, and a record of what it was given.

A decoder compiled as here, but without rules, equals eager bit for bit. What Inductor generates
is elementwise arithmetic, which has one correctly rounded result, maxima, and the `exp` of SiLU,
for which it calls what eager's SiLU calls. Two things that it would change are held in place:
roundings between operations it fuses, and the order of sums. Left to itself it takes the mean
square of a norm in an order of its own, a few ulps of f32 from eager's; in bf16 that flips a value
of a norm now and then, and quantisation carries the flip through the layers behind.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import force_fallback

from fusiondsl.demo.sites import SiteComparison, compare_sites
from fusiondsl.engine.graph_pass import FusionPass


def compile_graph(
    gm: fx.GraphModule, inputs: list[Any], graph_pass: CustomGraphPass | None = None
) -> Callable[..., Any]:
    """Without `graph_pass`, the control.

    Graphs are not taken from a cache: the pass runs even if the graph was compiled before.
    """
    settings = {
        "post_grad_custom_post_pass": graph_pass,
        "emulate_precision_casts": True,
        "fx_graph_cache": False,
    }
    with force_fallback(torch.ops.aten.mean.dim), torch._inductor.config.patch(settings):
        compiled: Any = compile_fx(gm, inputs)
    call: Callable[..., Any] = compiled
    return call


class Recorder(CustomGraphPass):
    """The pass itself, with copies of the graph before and after it."""

    def __init__(self, graph_pass: FusionPass) -> None:
        self._pass = graph_pass
        self._before: fx.GraphModule | None = None
        self._after: fx.GraphModule | None = None
        self._arguments: Sequence[Any] = ()

    def __call__(self, graph: fx.Graph) -> None:
        self._before = _copied(graph)
        self._pass(graph)
        self._after = _copied(graph)

    def uuid(self) -> bytes | None:
        return self._pass.uuid()

    def backend(self, gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Inductor, with the pass where it sees every post-grad graph."""
        compiled = compile_graph(gm, inputs, self)

        def call(*arguments: Any) -> Any:
            self._arguments = arguments
            return compiled(*arguments)

        return call

    def compare_sites(self) -> list[SiteComparison]:
        """Every fused call on the inputs of the last run."""
        assert self._before is not None
        assert self._after is not None
        return compare_sites(self._before, self._after, self._pass.reports[-1], self._arguments)


def _copied(graph: fx.Graph) -> fx.GraphModule:
    owner: Any = graph.owning_module
    return fx.GraphModule(owner, copy.deepcopy(graph))
