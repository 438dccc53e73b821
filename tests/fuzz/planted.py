"""Random graphs with sources of rules in them, and changes of graphs that keep them graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_leaves

from tests.engine.lab import L
from tests.fuzz.oracle import SIZE
from tests.fuzz.rule_sets import GROUPS, Made, RuleSet
from tests.properties import test_mutation
from tests.properties.graphs import (
    EPS,
    ROWS,
    WIDTH,
    Built,
    between,
    finish,
    noise,
    plant,
    reordered,
)

aten = torch.ops.aten


class Fakes:
    """Fake values of one graph."""

    def __init__(self, rng: Random) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        first = rng.choice((DimDynamic.DUCK, DimDynamic.STATIC))
        self._context = StatelessSymbolicContext(dynamic_sizes=[first, DimDynamic.STATIC])
        self._dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16))

    def of_input(self, shape: tuple[int, ...]) -> Tensor:
        context = self._context if len(shape) > 1 else None
        value = torch.empty(shape, dtype=self._dtype)
        return self.mode.from_tensor(value, static_shapes=context is None, symbolic_context=context)

    def of_call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        with self.mode:
            return target(*args, **kwargs)


def graph_for(rules: RuleSet, rng: Random) -> fx.GraphModule:
    """Sources of the rules, whole, overlapping and in part, among other operations."""
    choose = rng.randrange
    built = Built(fx.Graph(), Fakes(rng))  # type: ignore[arg-type]
    for name, shape in _INPUTS:
        node = built.graph.placeholder(name)
        node.meta["val"] = built.fakes.of_input(shape)
        (built.values if len(shape) > 1 else built.weights).append(node)
    writes = rng.random() < 0.35
    for _ in range(1 + choose(4)):
        for _ in range(choose(4)):
            noise(built, choose)
        _plant_one(built, rules, rng)
        if writes and choose(2):
            test_mutation.write(built, choose)
    if writes:
        test_mutation.source(built, choose)
    gm = finish(built, choose)
    if not writes and choose(2):
        reordered(gm.graph, choose)
    return gm


_INPUTS = (("x", (ROWS, WIDTH)), ("y", (ROWS, WIDTH)), ("v", (WIDTH,)), ("w", (WIDTH,)))


def _plant_one(built: Built, rules: RuleSet, rng: Random) -> None:
    if rules.known and (not rules.made or rng.random() < 0.4):
        plant(built, rng.choice(rules.known), rng.randrange)
    elif rules.made:
        _plant(built, rng.choice(rules.made), rng)


def _plant(built: Built, rule: Made, rng: Random) -> None:
    """The calls of a source, with what changes nothing between them; sometimes not all."""
    choose = rng.randrange
    known: dict[str, Any] = {}
    group = rng.choice(GROUPS)

    def value(name: str) -> Any:
        if name in known:
            return between(built, known[name], choose) if not choose(4) else known[name]
        if name[0] in "xw":
            pool = built.values if name[0] == "x" else built.weights
            known[name] = rng.choice(pool[-4:])
            return known[name]
        return _scalar(name, group)

    for step in rule.steps:
        if not choose(12):
            noise(built, choose)
        args = [value(arg) for arg in step.args]
        if step.op == "+":
            if choose(2):
                args.reverse()
            nodes = [built.call(aten.add.Tensor, *args)]
        else:
            node = built.call(getattr(L, step.op).default, *args)
            nodes = [node] if len(step.results) == 1 else built.items(node)
        known.update(zip(step.results, nodes, strict=True))
        for name, node in zip(step.results, nodes, strict=True):
            if name[0] in "qs":
                built.results.append(node)
            elif name in rule.shown or not choose(12):
                built.values.append(node)


def _scalar(name: str, group: int) -> Any:
    known: dict[str, Any] = {"eps": EPS, "by": group, "group": "tp", '"tp"': "tp", "[1]": [1]}
    return known[name] if name in known else int(name)


# --- changes -------------------------------------------------------------------------------------

_LARGEST = 1 << 17
"""Elements of a value."""

Change = Callable[[fx.Graph, Random], bool]
"""Whether there was something to change."""


def changed(gm: fx.GraphModule, rng: Random) -> None:
    """A few changes; after each, every value is what its operation gives, or it is taken back."""
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        kept = fx.Graph()
        kept.output(kept.graph_copy(gm.graph, {}))
        change = rng.choice(_CHANGES)
        try:
            if change(gm.graph, rng):
                gm.graph.lint()
                propagate(gm.graph)
        except Exception:  # a fake, or a schema, refuses it
            gm.graph = kept
            gm.recompile()


def propagate(graph: fx.Graph) -> None:
    """Computes the values of all calls anew."""
    mode = next(
        value.fake_mode
        for node in graph.nodes
        if hasattr(value := node.meta.get("val"), "fake_mode")
    )
    for node in graph.nodes:
        if node.op == "call_function":
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with mode:
                node.meta["val"] = node.target(*args, **kwargs)
            if any(map(_is_large, tree_leaves(node.meta["val"]))):
                raise ValueError(f"{node} is too large to be run")


def _is_large(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    sizes = [size for size in value.shape if isinstance(size, int)]
    return prod(sizes) > (_LARGEST if len(sizes) == value.dim() else _LARGEST // SIZE)


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _tensors(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if isinstance(node.meta.get("val"), Tensor)]


def _floating(graph: fx.Graph) -> list[fx.Node]:
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return [node for node in _tensors(graph) if node.meta["val"].dtype in kinds]


def _call(graph: fx.Graph, after: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    place = after
    while place.next.op == "placeholder":
        place = place.next
    with graph.inserting_after(place):
        return graph.call_function(target, args, kwargs)


def _user(graph: fx.Graph, rng: Random) -> bool:
    """Somebody else reads a value."""
    outputs = graph.output_node()
    (results,) = outputs.args
    node = rng.choice(_tensors(graph))
    if rng.randrange(2) and node in _floating(graph):
        node = _call(graph, node, aten.mul.Tensor, node, 0.5)
    outputs.args = ((*results, node),)  # type: ignore[misc]
    return True


def _no_user(graph: fx.Graph, rng: Random) -> bool:
    """A result is not returned any more."""
    outputs = graph.output_node()
    results = list(outputs.args[0])  # type: ignore[arg-type]
    if len(results) < 2:
        return False
    results.pop(rng.randrange(len(results)))
    outputs.args = (tuple(results),)
    return True


def _between(graph: fx.Graph, rng: Random) -> bool:
    """Something between a value and one of its users; most of it changes nothing."""
    node = rng.choice(_floating(graph))
    if not node.users:
        return False
    user = rng.choice(list(node.users))
    value = node.meta["val"]
    last, rank = value.shape[-1] if value.dim() else 1, value.dim()
    other = torch.bfloat16 if value.dtype != torch.bfloat16 else torch.float32
    match rng.randrange(11):
        case 0:
            new = _call(graph, node, aten.clone.default, node)
        case 1:
            new = _call(graph, node, aten.view.default, node, [-1, last])
        case 2:
            new = _call(graph, node, aten.mul.Tensor, node, 1.5)
        case 3:
            new = _call(graph, node, aten.add.Tensor, node, 0)
        case 4:
            new = _call(graph, node, aten._to_copy.default, node, dtype=value.dtype)
        case 5:
            low = _call(graph, node, aten._to_copy.default, node, dtype=other)
            new = _call(graph, low, aten._to_copy.default, low, dtype=value.dtype)
        case 6 if rank > 1:
            turned = _call(graph, node, aten.transpose.int, node, 0, 1)
            new = _call(graph, turned, aten.transpose.int, turned, 0, 1)
        case 7 if rank > 1:
            turned = _call(graph, node, aten.transpose.int, node, 0, 1)
            whole = _call(graph, turned, aten.clone.default, turned,
                          memory_format=torch.contiguous_format)  # fmt: skip
            new = _call(graph, whole, aten.transpose.int, whole, 0, 1)
        case 8:
            new = _call(graph, node, aten.slice.Tensor, node, 0, 0, 9223372036854775807)
        case 9:
            new = _call(graph, node, aten.expand.default, node, [-1] * rank)
        case _:
            new = _call(graph, node, aten.alias.default, node)
    user.replace_input_with(node, new)
    return True


def _constant(graph: fx.Graph, rng: Random) -> bool:
    """Another number."""
    places = [
        (node, i)
        for node in _calls(graph)
        for i, arg in enumerate(node.args)
        if isinstance(arg, int | float) and node.target is not operator.getitem
    ]
    if not places:
        return False
    node, place = rng.choice(places)
    value: Any = node.args[place]
    options: tuple[Any, ...] = (value + 1, value * 2, value / 2, 0, -value, not value)
    other = rng.choice(options)
    if isinstance(value, int) and not isinstance(value, bool):
        other = int(other)
    node.update_arg(place, type(value)(other))
    return True


def _exchange(graph: fx.Graph, rng: Random) -> bool:
    """An argument becomes an earlier value of the same kind."""
    node = rng.choice(_calls(graph))
    inputs = [item for item in node.all_input_nodes if isinstance(item.meta.get("val"), Tensor)]
    if not inputs:
        return False
    old = rng.choice(inputs)
    same = [item for item in _tensors(graph) if item < node and _kind(item) == _kind(old)]
    node.replace_input_with(old, rng.choice(same))
    return True


def _kind(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.dtype, str(value.shape), str(value.stride())


def _swap(graph: fx.Graph, rng: Random) -> bool:
    """Two arguments trade places."""
    calls = [node for node in _calls(graph) if sum(isinstance(a, fx.Node) for a in node.args) > 1]
    if not calls:
        return False
    node = rng.choice(calls)
    places = [i for i, arg in enumerate(node.args) if isinstance(arg, fx.Node)]
    one, other = rng.sample(places, 2)
    args = list(node.args)
    args[one], args[other] = args[other], args[one]
    node.args = tuple(args)
    return True


def _double(graph: fx.Graph, rng: Random) -> bool:
    """A call is made twice, and the second serves some of the users."""
    node = rng.choice(_calls(graph))
    if node.target is operator.getitem or not node.users:
        return False
    with graph.inserting_after(node):
        copy = graph.node_copy(node)
    for user in list(node.users):
        if user is not copy and rng.randrange(2):
            user.replace_input_with(node, copy)
    return True


def _write(graph: fx.Graph, rng: Random) -> bool:
    """Something is written in place, somewhere."""
    node = rng.choice(_floating(graph))
    later = [other for other in _calls(graph) if node < other] or [graph.output_node()]
    place = rng.choice([*later, graph.output_node()])
    same = [item for item in _tensors(graph) if item < place and _kind(item) == _kind(node)]
    with graph.inserting_before(place):
        match rng.randrange(4):
            case 0:
                graph.call_function(aten.add_.Tensor, (node, 1.0))
            case 1:
                graph.call_function(aten.mul_.Tensor, (node, 0.5))
            case 2:
                graph.call_function(aten.copy_.default, (node, rng.choice(same)))
            case _:
                graph.call_function(aten.zero_.default, (node,))
    return True


def _order(graph: fx.Graph, rng: Random) -> bool:
    """Another order of the same operations, where none of them writes."""
    if any(
        getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in _calls(graph)
    ):  # type: ignore[union-attr]
        return False
    reordered(graph, rng.randrange)
    return True


_CHANGES: tuple[Change, ...] = (
    _user, _no_user, _between, _between, _between, _constant, _exchange, _exchange, _swap, _double,
    _write, _order,
)  # fmt: skip
