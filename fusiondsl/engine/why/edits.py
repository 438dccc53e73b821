"""Changes to a rule, its target or its token range that make it fire: each was tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, TypeAlias

from torch import fx

from fusiondsl import ir
from fusiondsl.dims import names
from fusiondsl.engine.apply import apply, build_plan
from fusiondsl.engine.compile import Compiler, compile_program
from fusiondsl.engine.why.answer import Cause, Edit, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.copies import copy_of
from fusiondsl.engine.why.sketch import shown_op
from fusiondsl.engine.why.spans import param_span
from fusiondsl.proof import Prover
from fusiondsl.target import ENV_FACTS, Fact, Target

_TRIES = 24
"""Combinations of changes tried for one kind of near miss."""
_ARCHS = ("gfx950", "gfx942")
_RANKS = (8, 4, 2)
_FEWEST_TOKENS = 16
"""A range that ends below is of no use."""
_MOST_TOKENS = 20
"""Token ranges tried are powers of two up to this one."""


@dataclass(frozen=True)
class Trial:
    """What is tried: a program with the rule in it, a target, a token range."""

    program: ir.Program
    target: Target
    tokens: range | None
    rule: str

    @property
    def edited(self) -> ir.Rule:
        return next(r for r in self.program.rules if r.name == self.rule)

    def with_rule(self, rule: ir.Rule) -> Trial:
        rules = tuple(rule if r.name == self.rule else r for r in self.program.rules)
        return replace(self, program=replace(self.program, rules=rules))


class Runs:
    """What fires in copies of one graph; trials that ask the same are one run."""

    def __init__(self, graph: fx.Graph, holds: Holds) -> None:
        self._graph = graph
        self._holds = holds
        self._known: dict[Any, tuple[ir.Program, frozenset[tuple[str, str]]]] = {}

    def fired(self, trial: Trial) -> frozenset[str]:
        """Where the rule of a trial fires."""
        facts = tuple(trial.target.known().items())
        key = (id(trial.program), facts, trial.tokens)
        if key not in self._known:
            # With the program, so that its id stays its own.
            self._known[key] = trial.program, self._run(trial)
        return frozenset(node for rule, node in self._known[key][1] if rule == trial.rule)

    def _run(self, trial: Trial) -> frozenset[tuple[str, str]]:
        compiled = compile_program(trial.program, trial.target)
        copied = copy_of(self._graph)
        report = apply(compiled, build_plan(compiled), copied, tokens=trial.tokens)
        return frozenset((site.rule, site.node) for site in report.fired)

    def may_fire(self, tried: Trial, before: Trial, site: SiteAnswer) -> bool:
        """The target does not rule the rule out, nor the range of tokens: both are cheap to ask."""
        if Compiler(tried.program, tried.target).refused(tried.edited) is not None:
            return False
        if tried.tokens is None or tried.tokens == before.tokens:
            return True
        same = tried.edited == before.edited and tried.target == before.target
        return not same or self._holds(tried.rule, site.node, tried.tokens)


Holds: TypeAlias = Callable[[str, str, range], bool]
"""Whether the conditions of a rule may hold at a node for a range of tokens."""


@dataclass(frozen=True)
class Change:
    """One edit and what it does to a trial."""

    edit: Edit
    make: Callable[[Trial], Trial]


def with_edits(answer: RuleAnswer, trial: Trial, runs: Runs, top: int) -> RuleAnswer:
    """The answer with edits that were seen to work, for its first kinds of near miss."""
    edits: dict[str, tuple[Edit, ...]] = {}
    for group in answer.groups[:top]:
        found = _working(group.first, trial, runs)
        if found is not None:
            made, fired = found
            edits.update((site.node, made) for site in group.sites if site.node in fired)
    if not edits:
        return answer
    sites = (replace(s, edits=edits.get(s.node, ())) if not s.fired else s for s in answer.sites)
    return replace(answer, sites=tuple(sites))


def _working(
    site: SiteAnswer, trial: Trial, runs: Runs
) -> tuple[tuple[Edit, ...], frozenset[str]] | None:
    """The first combination of one change for each cause with which the rule fires there."""
    choices = [list(changes(cause, trial)) for cause in site.causes]
    if not choices or not all(choices):
        return None
    for combination in islice(product(*choices), _TRIES):
        tried = trial
        for change in dict.fromkeys(combination):
            tried = change.make(tried)
        if not runs.may_fire(tried, trial, site) or not _as_sound(tried, trial):
            continue
        fired = runs.fired(tried)
        if site.node in fired:
            return tuple(dict.fromkeys(change.edit for change in combination)), fired
    return None


def _as_sound(tried: Trial, before: Trial) -> bool:
    """What was proved about the rule stays proved, up to what it allows."""
    if tried.edited == before.edited:
        return True
    if Prover(before.program).rule(before.edited).because is not None:
        return True
    after = Prover(tried.program).rule(tried.edited)
    allowed = {difference.kind for difference in tried.edited.allow}
    return after.because is None and allowed.issuperset(after.differences)


def changes(cause: Cause, trial: Trial) -> Iterator[Change]:
    """What may remove a cause, most likely first."""
    make = _CHANGES.get(cause.code)
    if make is not None:
        yield from make(cause, trial)


# --- the rule ------------------------------------------------------------------------------------


def _literal(cause: Cause, trial: Trial) -> Iterator[Change]:
    """The literal as it stands in the graph, in `match` alone or wherever the name has it."""
    if cause.call is None or cause.field is None or cause.found is None:
        return
    call = trial.edited.match[cause.call]
    decl = trial.program.ops.get(call.op)
    params = [] if decl is None else [p.name for p in decl.call_params]
    value = _value(cause.found)
    if cause.field not in params or value is None:
        return
    position = params.index(cause.field)
    old = call.args[position]
    if not isinstance(old, ir.Const):
        return
    new = ir.Const(value)
    text = f"`{cause.field} = {cause.found}`"

    def match_only(trial: Trial) -> Trial:
        return trial.with_rule(_with_argument(trial.edited, cause.call or 0, position, new))

    written = tuple(
        _renamed(c, trial.program, cause.field or "", old, new) for c in trial.edited.replace
    )

    def both(trial: Trial) -> Trial:
        return trial.with_rule(replace(match_only(trial).edited, replace=written))

    if written != trial.edited.replace:
        yield Change(Edit(f"{text} on both sides", cause.span), both)
    elif Prover(trial.program).rule(trial.edited).because is None:
        # Nothing tells the right side: only a proof can say that it need not know.
        yield Change(Edit(f"{text} in `match`", cause.span), match_only)


def _with_argument(rule: ir.Rule, index: int, position: int, value: ir.Operand) -> ir.Rule:
    call = rule.match[index]
    args = (*call.args[:position], value, *call.args[position + 1 :])
    calls = (*rule.match[:index], replace(call, args=args), *rule.match[index + 1 :])
    return replace(rule, match=calls)


def _renamed(
    call: ir.Call, program: ir.Program, name: str, old: ir.Operand, new: ir.Operand
) -> ir.Call:
    """A call of the right side with the same argument changed likewise."""
    decl = program.ops.get(call.op)
    if decl is None:
        return call
    args = tuple(
        new if param.name == name and given == old else given
        for param, given in zip(decl.call_params, call.args, strict=True)
    )
    return replace(call, args=args)


def _dtype(cause: Cause, trial: Trial) -> Iterator[Change]:
    """An input declared with the dtype it has."""
    rule, name, found = trial.edited, cause.field, cause.found
    param = next((p for p in rule.params if p.name == name), None)
    if param is None or found is None or not isinstance(param.type, ir.TensorType):
        return
    kind = replace(param.type, dtype=found)
    params = tuple(replace(p, type=kind) if p is param else p for p in rule.params)
    types = tuple((n, kind if n == name else t) for n, t in rule.types)
    edit = Edit(f"`{name}` declared as {found}", param_span(rule, param.name))
    yield Change(
        edit, lambda trial: trial.with_rule(replace(trial.edited, params=params, types=types))
    )


def _keep(cause: Cause, trial: Trial) -> Iterator[Change]:
    """The value stays for its other reader."""
    if cause.call is None:
        return
    call = trial.edited.match[cause.call]
    said = re.match(r"(\w+) \(", cause.message)
    names = [name for name in call.results if name]
    name = said[1] if said is not None else next(iter(names), "")
    if name not in names:
        return

    def keep(trial: Trial) -> Trial:
        rule = trial.edited
        return (
            trial if name in rule.kept else trial.with_rule(replace(rule, kept=(*rule.kept, name)))
        )

    last = trial.edited.replace[-1].span if trial.edited.replace else None
    if name.startswith("%"):
        what = f"a name for what {shown_op(call.op)} makes, and `name = name` in `replace`"
        yield Change(Edit(f"{what}, which keeps it", call.span), keep)
        return
    yield Change(Edit(f"`{name} = {name}` in `replace`, which keeps it", last), keep)


def _allow(cause: Cause, trial: Trial) -> Iterator[Change]:
    """The difference is allowed."""
    found = re.search(r"differs by ([\w, ]+):", cause.message)
    if found is None:
        return
    known = {d.kind for d in trial.edited.allow if d.value is None}
    kinds = tuple(kind for kind in found[1].split(", ") if kind not in known)

    def allow(trial: Trial) -> Trial:
        rule = trial.edited
        return trial.with_rule(
            replace(rule, allow=(*rule.allow, *(ir.Difference(kind) for kind in kinds)))
        )

    yield Change(Edit(f"`allow {{ {'; '.join(kinds)} }}`", trial.edited.span), allow)


def _before(cause: Cause, trial: Trial) -> Iterator[Change]:
    """The rule goes before the one it loses to."""
    winner = cause.field
    order = next((r.order for r in trial.program.rules if r.name == winner), None)
    if order is None or winner == trial.rule:
        return

    def first(trial: Trial) -> Trial:
        mine = trial.edited
        others = [r for r in trial.program.rules if r.name != trial.rule]
        place = next(i for i, r in enumerate(others) if r.name == winner)
        rules = [*others[:place], mine, *others[place:]]
        placed = tuple(replace(rule, order=i) for i, rule in enumerate(rules))
        return replace(trial, program=replace(trial.program, rules=placed))

    yield Change(Edit(f"`before {winner}`", trial.edited.span), first)


# --- the target and the tokens -------------------------------------------------------------------


def _facts(cause: Cause, trial: Trial) -> Iterator[Change]:
    """Facts the conditions ask for and the target lacks."""
    asked = [name for name in (cause.field or "").split(", ") if name in ENV_FACTS]
    options = [[(name, value) for value in _possible(name)] for name in asked]
    if not options or not all(options):
        return
    for combination in islice(product(*options), _TRIES):
        text = " ".join(_option(name, value) for name, value in combination)
        yield Change(Edit(f"`{text}`"), _with_facts(dict(combination)))


def _possible(name: str) -> list[Fact]:
    if ENV_FACTS[name] == "bool":
        return [True, False]
    if name == "env.arch":
        return list(_ARCHS)
    return list(_RANKS) if name == "env.tp_size" else []


def _option(name: str, value: Fact) -> str:
    if name == "env.arch":
        return f"--target {value}"
    if name == "env.tp_size":
        return f"--tp {value}"
    return f"--fact {name}={str(value).lower() if isinstance(value, bool) else value}"


def _with_facts(facts: dict[str, Fact]) -> Callable[[Trial], Trial]:
    def change(trial: Trial) -> Trial:
        own = dict(facts)
        arch = own.pop("env.arch", None)
        ranks = own.pop("env.tp_size", None)
        target = replace(
            trial.target,
            arch=trial.target.arch if arch is None else str(arch),
            tp_size=trial.target.tp_size if ranks is None else int(ranks),
            facts={**trial.target.facts, **own},
        )
        return replace(trial, target=target)

    return change


def _tokens(cause: Cause, trial: Trial) -> Iterator[Change]:
    """The largest token range for which the condition is known to hold."""
    condition = next((c for c in trial.edited.where if c.label == cause.label), None)
    if condition is None:
        return
    used = names(condition.expr)
    yield from _facts(replace(cause, field=", ".join(sorted(used & ENV_FACTS.keys()))), trial)
    if "tokens" not in used:
        return
    low = 1 if trial.tokens is None else trial.tokens.start
    for power in reversed(range(_MOST_TOKENS)):
        high = 2**power
        if high < max(low, _FEWEST_TOKENS) or (
            trial.tokens is not None and high >= trial.tokens.stop
        ):
            continue
        yield Change(Edit(f"`--tokens {low}:{high}`"), _with_tokens(range(low, high + 1)))


def _with_tokens(tokens: range) -> Callable[[Trial], Trial]:
    return lambda trial: replace(trial, tokens=tokens)


def _value(text: str) -> Any:
    """A literal from the text `show` makes of it."""
    words: dict[str, Any] = {"true": True, "false": False}
    if text in words:
        return words[text]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    quoted = re.fullmatch(r'"([^"\\]*)"', text)
    return None if quoted is None else quoted[1]


_CHANGES: dict[str, Callable[[Cause, Trial], Iterable[Change]]] = {
    "constant": _literal,
    "dtype": _dtype,
    "fp8-flavour": _dtype,
    "extra-user": _keep,
    "difference": _allow,
    "lost-to-rule": _before,
    "environment": _facts,
    "predicate-unknown": _tokens,
    "predicate-false": _tokens,
}
