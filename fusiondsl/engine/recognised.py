"""A call as rules see it, whatever its spelling in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from fusiondsl import ir
from fusiondsl.engine.view import Call

if TYPE_CHECKING:
    from fusiondsl.engine.respelled import Beyond


class Recognised:
    """A call as rules see it: of an op, a primitive, or a semantic op in one of its forms."""

    __slots__ = ("args", "buffers", "form", "node", "nodes", "op", "results", "spelled")

    beyond: tuple[Beyond, ...] = ()
    """How the spelling differs from what is asked for."""

    def __init__(
        self,
        op: str,
        args: tuple[Any, ...],
        node: fx.Node,
        results: Mapping[int, list[Any]],
        nodes: tuple[fx.Node, ...],
        buffers: tuple[fx.Node, ...] = (),
        form: ir.Form | None = None,
        spelled: tuple[int | None, ...] = (),
    ) -> None:
        self.op = op
        self.args = args
        self.node = node
        self.results = results
        self.nodes = nodes
        """All graph nodes the call is made of, but for `getitem`s of results."""
        self.buffers = buffers
        self.form = form
        self.spelled = spelled
        """Where the call is one operation: that operation's result for each result here."""

    def result(self, index: int) -> Any | None:
        nodes = self.results.get(index)
        return nodes[0] if nodes else None


def absent(op: str, near: fx.Node) -> Recognised:
    """A call that is not in the graph because nobody uses its result."""
    return Recognised(op, (), near, {}, nodes=())


def wrap(call: Call) -> Recognised:
    """A call as itself."""
    count = 1 if call.binding is None else len(call.binding.results)
    return Recognised(
        call.op,
        call.args,
        call.node,
        call.results,
        nodes=(call.node,),
        buffers=call.buffers,
        spelled=tuple(range(count)),
    )
