"""The engine as the judge of what the checker says about sets of rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusiondsl.analysis import analyse
from fusiondsl.analysis.modules import Loader
from fusiondsl.diagnostics.diagnostic import Diagnostic, Diagnostics, Witness
from fusiondsl.diagnostics.source import Source
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import RefusalKind, Report
from fusiondsl.graphs import read
from fusiondsl.ir.program import Program, Rule
from fusiondsl.target import Answer, Target


def checked(text: str) -> tuple[Program, list[Diagnostic]]:
    """A program that need not compute what it replaces, and everything that is said about it."""
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    loader.add_source(Source("<string>.fuse", text))
    program = analyse(loader.finish(), diagnostics)
    return program, list(diagnostics)


def target_of(witness: Witness) -> Target:
    facts = dict(witness.target)
    answers = [Answer(n.removesuffix("(..)"), bool(v)) for n, v in facts.items() if "(" in n]
    known = {name: value for name, value in facts.items() if "(" not in name}
    arch, tp_size = known.pop("env.arch", None), known.pop("env.tp_size", None)
    group = known.pop("env.tp_group", None)
    return Target(
        None if arch is None else str(arch),
        None if tp_size is None else int(tp_size),
        None if group is None else str(group),
        known,
        tuple(answers),
    )


def applied(program: Program, witness: Witness, *rules: Rule) -> Report:
    """The rules, tried in this order, on the graph of a witness as the reader understands it."""
    ordered = tuple(replace(rule, order=place) for place, rule in enumerate(rules))
    compiled = CompiledRules(replace(program, rules=ordered), target_of(witness))
    (graph,) = read(witness.graph + "\n", program=program)
    assert not graph.uncertain
    return compiled.apply(graph.gm)


@dataclass(frozen=True)
class Judgement:
    """What each rule does alone, and whether the first takes the site from the second."""

    first_fires: bool
    second_fires: bool
    second_loses: bool


def judge(program: Program, witness: Witness, first: Rule, second: Rule) -> Judgement:
    both = applied(program, witness, first, second)
    lost = [r for r in both.refusals_of(second.name) if r.kind is RefusalKind.LOST]
    return Judgement(
        first.name in applied(program, witness, first).counts,
        second.name in applied(program, witness, second).counts,
        first.name in both.counts
        and second.name not in both.counts
        and all(refusal.message == first.name for refusal in lost),
    )


CONTEST = Judgement(True, True, True)
