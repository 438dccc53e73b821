"""Runs the examples of rules: the source is built as the example says, and the rule tried on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Truth, truth
from fusiondsl.dims.expr import Spread
from fusiondsl.engine.compile import dtype_table
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Refusal, RefusalKind, Report
from fusiondsl.ops.context import Context
from fusiondsl.target import ENV_FACTS, Answer, Target
from fusiondsl.verify.samples import NoSample, choose
from fusiondsl.verify.source_graph import NoSource, named_source, scope_value

GROUP = "tp:0"
"""The tensor-parallel group of examples that name none; string arguments get it too."""

_DECIDED_ELSEWHERE = frozenset(
    {RefusalKind.PREDICATE_FALSE, RefusalKind.PREDICATE_UNKNOWN, RefusalKind.ENVIRONMENT}
)
"""Refusals of a source that is all there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one example, or of matching a rule's own source."""

    rule: str
    title: str
    """What was expected: `matches its own source`, `fires`, `refused because limit`."""
    passed: bool | None
    """None: it could not be tried, `message` says why."""
    message: str = ""
    at: str | None = None
    """Where the example stands, as `file:line:column`."""


def run_rule(compiled: CompiledRules, rule: ir.Rule) -> Iterator[Outcome]:
    """The rule on its own source, then every example."""
    yield run_self_match(compiled, rule)
    for example in rule.examples:
        yield run_example(compiled, rule, example)


def run_example(compiled: CompiledRules, rule: ir.Rule, example: ir.Example) -> Outcome:
    """Does the rule fire, or not fire for the reason given, as the example says?"""
    trial = Trial(compiled, rule, dict(example.bindings))
    try:
        report = trial.run(_conditions(rule, example), example.because)
    except NoSource as error:
        return _without_source(trial, example, error)
    except NoSample as error:
        return trial.outcome(example, False, str(error))
    fired = rule.name in report.counts
    if example.fires:
        return trial.outcome(example, fired, "" if fired else _why_not(report))
    if fired:
        return trial.outcome(example, False, "it fires")
    wrong = trial.holds(example.because, report)
    message = "" if wrong is None else f"{wrong}; instead: {_why_not(report)}"
    return trial.outcome(example, wrong is None, message)


def _without_source(trial: Trial, example: ir.Example, error: NoSource) -> Outcome:
    """Where an op of the source refuses these sizes itself, no graph has it, and nothing fires."""
    wrong = "it cannot fire" if example.fires else trial.holds(example.because)
    message = f"the source cannot be built: {error}"
    if wrong is not None:
        return trial.outcome(example, False, f"{wrong}; {message}")
    return trial.outcome(example, True, message)


def run_self_match(compiled: CompiledRules, rule: ir.Rule) -> Outcome:
    """A rule whose own source it does not recognise is written for no graph at all."""
    title = "matches its own source"
    firing = [example for example in rule.examples if example.fires]
    trial = Trial(compiled, rule, dict(firing[0].bindings) if firing else {})
    try:
        report = trial.run(rule.where)
    except (NoSample, NoSource) as error:
        return Outcome(rule.name, title, None, f"the source cannot be built: {error}")
    if rule.name in report.counts:
        return Outcome(rule.name, title, True)
    if report.ineligible:
        return Outcome(rule.name, title, None, report.ineligible[0].message)
    whole = any(r.matched == r.calls and r.kind in _DECIDED_ELSEWHERE for r in report.refused)
    return Outcome(rule.name, title, whole, "" if whole else _why_not(report))


