"""Values that differ: dtypes, FP8 flavours, and sizes that a condition refuses or cannot decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from benchmarks.breaks.source import Broken, Make, Source, base
from fusiondsl import ir
from fusiondsl.dims import names as names_in
from fusiondsl.target import ENV_FACTS
from fusiondsl.verify.examples import Trial
from fusiondsl.verify.samples import NoSample
from fusiondsl.verify.source_graph import NoSource

aten = torch.ops.aten
FLAVOURS = {torch.float8_e4m3fn: torch.float8_e4m3fnuz, torch.float8_e4m3fnuz: torch.float8_e4m3fn}
OTHER_DTYPE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


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
            base(replace(program, rules=(source.rule,))), source.rule, dict(example.bindings)
        )
        where = tuple(c for c in source.rule.where if c.label != example.because)
        try:
            gm, nodes = trial.source(where, example.because)
        except (NoSample, NoSource):
            continue
        fresh = Source(source.program, source.rule, trial.rules, gm, nodes)
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
