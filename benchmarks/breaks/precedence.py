"""What is no matter of the graph: facts of the target that are unknown, rules that go first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.breaks.source import Broken, Make, Source, fires, sources
from fusiondsl import ir
from fusiondsl.dims import names as names_in
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.target import ENV_FACTS, Target


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
    everything = source.program
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
        found = Source(everything, source.rule, both, big.gm, big.nodes)
        yield found.broken(
            "larger rule", larger.name, "lost-to-rule", list(big.graph.nodes), larger.name
        )


def _contains(larger: ir.Rule, smaller: ir.Rule) -> bool:
    ops = [call.op for call in larger.match]
    return all(ops.count(c.op) >= 1 for c in smaller.match) and len(ops) > len(smaller.match)
