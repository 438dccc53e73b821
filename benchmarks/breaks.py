"""Sources of rules broken in one known way each: what near misses are scored on.

A break says what the true cause is before anything is asked. Every break gets its own copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

import fusiondsl
from fusiondsl import ir
from fusiondsl.dims import names as names_in
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.target import ENV_FACTS, Target
from fusiondsl.verify.examples import Trial
from fusiondsl.verify.samples import NoSample
from fusiondsl.verify.source_graph import NoSource

aten = torch.ops.aten
ARCH, RANKS = "gfx950", 8
FLAVOURS = {torch.float8_e4m3fn: torch.float8_e4m3fnuz, torch.float8_e4m3fnuz: torch.float8_e4m3fn}
OTHER_DTYPE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


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
            bound = ((n, bindings.of(_target(n))) for n in self.graph.nodes if n.args)
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
        trial = Trial(_base(program), rule, dict(example.bindings) if example else {})
        gm, nodes = trial.source(rule.where)
        return Source(rule, trial.rules, gm, nodes)

    try:
        source = make()
    except (NoSample, NoSource):
        return None
    return make if fires(source.rules, source.gm, rule.name) else None


def fires(rules: CompiledRules, gm: fx.GraphModule, rule: str) -> bool:
    return rule in rules.apply(gm, rewrite=False).counts


def _base(program: ir.Program) -> CompiledRules:
    facts: dict[str, Any] = {n: True for n, kind in ENV_FACTS.items() if kind == "bool"}
    return CompiledRules(program, Target(ARCH, RANKS, "tp:0", facts))


def _is_item(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _internal(source: Source) -> list[tuple[str, fx.Node, list[fx.Node]]]:
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


# --- literals and arguments ----------------------------------------------------------------------


def literals(make: Make) -> Iterator[Broken]:
    """A literal of the source has another value in the graph."""
    source = make()
    for index, call in enumerate(source.rule.match):
        decl = source.rules.program.ops.get(call.op)
        if decl is None:
            continue
        for param, operand in zip(decl.call_params, call.args, strict=True):
            if not isinstance(operand, ir.Const) or operand.value is None:
                continue
            fresh = make()
            node = fresh.call_of(fresh.rule.match[index])
            if node is None or not _set(fresh, node, param.name, _other(fresh, node, param.name)):
                continue
            default = param.default is not None and param.default == operand
            kind = "another value than the default" if default else "literal"
            yield fresh.broken(kind, f"{call.op}.{param.name}", "constant", node, param.name)


def _given(source: Source, node: fx.Node, name: str) -> Any:
    binding = source.rules.compiled.bindings.of(_target(node))
    assert binding is not None
    if name in node.kwargs:
        return node.kwargs[name]
    place = binding.names.index(name)
    return node.args[place] if place < len(node.args) else None


def _other(source: Source, node: fx.Node, name: str) -> Any:
    value = _given(source, node, name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, torch.dtype):
        return torch.float64 if value is not torch.float64 else torch.float32
    if isinstance(value, (int, float)):
        return type(value)(value * 2 + 1)
    return f"{value}_other" if isinstance(value, str) else None


def _set(source: Source, node: fx.Node, name: str, value: Any) -> bool:
    if value is None:
        return False
    if name in node.kwargs or node.target is auto_functionalized:
        node.kwargs = {**node.kwargs, name: value}
        return True
    binding = source.rules.compiled.bindings.of(node.target)
    assert binding is not None
    place = binding.names.index(name)
    if place >= len(node.args):
        return False
    node.args = (*node.args[:place], value, *node.args[place + 1 :])
    return True


def _target(node: fx.Node) -> Any:
    """What a node calls, functionalised or not."""
    return node.args[0] if node.target is auto_functionalized else node.target


def keywords(make: Make) -> Iterator[Broken]:
    """A call is given an argument that its declaration does not name."""
    for index, call in enumerate(make().rule.match):
        source = make()
        if call.op not in source.rules.program.ops:
            continue
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        node.kwargs = {**node.kwargs, "unheard_of": True}
        yield source.broken("unnamed keyword", call.op, "constant", node, "unheard_of")


def attributes(make: Make) -> Iterator[Broken]:
    """A primitive has another axis, bound or value."""
    for index, call in enumerate(make().rule.match):
        source = make()
        if call.op not in ("prim.slice", "prim.pad"):
            continue
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        if call.op == "prim.slice":
            node.args = (node.args[0], 0, *node.args[2:])
            yield source.broken("other axis", call.op, "constant", node, "dim")
        else:
            node.args = (*node.args[:2], 1.0)
            yield source.broken("literal", call.op, "constant", node, "value")


# --- types ---------------------------------------------------------------------------------------


def dtypes(make: Make) -> Iterator[Broken]:
    """An input has another dtype than the first one with the same dtype variable."""
    source = make()
    seen: set[str] = set()
    for param in source.rule.params:
        kind = param.type
        if not isinstance(kind, ir.TensorType) or param.name not in source.nodes:
            continue
        first = kind.dtype not in seen
        seen.add(kind.dtype)
        fresh = make()
        node = fresh.nodes[param.name]
        other = OTHER_DTYPE.get(node.meta["val"].dtype)
        if first or other is None or not node.users:
            continue
        _retype(node, other)
        yield fresh.broken("dtype", param.name, "dtype", node, param.name)


def _retype(node: fx.Node, dtype: torch.dtype) -> None:
    value = node.meta["val"]
    with value.fake_mode:
        node.meta["val"] = torch.empty_strided(value.shape, value.stride(), dtype=dtype)


def flavours(make: Make) -> Iterator[Broken]:
    """A result is FP8 in the flavour of another chip."""
    source = make()
    for name, _ in source.rule.outputs:
        fresh = make()
        node = fresh.nodes.get(name)
        value = None if node is None else node.meta["val"]
        if node is None or not isinstance(value, torch.Tensor) or value.dtype not in FLAVOURS:
            continue
        _retype(node, FLAVOURS[value.dtype])
        yield fresh.broken("fp8 flavour", name, "fp8-flavour", node, name)


def bounds(make: Make) -> Iterator[Broken]:
    """Sizes and scalars that a condition refuses, as the rule's own examples have them."""
    source = make()
    program = source.rules.program
    for example in source.rule.examples:
        if example.fires or example.because is None:
            continue
        trial = Trial(
            _base(replace(program, rules=(source.rule,))), source.rule, dict(example.bindings)
        )
        where = tuple(c for c in source.rule.where if c.label != example.because)
        try:
            gm, nodes = trial.source(where, example.because)
        except (NoSample, NoSource):
            continue
        fresh = Source(source.rule, trial.rules, gm, nodes)
        condition = next((c for c in source.rule.where if c.label == example.because), None)
        used = frozenset() if condition is None else names_in(condition.expr)
        static = bool(used) and all(n in ENV_FACTS or n in program.lets for n in used)
        every = list(gm.graph.nodes)
        detail = str(example.span).rpartition("/")[2]
        if static:
            yield fresh.broken(
                "capability", detail, "environment", every, *(used & ENV_FACTS.keys())
            )
        else:
            yield fresh.broken("bound", detail, "predicate-false", every, example.because)


