"""Random graphs over a small vocabulary, with planted sources of rules, broken and overlapping."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._pytree import tree_flatten

from tests.engine.lab import F32, L

ROWS, WIDTH = 4, 64
EPS, GROUP = 1e-6, 32
aten = torch.ops.aten

RULES = {
    "codes": """
rule codes(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); q, s = lab.group_codes(n, 32) }
  replace { q, s = lab.norm_codes(x, w, eps, 32) }
}
""",
    "added": """
rule added(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm(x, r, w, eps); q, s = lab.group_codes(n, by) }
  replace { q, s, total = lab.add_norm_codes(x, r, w, eps, by) }
}
""",
    "reduced": """
rule reduced(x: D[t.., H], w: D[H], eps: float, group: str) {
  match { n = lab.norm(lab.reduce(x, group), w, eps) }
  replace { n = lab.reduce_norm(x, w, eps, group) }
}
""",
    "both": """
rule both(x: D[t.., H], w: D[H], eps: float, group: str) {
  match { n = lab.norm(lab.reduce(x, group), w, eps); q, s = lab.group_codes(n, 32) }
  replace { q, s = lab.reduce_norm_codes(x, w, eps, 32, group) }
}
""",
    "pair": """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
""",
    "twice": """
rule twice(x: D[t..]) {
  match { y = lab.other(lab.act(x)) }
  replace { y = lab.twice(x) }
}
""",
    "into": """
rule into(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); q, s = lab.group_codes(n, 16) }
  replace { q, s = lab.norm_codes_into(x, w, eps, 16) }
}
""",
}


class Fakes:
    """Fake values of one mode, made once for all examples: each is handed out once a graph."""

    def __init__(self, symbolic: bool) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        first = DimDynamic.DUCK if symbolic else DimDynamic.STATIC
        self._context = StatelessSymbolicContext(dynamic_sizes=[first, DimDynamic.STATIC])
        self._pools: dict[Any, list[Any]] = {}
        self._taken: dict[Any, int] = {}
        self._kinds: dict[int, Any] = {}

    def restart(self) -> None:
        self._taken.clear()

    def of_input(self, shape: tuple[int, ...]) -> Tensor:
        context = self._context if len(shape) > 1 else None
        return self._take(
            shape,
            lambda: self.mode.from_tensor(
                torch.empty(shape), static_shapes=context is None, symbolic_context=context
            ),
        )

    def of_call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def make() -> Any:
            with self.mode:
                return target(*args, **kwargs)

        if target is operator.getitem:
            return args[0][args[1]]
        leaves, shape = tree_flatten((args, kwargs))
        return self._take((target, shape, tuple(self._kind(v) for v in leaves)), make)

    def _take(self, key: Any, make: Callable[[], Any]) -> Any:
        pool = self._pools.setdefault(key, [])
        place = self._taken.get(key, 0)
        self._taken[key] = place + 1
        if place == len(pool):
            pool.append(make())
        return pool[place]

    def _kind(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return (type(value), value)
        if id(value) not in self._kinds:  # pools keep every value alive
            text = (str(value.shape), str(value.stride()), value.dtype)
            self._kinds[id(value)] = text
        return self._kinds[id(value)]


@cache
def fakes(symbolic: bool) -> Fakes:
    return Fakes(symbolic)


@dataclass
class Built:
    """A graph under construction; every value has the shape of the first input."""

    graph: fx.Graph
    fakes: Fakes
    values: list[fx.Node] = field(default_factory=list)
    weights: list[fx.Node] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    """Codes and scales: of other shapes, only ever returned."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        given, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        node.meta["val"] = self.fakes.of_call(target, tuple(given), dict(named))
        return node

    def items(self, node: fx.Node) -> list[fx.Node]:
        return [self.call(operator.getitem, node, i) for i in range(len(node.meta["val"]))]


def start(symbolic: bool) -> Built:
    made = fakes(symbolic)
    made.restart()
    graph = fx.Graph()
    built = Built(graph, made)
    for name in ("x", "y"):
        node = graph.placeholder(name)
        node.meta["val"] = made.of_input((ROWS, WIDTH))
        built.values.append(node)
    for name in ("v", "w"):
        node = graph.placeholder(name)
        node.meta["val"] = made.of_input((WIDTH,))
        built.weights.append(node)
    return built


def inputs() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), (WIDTH,)]
    return tuple(torch.randn(s, generator=generator, dtype=F32) for s in shapes)


# --- what is drawn -------------------------------------------------------------------------------

Choose = Callable[[int], int]
"""A number below the bound."""