class Trial:
    """One rule, alone, for the target that the bindings of an example make of the given one."""

    def __init__(self, compiled: CompiledRules, rule: ir.Rule, bindings: Mapping[str, Any]) -> None:
        self.rule = rule
        asked = compiled.program.predicates
        answers = [Answer(k, bool(v)) for k, v in bindings.items() if k in asked]
        own = {k: v for k, v in bindings.items() if k not in ENV_FACTS}
        self.bindings = {k: v for k, v in own.items() if k not in asked}
        facts = {k: v for k, v in bindings.items() if k in ENV_FACTS}
        facts = {"env.tp_group": compiled.target.known().get("env.tp_group", GROUP), **facts}
        program = replace(compiled.program, rules=(replace(rule, order=0),))
        self.rules = CompiledRules(program, target_with(compiled.target, facts, answers))
        self.values: dict[str, Any] = {}

    def run(self, conditions: Iterable[ir.Condition], because: str | None = None) -> Report:
        """Applies the rule to its source, sizes chosen to keep the conditions where they can be."""
        return self.rules.apply(self.source(conditions, because)[0])

    def source(
        self, conditions: Iterable[ir.Condition], because: str | None = None
    ) -> tuple[fx.GraphModule, dict[str, fx.Node]]:
        """The graph of the source, and its nodes by their names in the rule."""
        self.values = self._choose(tuple(conditions))
        return named_source(self.rule, self.rules.compiled, self.values, because)

    def _choose(self, conditions: tuple[ir.Condition, ...]) -> dict[str, Any]:
        context, fixed = Context.of(self.rules.program), dict(self._fixed())
        try:
            return choose(replace(self.rule, where=conditions), context, fixed)
        except NoSample:
            # what the example fixes contradicts the conditions: the engine says which
            return choose(replace(self.rule, where=()), context, fixed)

    def outcome(self, example: ir.Example, passed: bool, message: str = "") -> Outcome:
        because = "" if example.because is None else f" because {example.because}"
        title = "fires" if example.fires else f"refused{because}"
        at = None if example.span is None else str(example.span)
        return Outcome(self.rule.name, title, passed, message, at)

    def holds(self, label: str | None, report: Report | None = None) -> str | None:
        """Why the condition with this label is not what refuses, None where it is.

        The label of a condition that no rule has is one of an op that the rule writes: then what
        the rule was refused for counts.
        """
        if label is None or any(readers.label == label for readers in self.rule.readers):
            return None
        compiled = self.rules.compiled
        scope = {**compiled.constants, **{k: scope_value(v) for k, v in self.values.items()}}
        for condition in self.rule.where:
            if condition.label == label:
                verdict = truth(condition.expr, scope, NO_FACTS, compiled.functions)
                return f"{label} holds" if verdict.truth is Truth.TRUE else None
        told = () if report is None else [r.label for r in report.refused]
        never = () if report is None else [r.label for r in report.ineligible]
        return None if label in (*told, *never) else f"{label} does not refuse it"

    def _fixed(self) -> Iterator[tuple[str, Any]]:
        dtypes = dtype_table(self.rules.target.arch)
        spreads = _spreads(self.rule)
        for name, value in self.bindings.items():
            if isinstance(value, ir.DType):
                yield name, dtypes[value.name]
            else:
                yield name, (value,) if name in spreads else value


def _conditions(rule: ir.Rule, example: ir.Example) -> tuple[ir.Condition, ...]:
    """The conditions the sizes that an example leaves open must keep."""
    if example.fires:
        return rule.where
    if example.because is None:
        return ()
    return tuple(c for c in rule.where if c.label != example.because)


def _spreads(rule: ir.Rule) -> frozenset[str]:
    types = [p.type for p in rule.params if isinstance(p.type, ir.TensorType)]
    return frozenset(d.name for t in types for d in t.dims if isinstance(d, Spread))


def target_with(base: Target, facts: Mapping[str, Any], answers: Iterable[Answer]) -> Target:
    """`base` with other facts and answers."""
    known = {**base.known(), **facts}
    arch = known.pop("env.arch", None)
    if "env.arch" in facts and "env.mx" not in facts and "env.mx" not in base.facts:
        known.pop("env.mx", None)  # follows from the architecture of the example
    tp_size = known.pop("env.tp_size", None)
    group = known.pop("env.tp_group", None)
    added = tuple(answers)
    answered = {answer.predicate for answer in added}
    return Target(
        None if arch is None else str(arch),
        None if tp_size is None else int(tp_size),
        None if group is None else str(group),
        known,
        (*(a for a in base.answers if a.predicate not in answered), *added),
    )


def _why_not(report: Report) -> str:
    if report.ineligible:
        return report.ineligible[0].message
    if not report.refused:
        return "nothing of the source was recognised"
    best: Refusal = max(report.refused, key=lambda refusal: refusal.matched)
    label = f" [{best.label}]" if best.label else ""
    return f"{best.kind.value}{label}: {best.message}"
