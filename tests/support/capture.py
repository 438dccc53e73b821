"""Graphs for tests: what `torch.compile` leaves after grad passes, and plain `make_fx` traces."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)


@dataclass
class Captured:
    """A graph, and how its placeholders follow from the arguments of the traced function.

    `order` holds for each placeholder the index of an argument, or None for the symbolic size.
    """

    gm: fx.GraphModule
    order: tuple[int | None, ...]

    def run(self, args: Sequence[Any], tokens: int | None = None) -> tuple[Any, ...]:
        """The graph interpreted node by node, outputs flat."""
        given = [tokens if place is None else args[place] for place in self.order]
        with torch.no_grad():
            result = fx.Interpreter(self.gm).run(*given)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def targets(self) -> list[str]:
        """Names of what the graph calls, without `getitem`."""
        return [
            str(node.target)
            for node in self.gm.graph.nodes
            if node.op == "call_function" and "getitem" not in str(node.target)
        ]


class _Stop(Exception):
    """Ends the compilation once the graph is in hand."""


class _Catch(CustomGraphPass):
    def __init__(self) -> None:
        self.gm: fx.GraphModule | None = None

    def __call__(self, graph: fx.Graph) -> None:
        self.gm = fx.GraphModule(graph.owning_module, copy.deepcopy(graph))
        raise _Stop

    def uuid(self) -> None:
        return None


def post_grad(
    function: Callable[..., Any],
    *args: torch.Tensor,
    dynamic: bool = True,
    functionalized: int = 2,
) -> Captured:
    """The graph of `function` where a post-grad custom pass of `torch.compile` sees it.

    Dimension 0 of activations (arguments of more than one dimension that share the size of the
    first) is symbolic with `dynamic`. `functionalized` picks auto_functionalized v1 or v2.
    """
    order: list[int | None] = []
    catch = _Catch()
    rows = args[0].shape[0]
    shared = [i for i, a in enumerate(args) if dynamic and a.dim() > 1 and a.shape[0] == rows]

    def related(*tensors: torch.Tensor) -> Any:
        for i in shared[1:]:  # one symbol for all of them
            torch._check(tensors[i].shape[0] == tensors[0].shape[0])
        return function(*tensors)

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        order.extend(_argument(n) for n in gm.graph.nodes if n.op == "placeholder")
        return compile_fx(gm, inputs)

    torch._dynamo.reset()
    fresh = [a.clone() for a in args]
    for i in shared:
        torch._dynamo.mark_dynamic(fresh[i], 0)
    settings = {
        "post_grad_custom_post_pass": catch,
        "fx_graph_cache": False,
        "enable_auto_functionalized_v2": functionalized == 2,
    }
    with config.patch(settings), torch.no_grad():
        try:
            torch.compile(related, backend=backend, fullgraph=True)(*fresh)
        except Exception:
            if catch.gm is None:
                raise
    assert catch.gm is not None
    return Captured(catch.gm, tuple(order))


def _argument(node: fx.Node) -> int | None:
    """Dynamo names the inputs of `related` `L_tensors_0_`, ...; a size has another name."""
    found = re.fullmatch(r"L_tensors_(\d+)_", str(node.target))
    return int(found[1]) if found else None


def traced(function: Callable[..., Any], *args: torch.Tensor, dynamic: bool = True) -> Captured:
    """A `make_fx` trace: sizes are read from the inputs, mutation stays as it is written."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = []
    for tensor in args:
        first = DimDynamic.DUCK if dynamic and tensor.dim() > 1 else DimDynamic.STATIC
        sizes = [first, *[DimDynamic.STATIC] * (tensor.dim() - 1)][: tensor.dim()]
        context = StatelessSymbolicContext(dynamic_sizes=sizes)
        fakes.append(mode.from_tensor(tensor.clone(), symbolic_context=context))
    with mode:
        gm = make_fx(function, tracing_mode="real")(*fakes)
    return Captured(gm, tuple(range(len(args))))