def noise(built: Built, choose: Choose) -> None:
    """Something of the vocabulary on values that are there."""
    a, b = _value(built, choose), _value(built, choose)
    kind = choose(9)
    if kind == 0:
        built.values.append(built.call(aten.add.Tensor, a, b))
    elif kind == 1:
        built.values.append(built.call(aten.mul.Tensor, a, 0.5))
    elif kind == 2:
        built.values.append(built.call(L.act.default, a))
    elif kind == 3:
        built.values.append(built.call(L.other.default, a))
    elif kind == 4:
        built.values.append(built.call(L.reduce.default, a, "tp"))
    elif kind == 5:
        built.values.append(built.call(L.norm.default, a, _weight(built, choose), EPS))
    elif kind == 6:
        built.results += built.items(built.call(L.group_codes.default, a, _group(choose)))
    elif kind == 7:
        node = built.call(L.add_norm.default, a, b, _weight(built, choose), EPS)
        built.values += built.items(node)
    else:
        built.values.append(between(built, a, choose))


def between(built: Built, value: fx.Node, choose: Choose) -> fx.Node:
    """Nothing, or something that changes nothing."""
    kind = choose(6)
    if kind == 1:
        return built.call(aten.clone.default, value)
    if kind == 2:
        return built.call(aten.reshape.default, value, [-1, WIDTH])
    if kind == 3:
        split = built.call(aten.reshape.default, value, [-1, 2, WIDTH // 2])
        return built.call(aten.reshape.default, split, [-1, WIDTH])
    if kind == 4:
        return built.call(aten.slice.Tensor, value, 1, 0, WIDTH)
    if kind == 5:
        once = built.call(aten.unsqueeze.default, value, 0)
        return built.call(aten.squeeze.dim, once, 0)
    return value


def plant(built: Built, rule: str, choose: Choose) -> fx.Node:
    """The source of a rule; returns its inner value, which other users may spoil."""
    a, b, w = _value(built, choose), _value(built, choose), _weight(built, choose)
    if rule in ("codes", "into", "both"):
        inner = between(built, a, choose)
        if rule == "both":
            inner = between(built, built.call(L.reduce.default, inner, "tp"), choose)
        inner = built.call(L.norm.default, inner, w, EPS)
        group = 16 if rule == "into" else GROUP
        _codes(built, between(built, inner, choose), group, choose)
    elif rule == "added":
        inner, total = built.items(built.call(L.add_norm.default, a, b, w, EPS))
        if choose(2):
            built.values.append(total)
        _codes(built, between(built, inner, choose), _group(choose), choose)
    elif rule == "reduced":
        inner = built.call(L.reduce.default, a, "tp")
        node = built.call(L.norm.default, between(built, inner, choose), w, EPS)
        built.values.append(node)
    elif rule == "pair":
        inner = built.call(L.act.default, a)
        order = (b, inner) if choose(2) else (inner, b)
        built.values.append(built.call(aten.add.Tensor, *order))
        if choose(2):
            built.values.insert(0, inner)
    else:
        inner = built.call(L.act.default, a)
        node = built.call(L.other.default, between(built, inner, choose))
        built.values.append(node)
    return inner


def _codes(built: Built, value: fx.Node, group: int, choose: Choose) -> None:
    spelled = choose(3)
    if spelled == 0:
        node = built.call(L.group_codes.default, value, group)
    elif spelled == 1:
        node = built.call(L.group_codes.default, value, group, False, by_column=False)
    else:
        node = built.call(L.group_codes.default, value, group=group)
    codes, scale = built.items(node)
    built.results += [codes, scale][: 1 + choose(2)]


def _value(built: Built, choose: Choose) -> fx.Node:
    """Late values are more likely."""
    back = min(choose(len(built.values)), choose(len(built.values)))
    return built.values[-1 - back]


def _weight(built: Built, choose: Choose) -> fx.Node:
    return built.weights[choose(len(built.weights))]


def _group(choose: Choose) -> int:
    return (16, GROUP)[choose(2)]


def finish(built: Built, choose: Choose) -> fx.GraphModule:
    outputs = [*built.results, built.values[-1]]
    outputs += [v for v in built.values[4:-1] if not v.users or not choose(4)]
    built.graph.output(tuple(dict.fromkeys(outputs)))
    return fx.GraphModule(torch.nn.Module(), built.graph)


def reordered(graph: fx.Graph, choose: Choose) -> None:
    """Another order of the same operations."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    missing = {node: sum(s in calls for s in node.all_input_nodes) for node in calls}
    ready = [node for node in calls if not missing[node]]
    end = graph.output_node()
    while ready:
        node = ready.pop(choose(len(ready)))
        end.prepend(node)
        for user in node.users:
            if user in missing:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
    graph.lint()


@st.composite
def random_graphs(draw: st.DrawFn, *, plants: int = 3) -> tuple[fx.GraphModule, list[str]]:
    """A graph and the rules planted in it, in a random order among other operations."""
    numbers = draw(st.randoms(use_true_random=False))
    choose = numbers.randrange
    built = start(bool(choose(2)))
    planted = []
    for _ in range(1 + choose(plants)):
        for _ in range(choose(4)):
            noise(built, choose)
        planted.append(sorted(RULES)[choose(len(RULES))])
        plant(built, planted[-1], choose)
    for _ in range(choose(3)):
        noise(built, choose)
    return finish(built, choose), planted