def symbols(make: Make) -> Iterator[Broken]:
    """The number of tokens is a symbol without a bound, and a condition bounds it."""
    source = make()
    labels = [c.label for c in source.rule.where if "tokens" in names_in(c.expr) and c.label]
    if labels and _symbolic(source):
        every = list(source.graph.nodes)
        yield source.broken("symbolic tokens", labels[0], "predicate-unknown", every, *labels)


def _symbolic(source: Source) -> bool:
    """Makes leading dimensions of inputs a symbol; False where the graph makes buffers by size."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    origin = ConstantSource("tokens")
    symbol = env.create_symbol(4096, origin, DimDynamic.DYNAMIC, None, positive=True)
    tokens = env.create_symintnode(symbol, hint=4096, source=origin)
    types = {param.name: param.type for param in source.rule.params}
    inputs = {node: types.get(name) for name, node in source.nodes.items()}
    for node in source.graph.nodes:
        if node.op == "output":
            continue
        if node.target is aten.empty.memory_format:
            return False
        with mode:
            if node.op == "placeholder":
                value, kind = node.meta["val"], inputs.get(node)
                free = isinstance(kind, ir.TensorType) and kind.rank_free
                shape = [tokens, *value.shape[1:]] if free else list(value.shape)
                node.meta["val"] = torch.empty(shape, dtype=value.dtype)
            else:
                fake = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                node.meta["val"] = node.target(*fake[0], **fake[1])
    return True


# --- users and effects ---------------------------------------------------------------------------


def extra_users(make: Make) -> Iterator[Broken]:
    """Somebody else reads a value that would disappear."""
    for index in range(len(_internal(make()))):
        source = make()
        name, node, _ = _internal(source)[index]
        user = source.add(node, aten.neg.default, node)
        source.output(user)
        yield source.broken("extra user", name, "extra-user", node, user.name)


def writers(make: Make) -> Iterator[Broken]:
    """A value is written between its two calls, or after them."""
    for index in range(len(_internal(make()))):
        source = make()
        name, node, _ = _internal(source)[index]
        yield _written(source, "written in between", name, node, after=node)
        source = make()
        name, node, _ = _internal(source)[index]
        last = list(source.graph.nodes)[-2]
        yield _written(source, "written afterwards", name, node, after=last)


def _written(source: Source, kind: str, name: str, node: fx.Node, after: fx.Node) -> Broken:
    """The writer reads the value as well: it is a user that is one too many."""
    writer = source.add(after, aten.add_.Scalar, node, 1)
    case = source.broken(kind, name, "effect", writer, *_also_called(source, name))
    user = Expected("extra-user", frozenset({node.name}), frozenset({writer.name}))
    return replace(case, expected=replace(case.expected, instead=user))


def _also_called(source: Source, name: str) -> list[str]:
    """A value and the reshapes of it, which may have vanished from the graph."""
    names = [name]
    for call in source.rule.match:
        reads = [o.name for o in call.args if isinstance(o, ir.Ref)]
        if call.op == "prim.view" and reads and reads[0] in names:
            names += [result for result in call.results if result]
    return names


def written_inputs(make: Make) -> Iterator[Broken]:
    """An input is written before the place where the new code would read it."""
    source = make()
    for param in source.rule.params:
        fresh = make()
        node = fresh.nodes.get(param.name)
        if node is None or node.op != "placeholder" or len(node.users) != 1:
            continue
        (reader,) = node.users
        calls = [fresh.call_of(call) for call in fresh.rule.match]
        rest = [call for call in calls if call is not None and call > reader]
        value = node.meta["val"]
        if not rest or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        writer = fresh.add(reader, aten.add_.Scalar, node, 1)
        yield fresh.broken("input written in between", param.name, "effect", writer, param.name)


# --- what stands in between, or elsewhere --------------------------------------------------------


def in_between(make: Make) -> Iterator[Broken]:
    """Something that is no part of the source stands between two calls of it."""
    for what, build in _BETWEEN.items():
        for index in range(len(_internal(make()))):
            source = make()
            name, node, (reader, *_) = _internal(source)[index]
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.element_size() < 2:
                continue
            added = build(source, node)
            reader.replace_input_with(node, added[-1])
            yield source.broken(what, name, "structure", added, *_also_called(source, name))


def _negated(source: Source, node: fx.Node) -> list[fx.Node]:
    return [source.add(node, aten.neg.default, node)]


def _cut(source: Source, node: fx.Node) -> list[fx.Node]:
    width = node.meta["val"].shape[-1]
    axis = node.meta["val"].dim() - 1
    return [source.add(node, aten.slice.Tensor, node, axis, 0, width // 2)]


def _refolded(source: Source, node: fx.Node) -> list[fx.Node]:
    shape = list(node.meta["val"].shape)
    return [source.add(node, aten.reshape.default, node, [*shape[:-1], 2, shape[-1] // 2])]


def _rounded(source: Source, node: fx.Node) -> list[fx.Node]:
    low = source.add(node, aten._to_copy.default, node, dtype=torch.float8_e5m2)
    back = source.add(low, aten._to_copy.default, low, dtype=node.meta["val"].dtype)
    return [low, back]


_BETWEEN: dict[str, Callable[[Source, fx.Node], list[fx.Node]]] = {
    "op in between": _negated,
    "sliced columns": _cut,
    "changed last dim": _refolded,
    "lossy cast": _rounded,
}


def split_graphs(make: Make) -> Iterator[Broken]:
    """The first part of the source is in another graph."""
    for index in range(len(_internal(make()))):
        source = make()
        name, node, _ = _internal(source)[index]
        with source.graph.inserting_before(next(iter(source.graph.nodes))):
            given = source.graph.placeholder(f"{name}_given")
        given.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(given)
        _return_what_follows(source, given)
        _prune(source)
        yield source.broken("split over two graphs", name, "structure", given, name)


def _return_what_follows(source: Source, given: fx.Node) -> None:
    """The second graph has no result of the first."""
    after = {given}
    for node in source.graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    last = next(reversed(source.graph.nodes))
    last.args = (tuple(n for n in last.args[0] if n in after and n is not given),)


def other_ops(make: Make) -> Iterator[Broken]:
    """Another op stands where a call of the source should."""
    for index, call in enumerate(make().rule.match):
        source = make()
        ops = source.rules.program.ops
        if call.op not in ops or len(source.rule.match) == 1:
            continue
        named = [name for name in call.results if name and name in source.nodes]
        node = source.call_of(source.rule.match[index])
        if node is None:
            continue
        inputs = [n for n in node.all_input_nodes if n.meta["val"].dim() >= 2]
        if not inputs:
            continue
        with source.graph.inserting_after(node):
            other = source.graph.call_function(aten.relu.default, (inputs[0],))
        other.meta["val"] = inputs[0].meta["val"]
        # What the op made is made by the other one; what nobody can make is given.
        made = [other]
        for place, name in enumerate(named):
            value = source.nodes[name]
            if place == 0:
                value.replace_all_uses_with(other)
                other.meta["val"] = value.meta["val"]
                continue
            with source.graph.inserting_before(next(iter(source.graph.nodes))):
                given = source.graph.placeholder(f"{name}_given")
            given.meta["val"] = value.meta["val"]
            value.replace_all_uses_with(given)
            made.append(given)
        _prune(source)
        # Whoever looks for its inputs sees the other op, or that they are not there.
        yield source.broken("another op", call.op, "structure", [*made, *inputs], *named)


def _prune(source: Source) -> None:
    """Erases what nobody uses any more, mutating wrappers included."""
    for node in reversed(source.graph.nodes):
        if node.op == "call_function" and not node.users:
            source.graph.erase_node(node)


# --- the target ----------------------------------------------------------------------------------


def capabilities(make: Make) -> Iterator[Broken]:
    """Nothing is known about a fact that a condition on the target asks for."""
    source = make()
    program, target = source.rules.program, source.rules.target
    asked: dict[str, None] = {}
    conditions = list(source.rule.where)
    for call in source.rule.replace:
        if call.op in program.ops:
            conditions += program.ops[call.op].available
    for condition in conditions:
        used = names_in(condition.expr)
        if used and all(name in ENV_FACTS or name in program.lets for name in used):
            asked.update(dict.fromkeys(sorted(used & ENV_FACTS.keys())))
    for fact in asked:
        fresh = make()
        fresh.rules = CompiledRules(program, _without(target, fact))
        yield fresh.broken("unknown capability", fact, "environment", list(fresh.graph.nodes), fact)


def _without(target: Target, fact: str) -> Target:
    known = {name: value for name, value in target.known().items() if name != fact}
    arch = known.pop("env.arch", None)
    ranks = known.pop("env.tp_size", None)
    group = known.pop("env.tp_group", None)
    return Target(arch, ranks, group, known, target.answers)  # type: ignore[arg-type]


def larger_rules(make: Make) -> Iterator[Broken]:
    """A rule whose source contains this one takes the same operations."""
    source = make()
    everything = _PROGRAM[0]
    for larger in everything.rules:
        if larger.name == source.rule.name or not _contains(larger, source.rule):
            continue
        whole = sources(everything, larger)
        if whole is None:
            continue
        big = whole()
        pair = tuple(r for r in everything.rules if r.name in (larger.name, source.rule.name))
        alone = CompiledRules(replace(everything, rules=(source.rule,)), big.rules.target)
        both = CompiledRules(replace(everything, rules=pair), big.rules.target)
        if not fires(alone, big.gm, source.rule.name) or larger.order > source.rule.order:
            continue
        found = Source(source.rule, both, big.gm, big.nodes)
        yield found.broken(
            "larger rule", larger.name, "lost-to-rule", list(big.graph.nodes), larger.name
        )


def _contains(larger: ir.Rule, smaller: ir.Rule) -> bool:
    ops = [call.op for call in larger.match]
    return all(ops.count(c.op) >= 1 for c in smaller.match) and len(ops) > len(smaller.match)


_PROGRAM: list[ir.Program] = []

BREAKS: tuple[Break, ...] = (
    literals,
    keywords,
    attributes,
    dtypes,
    flavours,
    bounds,
    symbols,
    extra_users,
    writers,
    written_inputs,
    in_between,
    split_graphs,
    other_ops,
    capabilities,
    larger_rules,
)


def broken_sources(rules: frozenset[str] | None = None) -> Iterator[Broken]:
    """Every break of every shipped rule; those that the engine sees through are left out."""
    from fusiondsl.graphs.externs import define_missing

    program = fusiondsl.load("fusiondsl:").program
    define_missing(program)
    _PROGRAM[:] = [program]
    for rule in program.rules:
        if rules is not None and rule.name not in rules:
            continue
        make = sources(program, rule)
        if make is None:
            continue
        for way in BREAKS:
            for case in way(make):
                if not fires(case.rules, case.graph, case.rule):
                    yield case
