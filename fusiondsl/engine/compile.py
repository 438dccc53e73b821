"""From checked rules to compiled rules: what is decided once, for a target, before any graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fusiondsl import ir
from fusiondsl.decl.dtypes import DTYPES, FP8, fp8_of
from fusiondsl.dims import NO_FACTS, Function, LookupTable, Truth, Verdict, names, truth
from fusiondsl.engine.bindings import Bindings
from fusiondsl.engine.forms import Forms
from fusiondsl.engine.pattern import Path, reads, references, sinks, walk
from fusiondsl.engine.predicates import answers_of
from fusiondsl.engine.readers import ReadersOf, readers_of
from fusiondsl.engine.recipe import Recipe, build_recipe
from fusiondsl.engine.report import Ineligible
from fusiondsl.engine.wanted import Wanted
from fusiondsl.ir.strata import admitted_forms, strata
from fusiondsl.ops.dtypes import to_torch
from fusiondsl.ops.registry import register
from fusiondsl.pause import collection_paused
from fusiondsl.target import ENV_FACTS, Target

SIZED = frozenset({"prim.view", "prim.slice"})
"""Operations whose sizes are what they do; those of others follow from their inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """One rule for one target."""

    rule: ir.Rule
    path: Path
    recipe: Recipe
    tensors: tuple[tuple[str, ir.TensorType, int | None], ...]
    """(name, type, slot) of each tensor parameter; slot None where `match` does not read it."""
    scalars: tuple[tuple[str, ir.ScalarType, int | None], ...]
    literals: tuple[tuple[int, Any], ...]
    """Slots that must hold a literal."""
    computed: tuple[tuple[int, ir.Operand], ...]
    """Captured scalars that must equal an expression over bound names."""
    scalar_slots: tuple[int, ...]
    """Slots of all of these scalars."""
    layer_slots: tuple[int, ...]
    """Slots of those that are layers."""
    outputs: tuple[tuple[str, str, int, int], ...]
    """(match name, replace name, place of the call, its result)."""
    values: tuple[tuple[str, int, int], ...]
    """(name, place, result) of every matched value with a name."""
    seen: tuple[tuple[int, int], ...]
    """(place, result) of values whose shape counts: replaced, kept, made by a view or slice."""
    inner: tuple[tuple[int, int], ...]
    """The other named values."""
    kept: tuple[tuple[str, int, int], ...]
    """(name, place, result) of matched values that the right side reads."""
    kept_calls: frozenset[int]
    """Places of calls that stay whole."""
    free_calls: frozenset[int]
    """Places of calls computed from the rule's inputs alone: they may have other users."""
    site_conditions: tuple[ir.Condition, ...]
    admitted: Mapping[int, frozenset[str | None]]
    """By place: names of the forms whose differences the rule allows; None is the op itself."""
    readers: tuple[ReadersOf, ...]
    stratum: int
    required: tuple[str, ...]
    """Ops that must occur for the rule to match."""
    effects: Mapping[int, tuple[ir.Effect, ...]]
    origin: Mapping[str, str | None]
    """What new nodes say about where they come from."""

    @property
    def name(self) -> str:
        return self.rule.name


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the plan a compile prints."""

    rule: str
    forms: tuple[str, ...]
    """Admitted forms, as `rms_norm: own vllm_ir custom`."""
    order: int
    eligible: bool
    reason: str
    tokens: str
    """The token range, `any` where the rule does not bound it."""
    proof: str = ""
    """What both sides are equal up to, or why that is not known."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """All that applying needs, for one program and one target."""

    program: ir.Program
    target: Target
    bindings: Bindings
    forms: Forms
    rules: tuple[CompiledRule, ...]
    ineligible: tuple[Ineligible, ...]
    functions: Mapping[str, Function]
    constants: Mapping[str, Any]
    """Values of `env.*`, `model.*`, `let`s and dtype sets."""
    dtypes: Mapping[str, torch.dtype]
    """Every dtype name, `fp8` as the flavour of the target."""

    @cached_property
    def wanted(self) -> Wanted:
        """What the sources have that graphs may spell in another way."""
        return Wanted.of([rule.rule for rule in self.rules], self.program)


def compile_program(program: ir.Program, target: Target) -> Compiled:
    """Decides what depends on the target alone and prepares every rule that can fire.

    Registers the program's own ops, so that rules can write calls of them.
    """
    register(program)
    with collection_paused():
        return Compiler(program, target).compile()


def dtype_table(arch: str | None) -> dict[str, torch.dtype]:
    """Every dtype name this torch has, `fp8` as the flavour of the target."""
    return {**_DTYPES, FP8: _DTYPES[fp8_of(arch)]}


_DTYPES = {name: to_torch(name) for name in DTYPES if hasattr(torch, DTYPES[name][0])}


class Compiler:
    def __init__(self, program: ir.Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.dtypes = dtype_table(target.arch)
        self.bindings = Bindings(program, self.dtypes)
        self.constants = _constants(program, target)
        self.functions: dict[str, Function] = {
            name: LookupTable(
                name, table.params, tuple((r.keys, r.value) for r in table.rows), self.constants
            )
            for name, table in program.tables.items()
        }
        for name, predicate in program.predicates.items():
            self.functions[name] = answers_of(predicate, target.answers)
        self._known = self.constants.keys() | ENV_FACTS.keys()
        # Conditions are shared by many rules. By identity: the program keeps them alive.
        self._static: dict[int, bool] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._unmet: dict[str, tuple[str | None, str] | None] = {}
        """Why an op is not available, by its name."""

    def compile(self) -> Compiled:
        rules: list[CompiledRule] = []
        ineligible: list[Ineligible] = []
        levels = strata(self.program.rules, self.program.ops)
        refused = {rule.name: self.refused(rule) for rule in self.program.rules}
        eligible = [rule for rule in self.program.rules if refused[rule.name] is None]
        self.forms = Forms(self.program, self.bindings, _sought(eligible, self.program))
        for rule in self.program.rules:
            outcome = refused[rule.name] or self._rule(rule, levels[rule.name])
            if isinstance(outcome, Ineligible):
                ineligible.append(outcome)
            else:
                rules.append(outcome)
        return Compiled(
            self.program,
            self.target,
            self.bindings,
            self.forms,
            tuple(rules),
            tuple(ineligible),
            self.functions,
            self.constants,
            self.dtypes,
        )

    def refused(self, rule: ir.Rule) -> Ineligible | None:
        """Why the rule cannot fire for this target."""
        refused = self._decide(rule.where)
        if refused is not None:
            return Ineligible(rule.name, refused[1], refused[0])
        return self._unavailable(rule)

    def _rule(self, rule: ir.Rule, stratum: int) -> CompiledRule | Ineligible:
        """The compiled rule, or why it cannot fire here."""
        recipe = build_recipe(rule, self.program, self.bindings)
        if isinstance(recipe, str):
            return Ineligible(rule.name, recipe)
        last = sinks(rule.match)
        path = _best_path(rule, last, self.program, self.forms)
        if path is None:
            return Ineligible(rule.name, "the source is not connected: no call reaches all others")
        return self._assemble(rule, path, recipe, stratum, last)

    def _assemble(
        self, rule: ir.Rule, path: Path, recipe: Recipe, stratum: int, last: Sequence[int]
    ) -> CompiledRule | Ineligible:
        match, ops, slots = rule.match, self.program.ops, path.slots
        places = {index: place for place, index in enumerate(path.order)}
        produced = {
            name: (places[i], r)
            for i, call in enumerate(match)
            for r, name in enumerate(call.results)
            if name
        }
        admitted = self._admitted(rule, places)
        if not all(admitted.values()):
            empty = next(match[path.order[p]].op for p, forms in admitted.items() if not forms)
            reason = f"no form of {empty} is within the differences the rule allows"
            return Ineligible(rule.name, reason)
        read = reads(rule.replace) if rule.kept else ()
        lasting = {*rule.kept, *[matched for matched, _ in rule.outputs]}
        lasting.update([n for c in match if c.op in SIZED for n in c.results if n])
        inputs = [(p.name, p.type, slots.get(p.name)) for p in rule.params]
        scalars = [(n, t, s) for n, t, s in inputs if isinstance(t, ir.ScalarType)]
        literals = tuple(self.forms.literals(path))
        known = {slot for slot, _ in literals}
        computed = tuple([(s, o) for s, o in path.constants if s not in known])
        values = [(name, *place) for name, place in produced.items()]
        return CompiledRule(
            rule,
            path,
            recipe,
            tuple([(n, t, s) for n, t, s in inputs if isinstance(t, ir.TensorType)]),
            tuple(scalars),
            literals,
            computed,
            (*[s for _, _, s in scalars if s is not None], *[s for s, _ in computed]),
            tuple([s for _, t, s in scalars if s is not None and t.kind == "layer"]),
            tuple([(m, r, *produced[m]) for m, r in rule.outputs]),
            tuple(values),
            tuple([(place, r) for n, place, r in values if n in lasting]),
            tuple([(place, r) for n, place, r in values if n not in lasting]),
            tuple([value for value in values if value[0] in rule.kept and value[0] in read]),
            _kept_calls(rule, places),
            _free_calls(rule, places, last),
            tuple([c for c in rule.where if not self.is_static(c)]),
            admitted,
            tuple([readers_of(r, produced[r.value], slots, self.program) for r in rule.readers]),
            stratum,
            tuple(dict.fromkeys([call.op for call in match])),
            {
                places[i]: decl.effects
                for i, call in enumerate(match)
                if (decl := ops.get(call.op)) is not None and decl.effects
            },
            {"rule": rule.name, "at": str(rule.span) if rule.span else None},
        )

    def _decide(self, conditions: Iterable[ir.Condition]) -> tuple[str | None, str] | None:
        """Label and reason of the first condition on the target alone that does not hold."""
        for condition in conditions:
            if not self.is_static(condition):
                continue
            verdict = self.verdict(condition)
            if verdict.truth is not Truth.TRUE:
                return condition.label, verdict.reason
        return None

    def is_static(self, condition: ir.Condition) -> bool:
        """Depends on the target alone."""
        known = self._static.get(id(condition.expr))
        if known is None:
            known = self._known.issuperset(names(condition.expr))
            self._static[id(condition.expr)] = known
        return known

    def verdict(self, condition: ir.Condition) -> Verdict:
        known = self._verdicts.get(id(condition.expr))
        if known is None:
            known = truth(condition.expr, self.constants, NO_FACTS, self.functions)
            self._verdicts[id(condition.expr)] = known
        return known

    def _unavailable(self, rule: ir.Rule) -> Ineligible | None:
        for call in rule.replace:
            if call.op not in self._unmet:
                decl = self.program.ops.get(call.op)
                self._unmet[call.op] = None if decl is None else self._decide(decl.available)
            refused = self._unmet[call.op]
            if refused is not None:
                label, reason = refused
                return Ineligible(rule.name, f"{call.op} is not available: {reason}", label)
        return None

    def _admitted(
        self, rule: ir.Rule, places: Mapping[int, int]
    ) -> dict[int, frozenset[str | None]]:
        admitted: dict[int, frozenset[str | None]] = {}
        for index, call in enumerate(rule.match):
            decl = self.program.ops.get(call.op)
            if decl is None or not decl.forms:
                continue
            forms = admitted_forms(rule, call, self.program.ops)
            admitted[places[index]] = frozenset([None, *[form.name for form in forms]])
        return admitted


def _constants(program: ir.Program, target: Target) -> dict[str, Any]:
    constants: dict[str, Any] = {name: const.value for name, const in program.lets.items()}
    for name, members in program.dtype_sets.items():
        constants[name] = tuple(ir.DType(member) for member in members)
    for name in DTYPES:
        constants.setdefault(name, ir.DType(name))
    constants[FP8] = ir.DType(fp8_of(target.arch))
    constants.update(target.known())
    return constants


def _sought(rules: Iterable[ir.Rule], program: ir.Program) -> frozenset[str]:
    """The ops that the sources of these rules have, and that forms of such ops have."""
    found = {call.op for rule in rules for call in rule.match}
    waiting = set(found)
    while waiting:
        decl = program.ops.get(waiting.pop())
        if decl is not None and decl.forms:
            more = {call.op for form in decl.forms for call in form.body} - found
            found |= more
            waiting |= more
    return frozenset(found)


def _best_path(
    rule: ir.Rule, last: Sequence[int], program: ir.Program, forms: Forms
) -> Path | None:
    """The path from the sink that is likely rarest; every sink reaches a connected source."""
    tensors = frozenset([p.name for p in rule.params if isinstance(p.type, ir.TensorType)])
    for anchor in sorted(last, key=lambda i: _commonness(rule.match[i].op, forms)):
        path = walk(rule.match, program.ops, tensors, anchor)
        if path is not None:
            return path
    return None


def _commonness(op: str, forms: Forms) -> int:
    """Primitives are common, ops with decomposed forms less, single operations rare."""
    if op.startswith("prim."):
        return 2
    return 1 if (op, 0) in forms.composed else 0


def _kept_calls(rule: ir.Rule, places: Mapping[int, int]) -> frozenset[int]:
    """Producers of kept values and everything in the match they are computed from."""
    if not rule.kept:
        return frozenset()
    producer = {n: i for i, c in enumerate(rule.match) for n in c.results if n}
    pending = [producer[name] for name in rule.kept if name in producer]
    kept: set[int] = set()
    while pending:
        index = pending.pop()
        if index in kept:
            continue
        kept.add(index)
        for operand in rule.match[index].args:
            pending.extend(producer[n] for n in references(operand) if n in producer)
    return frozenset(places[i] for i in kept)


def _free_calls(rule: ir.Rule, places: Mapping[int, int], last: Sequence[int]) -> frozenset[int]:
    available = {p.name for p in rule.params}
    free: set[int] = set()
    for index, call in enumerate(rule.match):
        if not call.op.startswith("prim.") or index in last:
            continue
        if available.issuperset(reads([call])):
            free.add(places[index])
            available.update([n for n in call.results if n])
    return frozenset(free)
