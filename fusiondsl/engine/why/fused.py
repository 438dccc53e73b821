"""Where a graph has already what a rule writes, whoever put it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._ops import OpOverload

from fusiondsl import ir
from fusiondsl.dims.expr import Literal, Name
from fusiondsl.engine import aten
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.recipe import CREATIONS
from fusiondsl.engine.view import View
from fusiondsl.graphs.opaque import OpaqueOp

_TORCH = "torch:"
_UNSEEN: Any = object()
"""An argument that the graph may have, but not where it can be read."""
_FIXED: Any = object()
"""What a kernel is not told because it does one thing only: equal to every literal."""


@dataclass(frozen=True, eq=False)
class Standing:
    """One call of a graph that is an op a rule writes, or one of its kernels."""

    op: str
    node: fx.Node
    args: tuple[Any, ...]
    """As a call in a body writes them."""
    results: Mapping[int, Any]

    def __str__(self) -> str:
        return f"{self.node.name} is {self.op}"


class AlreadyFused:
    """One graph, looked at for what rules write."""

    def __init__(self, compiled: Compiled, graph: fx.Graph) -> None:
        self._compiled = compiled
        self._graph = graph
        self._found: dict[str, list[Standing]] = {}

    def places(self, rule: ir.Rule) -> Iterator[tuple[Standing, ...]]:
        """Every place where all that the rule writes stands, from op to op as the rule has it."""
        matched = {call.op for call in rule.match}
        written = [c for c in rule.replace if not c.op.startswith("prim.") and c.op not in matched]
        if not written:
            return
        sources = frozenset(self._torch_name(op) for op in matched)
        search = _Search(self, rule, written, sources)
        taken: set[fx.Node] = set()
        for first in self.calls(written[0].op):
            found = search.from_first(first)
            if found is not None and taken.isdisjoint(s.node for s in found):
                taken.update(s.node for s in found)
                yield found

    # --- what stands there -----------------------------------------------------------------------

    @cached_property
    def view(self) -> View:
        return View(self._graph, self._compiled.bindings)

    def calls(self, op: str) -> list[Standing]:
        """In the order of the graph: calls of the op itself, and of torch ops that implement it."""
        if op not in self._found:
            found = [*self._own(op), *self._kernels(op)]
            self._found[op] = sorted(found, key=lambda standing: self._order[standing.node])
        return self._found[op]

    @cached_property
    def _order(self) -> dict[fx.Node, int]:
        return {node: index for index, node in enumerate(self._graph.nodes)}

    def _own(self, op: str) -> Iterator[Standing]:
        for target in self.view.targets_by_name.get(op, ()):
            for node in self.view.nodes_of(target):
                call = self.view.call(node)
                if call is not None:
                    results = {i: values[0] for i, values in call.results.items() if values}
                    yield Standing(op, node, call.args, results)

    def _kernels(self, op: str) -> Iterator[Standing]:
        decl = self._compiled.program.ops.get(op)
        for impl in () if decl is None else decl.impls:
            for node in self._by_torch_name.get(impl.location.removeprefix(_TORCH), ()):
                args = _arguments(decl, impl, node) if decl is not None else None
                if args is not None:
                    yield Standing(op, node, args, {})

    @cached_property
    def _by_torch_name(self) -> dict[str, list[fx.Node]]:
        found: dict[str, list[fx.Node]] = {}
        for node in self._graph.nodes:
            name = torch_name(node)
            if name is not None:
                found.setdefault(name, []).append(node)
        return found

    def _torch_name(self, op: str) -> str | None:
        decl = self._compiled.program.ops.get(op)
        return None if decl is None else decl.torch_name

    def constant(self, op: str, position: int, operand: ir.Operand) -> Any:
        decl = self._compiled.program.ops[op]
        declared = decl.call_params[position].type
        wants_float = isinstance(declared, ir.ScalarType) and declared.kind == "float"
        return self._compiled.bindings.constant(operand, wants_float=wants_float)


class _Search:
    """The calls one rule writes, looked for together."""

    def __init__(
        self,
        graph: AlreadyFused,
        rule: ir.Rule,
        written: list[ir.Call],
        sources: frozenset[str | None],
    ) -> None:
        self._graph = graph
        self._written = written
        self._sources = sources
        """Torch ops of the rule's source: an op cannot be both."""
        self._primitives = _made_by_primitives(rule)
        self._tensors = {p.name: p.type for p in rule.params if isinstance(p.type, ir.TensorType)}

    def from_first(self, first: Standing) -> tuple[Standing, ...] | None:
        bound = self._fits(self._written[0], first, {})
        return None if bound is None else self._rest((first,), bound)

    def _rest(
        self, chosen: tuple[Standing, ...], bound: dict[str, Any]
    ) -> tuple[Standing, ...] | None:
        if len(chosen) == len(self._written):
            return chosen
        call = self._written[len(chosen)]
        for standing in self._graph.calls(call.op):
            more = self._fits(call, standing, bound)
            found = None if more is None else self._rest((*chosen, standing), more)
            if found is not None:
                return found
        return None

    def _fits(
        self, call: ir.Call, standing: Standing, bound: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The names with what they stand for, None where the call is not this one."""
        if torch_name(standing.node) in self._sources:
            return None
        # A kernel's results have no names here, so nothing can be told to read them.
        if len(self._written) > 1 and not standing.results:
            return None
        names = dict(bound)
        for position, (operand, item) in enumerate(zip(call.args, standing.args, strict=True)):
            if isinstance(operand, ir.Ref):
                if not self._reads(names, operand.name, item):
                    return None
            elif _is_literal(operand) and not _same(item, self._literal(call, position)):
                return None
        for index, value in standing.results.items():
            name = call.results[index] if index < len(call.results) else None
            if name is not None and not self._binds(names, name, value):
                return None
        return names

    def _literal(self, call: ir.Call, position: int) -> Any:
        return self._graph.constant(call.op, position, call.args[position])

    def _reads(self, names: dict[str, Any], name: str, item: Any) -> bool:
        """An argument may be what the rule has there: as in matching, no input is a constant."""
        if self._primitives.get(name) in CREATIONS:
            return self._is_constant(item)
        declared = self._tensors.get(name)
        if declared is not None and (
            self._is_constant(item) or (item is None and not declared.optional)
        ):
            return False
        return self._binds(names, name, item)

    def _is_constant(self, item: Any) -> bool:
        """`zeros_like` and the like, which a rule writes itself."""
        value = self._graph.view.strip(item, regroup=True) if isinstance(item, VALUES) else item
        return isinstance(value, fx.Node) and id(value.target) in aten.ALLOCATION_IDS

    def _binds(self, names: dict[str, Any], name: str, item: Any) -> bool:
        # Behind a view or a cast that the rule writes anything may stand.
        if name in self._primitives or item is _UNSEEN or item is _FIXED:
            return True
        value = self._graph.view.strip(item, regroup=True) if isinstance(item, VALUES) else item
        known = names.setdefault(name, value)
        return known is value or _same(known, value)


def called(node: fx.Node) -> Any:
    """What a node calls, functionalised or not."""
    target: Any = node.target
    wraps = target in (auto_functionalized, auto_functionalized_v2) and node.args
    return node.args[0] if wraps else target


def torch_name(node: fx.Node) -> str | None:
    """`namespace::op` of what a node calls."""
    target = called(node)
    if isinstance(target, OpOverload):
        return target._schema.name
    return target.torch_name if isinstance(target, OpaqueOp) else None


def _made_by_primitives(rule: ir.Rule) -> dict[str, str]:
    """Names of `replace` that are views, casts, slices or constants, with the primitive."""
    primitives = (call for call in rule.replace if call.op.startswith("prim."))
    return {name: call.op for call in primitives for name in call.results if name is not None}


def _arguments(decl: ir.OpDecl, impl: ir.Impl, node: fx.Node) -> tuple[Any, ...] | None:
    """What a call of a kernel's torch op gives the op; None where it calls it for another one."""
    if not impl.location.startswith(_TORCH):
        return None
    given: dict[str, Any] = {}
    pairs = list(zip(impl.args, _positional(node, len(impl.args)), strict=True))
    pairs += [(expr, node.kwargs.get(name, _UNSEEN)) for name, expr in impl.kwargs]
    for expr, item in pairs:
        if isinstance(expr, Literal) and item is not _UNSEEN and not _same(item, expr.value):
            return None
        if isinstance(expr, Name):
            given[expr.id] = item
    return tuple(given.get(param.name, _FIXED) for param in decl.call_params)


def _positional(node: fx.Node, count: int) -> list[Any]:
    """The first arguments of a call, as far as they can be told."""
    target = called(node)
    given = node.args[1:] if target is not node.target else node.args
    names = [a.name for a in target._schema.arguments] if isinstance(target, OpOverload) else []
    by_name = [node.kwargs.get(name, _UNSEEN) for name in names]
    return [*given, *by_name[len(given) :], *[_UNSEEN] * count][:count]


def _is_literal(operand: ir.Operand) -> bool:
    if isinstance(operand, ir.ListOf):
        return all(_is_literal(item) for item in operand.items)
    return isinstance(operand, ir.Const)


def _same(found: Any, wanted: Any) -> bool:
    if found is _FIXED:
        return True
    if isinstance(found, VALUES) or isinstance(wanted, VALUES):
        return found is wanted
    if isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    return type(found) is type(wanted) and bool(found == wanted)
