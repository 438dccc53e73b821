"""The calls that rules wrote, run on the values of the graph before.

A network carries every difference on and amplifies it, so its output says little about a single
fusion. Here the graph before the pass is interpreted, and each new call is given those values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from fusiondsl.engine.report import Fired, Report


@dataclass(frozen=True)
class Replaced:
    """A value of the graph before the pass, and what the fused call gives instead."""

    site: Fired
    call: fx.Node
    """The new call."""
    index: int
    """Which of its results."""
    fused: Tensor
    was: fx.Node
    original: Tensor


class Recording(fx.Interpreter):
    """Keeps the value of every node of the graph before the pass."""

    def __init__(self, before: fx.GraphModule, arguments: Sequence[Any]) -> None:
        super().__init__(before, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}
        self.run(*arguments)

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value
        return value


class Replay:
    """Runs the new nodes of a rewritten graph on recorded values."""

    def __init__(
        self,
        before: fx.GraphModule,
        after: fx.GraphModule,
        report: Report,
        values: Mapping[fx.Node, Any],
    ) -> None:
        self._old = {node.name: node for node in before.graph.nodes}
        # A new value carries the fake of the one it replaces, and copies of a graph share fakes.
        self._by_fake = {id(node.meta.get("val")): node for node in reversed(before.graph.nodes)}
        self._recorded = values
        self._sites = {name: site for site in report.fired for name in site.new_nodes}
        self._computed: dict[fx.Node, Any] = {}
        for node in after.graph.nodes:
            if self._site(node) is not None:
                self._computed[node] = self._evaluate(node)

    def calls(self) -> Iterator[list[Replaced]]:
        """What each new call replaces."""
        for call, result in self._computed.items():
            if call.target is operator.getitem:
                continue
            nodes = [call] if isinstance(result, Tensor) else list(call.users)
            replaced = [self._replaced(call, node) for node in nodes if node in self._computed]
            found = [value for value in replaced if value is not None]
            if found:
                yield found

    def arguments(self, call: fx.Node) -> tuple[Any, ...]:
        """What a new call was given."""
        args: tuple[Any, ...] = fx.map_arg(call.args, lambda node: self._value(node, call))
        return args

    def recorded(self, node: fx.Node) -> Any:
        return self._recorded[node]

    def _evaluate(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda argument: self._value(argument, node)
        )
        assert callable(node.target)
        return node.target(*args, **kwargs)

    def _value(self, node: fx.Node, user: fx.Node) -> Any:
        """As it was before the pass, unless it is made and used inside one site."""
        if node not in self._computed:
            return self._recorded[self._old[node.name]]
        was = None if self._site(node) is self._site(user) else self._was(node)
        return self._computed[node] if was is None else self._recorded[was]

    def _site(self, node: fx.Node) -> Fired | None:
        """The site that wrote a node; a reused `getitem` belongs to its call."""
        if node.name in self._sites:
            return self._sites[node.name]
        call = node.args[0] if node.target is operator.getitem else None
        return self._sites.get(call.name) if isinstance(call, fx.Node) else None

    def _was(self, node: fx.Node) -> fx.Node | None:
        return self._by_fake.get(id(node.meta["val"]))

    def _replaced(self, call: fx.Node, node: fx.Node) -> Replaced | None:
        site, was = self._site(call), self._was(node)
        if site is None or was is None:
            return None
        index = 0 if node is call else node.args[1]
        assert isinstance(index, int)
        return Replaced(site, call, index, self._computed[node], was, self._recorded[was])
