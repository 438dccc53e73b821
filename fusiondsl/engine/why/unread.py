"""Operations of a graph in which no rule can see anything: declared nowhere, not lowered, or not
opened."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.engine.bases import Unopened
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.why.answer import Cause
from fusiondsl.graphs.targets import name_of

_WRAPPERS = (auto_functionalized, auto_functionalized_v2)
_TORCH_OWN = ("torch.ops.aten.", "torch.ops.prims.", "torch.ops.higher_order.")
_ALIKE = 2
"""Words that the name of an op has in common with one it may stand for."""


def undeclared(
    graph: fx.Graph, bindings: Bindings, wanted: Iterable[str]
) -> tuple[fx.Node, str, str] | None:
    """A call of an op that no declaration covers and whose name is like that of a wanted one.

    The call, the name of its op, and the op it is like.
    """
    words = {op: _words(op) for op in wanted if not op.startswith("prim.")}
    for node in graph.nodes if words else ():
        if node.op != "call_function":
            continue
        target = node.args[0] if node.target in _WRAPPERS else node.target
        name = name_of(target)
        if not name.startswith("torch.ops.") or name.startswith(_TORCH_OWN):
            continue
        if bindings.of(target) is not None:
            continue
        own = name.removeprefix("torch.ops.")
        found = _words(".".join(own.split(".")[:2]))
        alike = max(words, key=lambda op: len(words[op] & found))
        if len(words[alike] & found) >= _ALIKE:
            return node, own, alike
    return None


def _words(op: str) -> frozenset[str]:
    return frozenset(op.rpartition(".")[2].split("_"))


class Unseen:
    """Calls that write parts of bases which are not opened."""

    def __init__(
        self, spellings: Mapping[str, Sequence[str]], unopened: Iterable[Unopened]
    ) -> None:
        self._spellings = spellings
        self._by_call = {found.call: found for found in unopened}

    def explained(self, cause: Cause, nodes: Mapping[str, fx.Node]) -> Cause:
        """A call that is missing may be one that is not seen."""
        if not self._by_call or cause.code != "structure" or cause.expected is None:
            return cause
        ops = (cause.expected, *self._spellings.get(cause.expected, ()))
        for node in _around(nodes.get(cause.node or "")):
            found = self._by_call.get(node.name)
            if found is not None and found.op in ops:
                message = f"expected {cause.expected}; {unopened_text(found)}"
                return replace(cause, message=message, node=node.name, found=found.op)
        return cause

    def of(self, wanted: Iterable[str]) -> Unopened | None:
        """One of an op that a rule wants."""
        ops = {spelled for op in wanted for spelled in (op, *self._spellings.get(op, ()))}
        return next((found for found in self._by_call.values() if found.op in ops), None)


def unopened_text(found: Unopened) -> str:
    what = f"{found.call} calls {found.op} on parts of a base, which are not seen"
    return f"{what}: {found.reason}"


def _around(node: fx.Node | None) -> Iterator[fx.Node]:
    """A value, what its views show, and who reads it."""
    if node is None:
        return
    yield from node.users
    source: object = node
    while isinstance(source, fx.Node):
        yield source
        source = source.args[0] if source.args else None


def not_lowered(graph: fx.Graph) -> fx.Node | None:
    """A call of a method, a module or a Python function on tensors: a graph before aten."""
    return next((node for node in graph.nodes if _is_python(node)), None)


def _is_python(node: fx.Node) -> bool:
    if node.op in ("call_method", "call_module"):
        return True
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    assert callable(node.target)
    known = name_of(node.target).startswith("torch.ops.")
    return not known and isinstance(node.meta.get("val"), torch.Tensor)
