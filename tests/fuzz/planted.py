"""Random graphs with sources of rules in them, and changes of graphs that keep them graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_leaves

from fusiondsl.graphs.opaque import OpaqueOp
from tests.engine.lab import L
from tests.fuzz.oracle import call, value_of, whole
from tests.fuzz.rule_sets import GROUPS, Made, RuleSet
from tests.properties import test_mutation
from tests.properties.graphs import (
    EPS,
    ROWS,
    WIDTH,
    Built,
    Choose,
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
            return call(target, args, kwargs)


def graph_for(rules: RuleSet, rng: Random, writes: bool | None = None) -> fx.GraphModule:
    """Sources of the rules, whole, overlapping and in part, among other operations."""
    choose = rng.randrange
    built = Built(fx.Graph(), Fakes(rng))  # type: ignore[arg-type]
    for name, shape in _INPUTS:
        node = built.graph.placeholder(name)
        node.meta["val"] = built.fakes.of_input(shape)
        (built.values if len(shape) > 1 else built.weights).append(node)
    writes = rng.random() < 0.35 if writes is None else writes
    for _ in range(1 + choose(4)):
        for _ in range(choose(4)):
            noise(built, choose)
        _plant_one(built, rules, rng)
        if choose(5) == 0:
            _functionalized(built, choose)
        if writes and choose(2):
            test_mutation.write(built, choose)
    for _ in range(1 + choose(3) if writes else 0):
        if choose(2):
            test_mutation.source(built, choose)
        else:
            _crossed(built, choose)
        if not choose(3):
            test_mutation.write(built, choose)
    gm = finish(built, choose)
    if not writes and choose(2):
        reordered(gm.graph, choose)
    return gm


_INPUTS = (("x", (ROWS, WIDTH)), ("y", (ROWS, WIDTH)), ("v", (WIDTH,)), ("w", (WIDTH,)))


def _plant_one(built: Built, rules: RuleSet, rng: Random) -> None:
    if rules.guarded and rng.random() < 0.3:
        _guarded(built, rng.randrange)
    elif rules.known and (not rules.made or rng.random() < 0.4):
        plant(built, rng.choice(rules.known), rng.randrange)
    elif rules.made:
        _plant(built, rng.choice(rules.made), rng)


def _guarded(built: Built, choose: Choose) -> None:
    """The sources of `GUARDED`, read as they may be, or not."""
    a = built.values[-1 - choose(min(3, len(built.values)))]
    if choose(2):
        built.values.append(built.call(torch.ops.twin.soft.default, a))
        return
    bent = built.call(torch.ops.twin.bend.default, a)
    for _ in range(1 + choose(2)):
        built.results.append(built.call(torch.ops.twin.left.default, between(built, bent, choose)))
    if not choose(4):
        built.values.append(between(built, bent, choose))
    if not choose(6):
        built.results.append(built.call(aten.slice.Tensor, bent, 1, 0, WIDTH // 2))


def _functionalized(built: Built, choose: Choose) -> None:
    """A call that writes, as Inductor's passes see it, and a quant of what it has written."""

    def value() -> fx.Node:
        return built.values[-1 - choose(min(4, len(built.values)))]

    weight, x = built.weights[choose(2)], value()
    if choose(2):
        written = {"dest": built.call(aten.empty_like.default, x)}
        op, read = L.norm_into.default, {"x": x, "w": weight, "eps": EPS}
    else:
        written = {"x": x, "r": value()}
        op, read = L.add_norm_into.default, {"w": weight, "eps": EPS}
    if "r" in written and not choose(4):
        results = _in_one_base(built, op, written, read)
    elif choose(2):
        results = _second(built, op, written, read, choose)
    else:
        results = _first(built, op, written, read)
    for result in results:
        if choose(2):
            built.values.append(result)
    codes = built.call(
        L.group_codes.default, between(built, results[0], choose), (16, 32)[choose(2)]
    )
    built.results += built.items(codes)


