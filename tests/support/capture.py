"""Graphs for tests: what `torch.compile` leaves after grad passes, and plain `make_fx` traces."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.proxy_tensor import make_fx


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
    names = list(inspect.signature(function).parameters)
    order: list[int | None] = []
    catch = _Catch()

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                order.append(_argument(node, names))
        return compile_fx(gm, inputs)

    torch._dynamo.reset()
    fresh = [a.clone() for a in args]
    for tensor in fresh:
        if dynamic and tensor.dim() > 1 and tensor.shape[0] == args[0].shape[0]:
            torch._dynamo.mark_dynamic(tensor, 0)
    settings = {
        "post_grad_custom_post_pass": catch,
        "force_disable_caches": True,
        "enable_auto_functionalized_v2": functionalized == 2,
    }
    with config.patch(settings), torch.no_grad():
        try:
            torch.compile(function, backend=backend, fullgraph=True)(*fresh)
        except Exception:
            if catch.gm is None:
                raise
    assert catch.gm is not None
    return Captured(catch.gm, tuple(order))


def _argument(node: fx.Node, names: list[str]) -> int | None:
    """Dynamo names its inputs after the arguments: `L_x_` is `x`."""
    name = str(node.target).removeprefix("L_").removesuffix("_").lower()
    lowered = [n.lower() for n in names]
    return lowered.index(name) if name in lowered else None


def traced(function: Callable[..., Any], *args: torch.Tensor, mode: str = "symbolic") -> Captured:
    """A `make_fx` trace: sizes are read from the inputs, mutation stays as it is written."""
    gm = make_fx(function, tracing_mode=mode)(*(a.clone() for a in args))
    return Captured(gm, tuple(range(len(args))))
