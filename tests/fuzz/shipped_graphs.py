"""Graphs that the shipped rules are for, and the rules, with ops that can be called."""

from __future__ import annotations

from functools import cache
from random import Random

from torch import fx

from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.graphs import read
from fusiondsl.ops.registry import register
from fusiondsl.verify.examples import Trial
from fusiondsl.verify.samples import NoSample
from fusiondsl.verify.source_graph import NoSource, source_graph
from tests.fuzz import oracle
from tests.fuzz.planted import LARGEST, elements
from tests.pairs import test_pairs as pairs
from tests.support.extern_ops import register_extern_ops

TOKENS: tuple[int, int] = (pairs.INDEX["tokens"][0], pairs.INDEX["tokens"][1])
_ARCHES = ("gfx942", "gfx950")


@cache
def shipped(arch: str) -> CompiledRules:
    """The shipped rules; every op of theirs can be called."""
    rules = pairs.rules(arch)
    register_extern_ops(rules.program)
    register(rules.program)
    return rules


def source(rng: Random) -> tuple[str, fx.GraphModule]:
    """A graph and its architecture: what vLLM handed to a pass, or what a rule matches."""
    while True:
        arch, made = _captured(rng) if rng.randrange(2) else _of_rule(rng)
        if made is not None and elements(made.graph) <= LARGEST:
            return arch, made


def _captured(rng: Random) -> tuple[str, fx.GraphModule]:
    stem = rng.choice(sorted(pairs.PAIRS))
    arch = pairs.PAIRS[stem]["arch"]
    shipped(arch)
    text = _on_cpu((pairs.CASES / f"{stem}.before.txt").read_text())
    with oracle.on(arch):
        (graph,) = read(text, program=pairs.rules(arch).program, device="cpu")
    return arch, graph.gm


def _on_cpu(text: str) -> str:
    return text.replace("cuda:0", "cpu").replace("device(type='cuda', index=0)", "'cpu'")


def _of_rule(rng: Random) -> tuple[str, fx.GraphModule | None]:
    """With the sizes of one of its examples."""
    arch = rng.choice(_ARCHES)
    rules = shipped(arch)
    rule = rng.choice([rule for rule in rules.program.rules if rule.examples])
    trial = Trial(rules, rule, dict(rng.choice(rule.examples).bindings))
    try:
        with oracle.on(arch):
            values = trial._choose(rule.where)
            return arch, source_graph(rule, trial.rules.compiled, values)
    except (NoSample, NoSource):
        return arch, None
