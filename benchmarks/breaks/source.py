"""What is broken: a fresh source of a rule on which it fires, and what is said about a break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusiondsl import ir
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.target import ENV_FACTS, Target
from fusiondsl.verify.examples import Trial
from fusiondsl.verify.samples import NoSample
from fusiondsl.verify.source_graph import NoSource

aten = torch.ops.aten
ARCH, RANKS = "gfx950", 8


@dataclass(frozen=True)
class Expected:
    """The true cause; `nodes` and `fields` are what may be named, one of each."""

    code: str
    nodes: frozenset[str]
    fields: frozenset[str]
    instead: Expected | None = None
    """The same fact told from its other end."""


@dataclass(frozen=True)
class Broken:
    """A graph on which `rule` does not fire, and why."""

    rule: str
    kind: str
    detail: str
    rules: CompiledRules
    graph: fx.GraphModule
    expected: Expected

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.kind} {self.detail}"


@dataclass
class Source:
    """A fresh source of a rule on which it fires."""

    program: ir.Program
    """All the rules there are."""
    rule: ir.Rule
    rules: CompiledRules
    gm: fx.GraphModule
    nodes: dict[str, fx.Node]

    @property
    def graph(self) -> fx.Graph:
        return self.gm.graph

    def call_of(self, call: ir.Call) -> fx.Node | None:
        """The node that performs a call of the source; None where nobody reads its results."""
        name = next((name for name in call.results if name in self.nodes), None)
        if name is None:
            bindings = self.rules.compiled.bindings
            bound = ((n, bindings.of(target_of(n))) for n in self.graph.nodes if n.args)
            return next((n for n, binding in bound if binding and binding.name == call.op), None)
        node = self.nodes[name]
        parent = node.args[0] if node.args else None
        is_item = call.op in self.rules.program.ops and _is_item(node)
        return parent if is_item and isinstance(parent, fx.Node) else node

    def broken(self, kind: str, detail: str, code: str, nodes: Any, *fields: str | None) -> Broken:
        named = frozenset(n.name for n in (nodes if isinstance(nodes, (list, tuple)) else [nodes]))
        wanted = Expected(code, named, frozenset(f for f in fields if f))
        return Broken(self.rule.name, kind, detail, self.rules, self.gm, wanted)

    def add(self, after: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with self.graph.inserting_after(after):
            node = self.graph.call_function(target, args, kwargs)
        like = next(a for a in args if isinstance(a, fx.Node)).meta["val"]
        fake = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with like.fake_mode:
            node.meta["val"] = target(*fake[0], **fake[1])
        return node

    def output(self, node: fx.Node) -> None:
        last = next(reversed(self.graph.nodes))
        last.args = ((*last.args[0], node),)


Make: TypeAlias = Callable[[], Source]
Break: TypeAlias = Callable[[Make], Iterator[Broken]]


def sources(program: ir.Program, rule: ir.Rule) -> Make | None:
    """Makes sources of a rule that fire; None where there is none."""

    def make() -> Source:
        example = next((e for e in rule.examples if e.fires), None)
        trial = Trial(base(program), rule, dict(example.bindings) if example else {})
        gm, nodes = trial.source(rule.where)
        return Source(program, rule, trial.rules, gm, nodes)

    try:
        source = make()
    except (NoSample, NoSource):
        return None
    return make if fires(source.rules, source.gm, rule.name) else None


def fires(rules: CompiledRules, gm: fx.GraphModule, rule: str) -> bool:
    return rule in rules.apply(gm, rewrite=False).counts


def base(program: ir.Program) -> CompiledRules:
    facts: dict[str, Any] = {n: True for n, kind in ENV_FACTS.items() if kind == "bool"}
    return CompiledRules(program, Target(ARCH, RANKS, "tp:0", facts))


def _is_item(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def internal(source: Source) -> list[tuple[str, fx.Node, list[fx.Node]]]:
    """(name, node, readers) of what ops of the source make and one call reads."""
    ops = source.rules.program.ops
    found = []
    for call in source.rule.match:
        if call.op not in ops:
            continue
        for name in call.results:
            if name is None or name not in source.nodes:
                continue
            node = source.nodes[name]
            readers = [u for u in node.users if u.op != "output" and not _reads_only_size(u)]
            if readers and len(readers) == 1:
                found.append((name, node, readers))
    return found


def _reads_only_size(node: fx.Node) -> bool:
    return node.target is aten.sym_size.int


def target_of(node: fx.Node) -> Any:
    """What a node calls, functionalised or not."""
    return node.args[0] if node.target is auto_functionalized else node.target


def also_called(source: Source, name: str) -> list[str]:
    """A value and the reshapes of it, which may have vanished from the graph."""
    names = [name]
    for call in source.rule.match:
        reads = [o.name for o in call.args if isinstance(o, ir.Ref)]
        if call.op == "prim.view" and reads and reads[0] in names:
            names += [result for result in call.results if result]
    return names
