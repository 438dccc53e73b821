"""Each fused call against the values it replaces, computed from the same inputs.

A network carries every difference on and amplifies it, so its output says little about a single
fusion. Here the graph before the pass is interpreted, and each new call is given those values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from fusiondsl.engine.report import Fired, Report
from fusiondsl.ops.registry import declaration
from fusiondsl.verify.numerics import Comparison, PackedComparison, compare, compare_fp8


@dataclass(frozen=True)
class Replaced:
    """A value of the graph before the pass, and what the fused call gives instead."""

    rule: str
    result: str
    """The fused op's name for it, or the node's where the op is not one of ours."""
    fused: Tensor
    original: Tensor


@dataclass(frozen=True)
class SiteComparison:
    rule: str
    results: str
    found: Comparison | PackedComparison


def compare_sites(
    before: fx.GraphModule, after: fx.GraphModule, report: Report, arguments: Sequence[Any]
) -> list[SiteComparison]:
    """One comparison a replaced value; fp8 codes are compared together with their scales."""
    recording = _Recording(before)
    recording.run(*arguments)
    replay = _Replay(before, after, report, recording.values)
    return [found for values in replay.sites() for found in _compared(values)]


def _compared(values: Sequence[Replaced]) -> Iterator[SiteComparison]:
    codes = next((v for v in values if v.fused.dtype is torch.float8_e4m3fn), None)
    scales = next((v for v in values if v.fused.dtype is torch.float32), None)
    packed = () if codes is None or scales is None else (codes, scales)
    if codes is not None and scales is not None:
        found = compare_fp8((codes.fused, scales.fused), (codes.original, scales.original))
        yield SiteComparison(codes.rule, f"{codes.result}, {scales.result}", found)
    for value in values:
        if not any(value is part for part in packed):
            yield SiteComparison(value.rule, value.result, compare(value.fused, value.original))


class _Recording(fx.Interpreter):
    """Keeps the value of every node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = value
        return value


class _Replay:
    """Runs the new nodes of a rewritten graph on the values of the graph before."""

    def __init__(
        self,
        before: fx.GraphModule,
        after: fx.GraphModule,
        report: Report,
        values: Mapping[str, Any],
    ) -> None:
        self._old = {node.name: node for node in before.graph.nodes}
        self._after = after
        self._values = values
        self._sites = {name: site for site in report.fired for name in site.new_nodes}
        self._computed: dict[fx.Node, Any] = {}

    def sites(self) -> Iterator[list[Replaced]]:
        for node in self._after.graph.nodes:
            if self._is_new(node):
                self._computed[node] = self._evaluate(node)
        for call in self._computed:
            if call.target is operator.getitem:
                continue
            single = isinstance(self._computed[call], Tensor)
            results = [call] if single else list(call.users)
            replaced = [self._replaced(call, node) for node in results]
            found = [value for value in replaced if value is not None]
            if found:
                yield found

    def _is_new(self, node: fx.Node) -> bool:
        """Written by a rule, or a `getitem` that now takes from such a call."""
        if node.name in self._sites:
            return True
        return node.target is operator.getitem and node.args[0] in self._computed

    def _evaluate(self, node: fx.Node) -> Any:
        site = self._site(node)
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda argument: self._value(argument, site)
        )
        assert callable(node.target)
        return node.target(*args, **kwargs)

    def _value(self, node: fx.Node, site: Fired) -> Any:
        """As it was before the pass, unless it is made and used inside one site."""
        if node not in self._computed:
            return self._values[node.name]
        original = None if self._site(node) is site else self._original(node)
        return self._computed[node] if original is None else self._values[original]

    def _site(self, node: fx.Node) -> Fired:
        """The site that wrote a new node; a reused `getitem` belongs to its call."""
        if node.name in self._sites:
            return self._sites[node.name]
        call = node.args[0]
        assert isinstance(call, fx.Node)
        return self._sites[call.name]

    def _replaced(self, call: fx.Node, node: fx.Node) -> Replaced | None:
        original = self._original(node) if node in self._computed else None
        if original is None:
            return None
        result = _result_name(call, node)
        value = self._computed[node]
        return Replaced(self._site(call).rule, result, value, self._values[original])

    def _original(self, node: fx.Node) -> str | None:
        """The name of the value `node` replaces: what its users read in the graph before."""
        if node.name in self._old:
            return node.name
        for user in node.users:
            old = self._old.get(user.name)
            if old is None:
                continue
            for now, then in zip(_inputs(user), _inputs(old), strict=True):
                if now is node:
                    return then.name
        return self._anchor(node)

    def _anchor(self, node: fx.Node) -> str | None:
        """Only read by other new calls: where the match was anchored, if that is the value."""
        anchor = self._site(node).node
        now, then = self._computed[node], self._values[anchor]
        if node.target is operator.getitem or not isinstance(then, Tensor):
            return None
        return anchor if (now.shape, now.dtype) == (then.shape, then.dtype) else None


def _inputs(node: fx.Node) -> list[fx.Node]:
    """The node's inputs in order, repeated ones included."""
    inputs: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), inputs.append)
    return inputs


def _result_name(call: fx.Node, node: fx.Node) -> str:
    found = (
        declaration(call.target.name()) if isinstance(call.target, torch._ops.OpOverload) else None
    )
    if found is None:
        return node.name
    index = node.args[1] if node is not call else 0
    assert isinstance(index, int)
    return found[0].call_results[index].name
