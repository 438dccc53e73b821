"""Several passes in one slot of Inductor: what was there, then ours."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from torch import fx
from torch._inductor import custom_graph_pass
from torch._inductor.custom_graph_pass import CustomGraphPass

from fusiondsl.engine.graph_pass import FusionPass

if TYPE_CHECKING or hasattr(custom_graph_pass, "CustomInferenceAwareGraphPass"):
    from torch._inductor.custom_graph_pass import CustomInferenceAwareGraphPass
else:  # torch before 2.12

    class CustomInferenceAwareGraphPass(CustomGraphPass):
        """No pass is told whether the graph is one of inference."""


class Chain(CustomGraphPass):
    """Runs what was in the slot, which `before` keeps as it was, and then `added`."""

    def __init__(self, before: Any, added: tuple[FusionPass, ...]) -> None:
        self.before = before
        self.added = added

    def __call__(self, graph: fx.Graph) -> None:
        for run in (*passes(self.before), *self.added):
            run(graph)

    def uuid(self) -> bytes | None:
        """None where one of the passes has no identity: then Inductor caches nothing."""
        known = [_uuid(each) for each in (*passes(self.before), *self.added)]
        if not all(known):
            return None
        return hashlib.sha256(repr(known).encode()).digest()


class InferenceAwareChain(Chain, CustomInferenceAwareGraphPass):
    """A chain one of whose passes wants to know whether the graph is one of inference."""

    def __call__(self, graph: fx.Graph, is_inference: bool = False) -> None:
        for run in passes(self.before):
            if isinstance(run, CustomInferenceAwareGraphPass):
                run(graph, is_inference=is_inference)
            else:
                run(graph)
        for run in self.added:
            run(graph)


def passes(value: Any) -> tuple[Any, ...]:
    """The passes that the value of a slot stands for."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def fusions(value: Any) -> tuple[FusionPass, ...]:
    """Those among them that are ours."""
    if isinstance(value, Chain):
        return value.added
    return (value,) if isinstance(value, FusionPass) else ()


def with_pass(value: Any, fusion: FusionPass) -> Any:
    """What a slot that holds `value` holds with `fusion` after it."""
    if value is None:
        return fusion
    if isinstance(value, FusionPass):
        return Chain(None, (value, fusion))
    if isinstance(value, Chain):
        return type(value)(value.before, (*value.added, fusion))
    aware = any(isinstance(each, CustomInferenceAwareGraphPass) for each in passes(value))
    return (InferenceAwareChain if aware else Chain)(value, (fusion,))


def without_pass(value: Any, fusion: FusionPass) -> Any:
    """What the slot holds without it. Raises `LookupError` where it does not hold it."""
    if not any(each is fusion for each in fusions(value)):
        raise LookupError("the pass is not in this slot")
    if not isinstance(value, Chain):
        return None
    rest = tuple(each for each in value.added if each is not fusion)
    if not rest:
        return value.before
    if value.before is None and len(rest) == 1:
        return rest[0]
    return type(value)(value.before, rest)


def _uuid(each: Any) -> Any:
    return each.uuid() if isinstance(each, CustomGraphPass) else None
