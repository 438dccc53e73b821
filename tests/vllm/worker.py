"""Runs every case through vLLM's own pass and through fusiondsl, for one architecture.

`python -m tests.vllm.worker gfx950` prints a line of JSON a case. A process of its own, because
vLLM decides what GPU it has when it is imported.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._inductor.pattern_matcher import PatternMatcherPass, stable_topological_sort
from torch.fx.node import map_aggregate

import fusiondsl
from fusiondsl import Answer
from fusiondsl.resources import patterns_root
from tests.pairs.values import Values
from tests.support.capture import post_grad
from tests.support.rocm_vllm import (
    HEAD_SIZE,
    HEADS,
    KV_HEADS,
    LAYER,
    TP_GROUP,
    TP_SIZE,
    RocmVllm,
)
from tests.vllm.cases import (
    CASES,
    DEFAULTS,
    EPSILONS,
    Case,
    named_eps,
    source_and_inputs,
)

_ASSERT = torch.ops.aten._assert_scalar.default
CUSTOM_OPS = ("+quant_fp8", "+silu_and_mul", "+rotary_embedding")


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: str
    theirs: str
    """`rewrites`, `leaves`, or the exception that left vLLM's pass."""
    ours: dict[str, int]
    """Rules that fired in the graph pass."""
    refused: list[str]
    """Why what came close was left alone."""
    registered: dict[str, int]
    """Rules that fired inside a `PatternMatcherPass`."""
    same: bool
    """The graph pass computes the same outputs as vLLM, by the same ops on the same values."""
    same_registered: bool
    """The registrations give what the graph pass gives."""
    forms: bool
    """All outputs have vLLM's shapes, strides and dtypes."""


class Worker:
    def __init__(self, arch: str) -> None:
        self.vllm = RocmVllm(arch)
        self.passes = cache(self.vllm.build)
        self.spelled = cache(self._spelled)
        facts = dict.fromkeys(
            ("aiter", "vllm", "aiter_dynamic_hidden", "aiter_allreduce_group_quant"), True
        )
        target = fusiondsl.Target(
            arch=arch,
            tp_size=TP_SIZE,
            tp_group=TP_GROUP,
            facts={f"env.{name}": value for name, value in facts.items()},
            answers=_answers(),
        )
        self.rules = fusiondsl.load(patterns_root()).compile(target)

    def run(self, case: Case) -> Outcome:
        graph = self._graph(case)
        theirs, their_graph = self._theirs(case, graph)
        ours, registered = _copy(graph), _copy(graph)
        report = self.rules.apply(ours, tokens=case.tokens)
        counts = self._register(registered, case.tokens)
        values = [self._values(g) for g in (their_graph, ours, registered)]
        return Outcome(
            case.name,
            theirs,
            dict(report.counts),
            sorted({refusal.kind.value for refusal in report.close()}),
            counts,
            values[0] == values[1],
            values[1] == values[2],
            _forms(their_graph) == _forms(ours) == _forms(registered),
        )

    def _graph(self, case: Case) -> fx.GraphModule:
        if case.planted != named_eps(case.eps):
            return self._traced(case)
        return _with_eps(_copy(self.spelled(case.source, case.spelling)), case.eps)

    def _spelled(self, source: str, spelling: str) -> fx.GraphModule:
        """The only graph that is traced of all epsilons, which are constants in it."""
        return self._traced(Case(source, spelling, eps=EPSILONS[0]))

    def check_that_epsilons_are_constants(self) -> None:
        for source in ("add_norm_group_quant", "gated_norm_quant"):
            for eps in EPSILONS[1:]:
                traced = self._traced(Case(source, "native", eps=eps))
                shared = _with_eps(_copy(self.spelled(source, "native")), eps)
                assert str(traced.graph) == str(shared.graph), (source, eps)

    def _traced(self, case: Case) -> fx.GraphModule:
        with self.vllm.settings(self._custom_ops(case)):
            source, inputs = source_and_inputs(case)
            graph = post_grad(source, *inputs, dynamic=not case.static, functionalized=1).gm
        if case.sizes == 1:
            _share_sizes(graph.graph)
        return graph

    def _custom_ops(self, case: Case) -> tuple[str, ...]:
        return () if case.spelling == "native" else CUSTOM_OPS

    def _theirs(self, case: Case, graph: fx.GraphModule) -> tuple[str, fx.GraphModule]:
        rewritten, count = _copy(graph), 0
        for name in case.passes:
            fusion_pass = self.passes(name, self._custom_ops(case))
            try:
                count += self.vllm.apply(fusion_pass, rewritten)
            except Exception as error:  # whatever leaves the pass ends a compilation
                return type(error).__name__, graph
        return ("rewrites" if count else "leaves"), rewritten

    def _register(self, module: fx.GraphModule, tokens: range) -> dict[str, int]:
        """Applies the rules as registrations, as often as they ask for."""
        patterns = PatternMatcherPass()
        registration = self.rules.register(patterns, tokens=tokens)
        counts: dict[str, int] = {}
        while True:
            patterns.apply(module.graph)
            for rule, count in registration.reports[-1].counts.items():
                counts[rule] = counts.get(rule, 0) + count
            if not registration.again:
                break
        stable_topological_sort(module.graph)
        module.graph.eliminate_dead_code()
        return counts

    def _values(self, module: fx.GraphModule) -> list[Any]:
        return Values(self.rules.program, DEFAULTS).outputs(module.graph)


def _answers() -> tuple[Answer, ...]:
    """What vLLM asks of the layer of the stand-in model."""
    layer = {"l": LAYER}
    fits = {**layer, "heads": HEADS, "kv_heads": KV_HEADS, "head_size": HEAD_SIZE}
    return (
        Answer("has_qk_norm_rope_kv_cache_update", True, fits),
        Answer("has_qk_norm_mrope_kv_cache_update", True, fits),
        Answer("keys_from_cache", True, layer),
    )


def _share_sizes(graph: fx.Graph) -> None:
    """One placeholder for each size, as in a graph of vLLM; what compares them goes."""
    first: dict[str, fx.Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        if isinstance(node.meta["val"], torch.SymInt):
            node.replace_all_uses_with(first.setdefault(str(node.meta["val"]), node))
    for node in graph.find_nodes(op="call_function", target=_ASSERT):
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _with_eps(module: fx.GraphModule, eps: float) -> fx.GraphModule:
    """The graph as it is traced with another epsilon."""

    def replaced(argument: Any) -> Any:
        return eps if isinstance(argument, float) and argument == EPSILONS[0] else argument

    for node in module.graph.nodes:
        node.args, node.kwargs = map_aggregate((node.args, node.kwargs), replaced)
    return module


def _copy(module: fx.GraphModule) -> fx.GraphModule:
    """A copy that shares the values, without what matchers note down for themselves."""
    graph = copy.deepcopy(module.graph)
    for node in graph.nodes:
        node.meta.pop("mutation_region_id", None)
    return fx.GraphModule({}, graph)


def _forms(module: fx.GraphModule) -> list[Any]:
    (result,) = module.graph.output_node().args
    values = [node.meta["val"] for node in result]  # type: ignore[union-attr]
    return [(str(tuple(v.shape)), str(v.stride()), v.dtype, v.device) for v in values]


def main(arch: str, *patterns: str) -> None:
    worker = Worker(arch)
    worker.check_that_epsilons_are_constants()
    gc.freeze()  # no collection need look through all of vLLM
    for case in CASES:
        if arch in case.archs and any(fnmatch(case.name, p) for p in patterns or "*"):
            print(json.dumps(asdict(worker.run(case))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