def _crossed(built: Built, choose: Choose) -> None:
    """The calls of a source, and a write to what they read or make between them."""
    a = built.call(aten.mul.Tensor, built.values[-1 - choose(min(4, len(built.values)))], 0.5)
    b = built.values[choose(len(built.values))]
    kind = choose(3)
    if kind == 0:
        made = built.call(L.act.default, a)
    else:
        made = built.call(aten.empty_like.default, a)
        built.call(L.norm_into.default, made, a, built.weights[choose(2)], EPS)
    if choose(3):
        hit = (a, a, made, b)[choose(4)]
        part = built.call(aten.slice.Tensor, hit, 1, 0, WIDTH // 2) if choose(2) else hit
        built.call(aten.add_.Tensor, part, 1.0)
    if kind == 0:
        built.values.append(built.call(aten.add.Tensor, b, made))
    else:
        built.results += built.items(built.call(L.group_codes.default, made, (16, 32)[kind - 1]))
    built.values += [value for value in (a, made) if not choose(3)]


Nodes = dict[str, fx.Node]


def _first(built: Built, op: Any, written: Nodes, read: dict[str, Any]) -> list[fx.Node]:
    node = built.call(auto_functionalized, op, **written, **read)
    return [built.call(operator.getitem, node, i + 1) for i in range(len(written))]


def _second(
    built: Built, op: Any, written: Nodes, read: dict[str, Any], choose: Choose
) -> list[fx.Node]:
    """Each argument is a whole base, said in one of the ways there are."""
    bases = list(dict.fromkeys(written.values()))
    views: dict[str, Any] = {}
    for name, node in written.items():
        views[f"_{name}_base_index"] = bases.index(node)
        if not choose(4):
            views[f"_{name}_alias"] = True
        elif not choose(4):
            ends = {"dim": 1, "start": 0, "end": WIDTH}
            views |= {f"_{name}_slice_{key}": end for key, end in ends.items()}
    node = built.call(auto_functionalized_v2, op, **read, **views, _all_bases=bases)
    return [built.call(operator.getitem, node, bases.index(n) + 1) for n in written.values()]


def _in_one_base(built: Built, op: Any, written: Nodes, read: dict[str, Any]) -> list[fx.Node]:
    """Two arguments are the halves of one base."""
    base = built.call(aten.cat.default, list(written.values()), 1)
    halves = {name: (i * WIDTH, (i + 1) * WIDTH) for i, name in enumerate(written)}
    views: dict[str, Any] = {}
    for name, (start, end) in halves.items():
        views |= {f"_{name}_base_index": 0, f"_{name}_slice_dim": 1}
        views |= {f"_{name}_slice_start": start, f"_{name}_slice_end": end}
    node = built.call(auto_functionalized_v2, op, **read, **views, _all_bases=[base])
    made = built.call(operator.getitem, node, 1)
    return [built.call(aten.slice.Tensor, made, 1, *ends) for ends in halves.values()]


def _plant(built: Built, rule: Made, rng: Random) -> None:
    """The calls of a source, with what changes nothing between them; sometimes not all."""
    choose = rng.randrange
    known: dict[str, Any] = {}
    group = rng.choice(GROUPS)

    def value(name: str) -> Any:
        if name in known:
            spaced = name[0] != "w" and not choose(4)
            return between(built, known[name], choose) if spaced else known[name]
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

LARGEST = 1 << 19
"""Elements of all values of a graph."""

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
                if elements(gm.graph) > LARGEST:
                    raise ValueError("too large to be run")
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
        if node.op == "call_function" and not any(isinstance(a, OpaqueOp) for a in node.args):
            args, kwargs = fx.map_arg((node.args, node.kwargs), value_of)
            with mode:
                node.meta["val"] = call(node.target, args, kwargs)


def elements(graph: fx.Graph) -> int:
    """Of all values together, when the graph runs."""
    values = [v for node in graph.nodes for v in tree_leaves(node.meta.get("val"))]
    return sum(prod(map(whole, v.shape)) for v in values if isinstance(v, Tensor))


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
