"""A rule's verdict: what its two sides are equal up to, or where they part."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from fusiondsl.decl.dtypes import ANY
from fusiondsl.ir.program import (
    UNREAD,
    Call,
    Form,
    OpDecl,
    Program,
    Ref,
    Rule,
    ScalarType,
    TensorType,
    Type,
)
from fusiondsl.proof.compare import EVERYTHING, Comparison
from fusiondsl.proof.explain import Explainer
from fusiondsl.proof.generic import without_numbers
from fusiondsl.proof.inline import Side
from fusiondsl.proof.respelled import respelled
from fusiondsl.proof.scope import Facts, Scope
from fusiondsl.proof.terms import Term
from fusiondsl.proof.unread import claims
from fusiondsl.proof.values import Context, Unprovable, Value
from fusiondsl.proof.verdict import Cause, Declared, Level, Output, Verdict, listed

_NOTHING: Mapping[str, str | None] = {}


class Prover:
    """Proves the rules of one program; what is known about forms is kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._forms: dict[tuple[str, str, frozenset[object]], Verdict] = {}
        self._rules: dict[str, Verdict] = {}
        self._generic: dict[Hashable, Verdict] = {}
        self._matched: dict[str, list[tuple[OpDecl, Form, Verdict]]] = {}

    def rule(self, rule: Rule) -> Verdict:
        """Compares both sides of `rule`, every op replaced by its meaning."""
        known = self._rules.get(rule.name)
        if known is None:
            known = self._rules[rule.name] = self._rule(rule)
        return known

    def _rule(self, rule: Rule) -> Verdict:
        generic = without_numbers(rule, self.program.ops)
        key = self._key(generic)
        known = self._generic.get(key)
        if known is None:
            known = self._generic[key] = self._compared(generic, sizes=False)
        return known if _is_fine(known, rule) else self._compared(rule)

    def _key(self, rule: Rule) -> Hashable:
        """Equal for rules that a proof cannot tell apart."""
        context = self._context()
        pinned = self._facts_of(rule, context).pinned
        return (
            *(rule.params, rule.match, rule.replace, rule.outputs, rule.kept, rule.allow),
            *(context.formats.known(), frozenset(pinned.items())),
            tuple((name, t.dtype) for name, t in rule.types if isinstance(t, TensorType)),
        )

    def _compared(self, rule: Rule, *, sizes: bool = True) -> Verdict:
        """Without `sizes` no condition on them is used, so that many rules are one."""
        sides = self._sides(rule, self._context(), sizes=sizes)
        verdict = _verdict(sides, claims(rule, self.program.ops))
        spelled = respelled(rule, self.program.ops)
        declared = (*self._of_targets(rule), *self._of_forms(rule), *spelled)
        kinds = [kind for output in verdict.outputs for kind in output.differences]
        differences = listed([*kinds, *(d.kind for d in declared)])
        level = verdict.level
        if level is not Level.UNPROVED:
            level = Level.DIFFERS if differences else Level.EXACT
        return Verdict(level, differences, verdict.outputs, declared, verdict.because)

    def form(
        self, decl: OpDecl, form: Form, allowed: Mapping[str, frozenset[str] | None]
    ) -> Verdict:
        """Compares a form with its op; `allowed` says what the dtype variables may be."""
        key = (decl.name, form.name, frozenset[object](allowed.items()))
        if key not in self._forms:
            self._forms[key] = self._form(decl, form, allowed)
        return self._forms[key]

    def forms(self, rule: Rule) -> list[tuple[OpDecl, Form, Verdict]]:
        """The forms a rule matches, each compared with its op at the dtypes of the rule."""
        known = self._matched.get(rule.name)
        if known is None:
            context = self._context()
            self._facts_of(rule, context)
            known = self._matched[rule.name] = list(self._admitted(rule, context))
        return known

    def first(self, rule: Rule, kind: str, output: str) -> Cause | None:
        """The first place where `output` is the same up to `kind` only."""
        sides = self._sides(rule, self._context())
        if isinstance(sides, Cause):
            return None
        for name, one, other in sides.pairs:
            found = sides.comparison.differences(one, other)
            if name == output and found is not None and kind in found:
                return sides.explain.cause(name, one, other, found - {kind})
        return None

    # --- rules ---------------------------------------------------------------------------------

    def _context(self) -> Context:
        return Context(self.program.ops, self.program.dtype_sets)

    def _sides(self, rule: Rule, context: Context, *, sizes: bool = True) -> Sides | Cause:
        source, target = Side(context), Side(context)
        try:
            facts = self._facts_of(rule, context, sizes=sizes)
            inputs = Scope.of_inputs(rule.params, context, facts)
            matched, written = inputs.copy(), inputs.copy()
            source.top(rule.match, matched)
            for name in rule.kept:
                written.values[name] = matched.values[name]
            target.top(rule.replace, written)
            pairs = [(old, _term(matched, old), _term(written, new)) for old, new in rule.outputs]
        except Unprovable as reason:
            return Cause(str(reason))
        return Sides(tuple(pairs), Comparison(context), source, target)

    def _facts_of(self, rule: Rule, context: Context, *, sizes: bool = True) -> Facts:
        """What holds at every site: the rule's conditions, and those of the ops it writes."""
        facts = Facts(context, rule.params)
        facts.learn(rule.where, sizes=sizes)
        for call in rule.replace:
            decl = self.program.ops.get(call.op)
            if decl is not None:
                facts.learn_dtypes(decl.where, _dtype_names(decl, call, _types(rule)))
        return facts

    # --- declared differences --------------------------------------------------------------------

    def _of_targets(self, rule: Rule) -> Iterator[Declared]:
        for call in rule.replace:
            decl = self.program.ops.get(call.op)
            for difference in decl.differs if decl is not None else ():
                assert decl is not None
                yield Declared(difference.kind, f"`{decl.name}`", call.span, decl.span)

    def _of_forms(self, rule: Rule) -> Iterator[Declared]:
        for decl, form, proved in self.forms(rule):
            owner = f"the form `{form.name}` of `{decl.name}`"
            for kind in listed({d.kind for d in form.differs} | set(proved.differences)):
                yield Declared(kind, owner, None, form.span)

    def _admitted(self, rule: Rule, context: Context) -> Iterator[tuple[OpDecl, Form, Verdict]]:
        for call in rule.match:
            decl = self.program.ops.get(call.op)
            if decl is None:
                continue
            names = _dtype_names(decl, call, _types(rule))
            allowed = {v: context.formats.allowed(name) for v, name in names.items()}
            for form in admitted_forms(rule, call, decl):
                yield decl, form, self.form(decl, form, allowed)

    def _form(
        self, decl: OpDecl, form: Form, allowed: Mapping[str, frozenset[str] | None]
    ) -> Verdict:
        if decl.axiom or decl.means is None:
            return _verdict(Cause(f"`{decl.name}` has no meaning"))
        if any(self._is_meaningless(call) for call in form.body):
            return _verdict(Cause("its ops have no meaning"))
        context = self._context()
        facts = Facts(context, decl.call_params)
        for variable, members in allowed.items():
            if members is not None:
                context.formats.assume_in(variable, members)
        facts.learn(form.where)
        inputs = Scope.of_inputs(decl.call_params, context, facts)
        for name, const in form.fixed:
            inputs.values[name] = inputs.constant(const.value)
        meaning, spelled = Side(context), Side(context)
        one, other = inputs.copy(), inputs.copy()
        try:
            meaning.body(decl.means, one)
            spelled.top(form.body, other)
            pairs = [
                (result.name, _term(one, result.name), _term(other, name))
                for result, name in zip(decl.call_results, form.results, strict=True)
                if name is not None
            ]
        except Unprovable as reason:
            return _verdict(Cause(str(reason)))
        return _verdict(Sides(tuple(pairs), Comparison(context), meaning, spelled))

    def _is_meaningless(self, call: Call) -> bool:
        decl = self.program.ops.get(call.op)
        return decl is not None and decl.means is None and not decl.axiom


@dataclass(frozen=True)
class Sides:
    """Both sides as terms."""

    pairs: tuple[tuple[str, Term, Term], ...]
    """Each replaced value with what the source and the target compute for it."""
    comparison: Comparison
    source: Side
    target: Side

    @property
    def explain(self) -> Explainer:
        return Explainer(self.comparison, self.source, self.target)


def admitted_forms(rule: Rule, call: Call, decl: OpDecl) -> list[Form]:
    """The spellings a rule matches: those whose differences it allows."""
    allowed = {a.kind for a in rule.allow if a.value is None or a.value in call.results}
    return [form for form in decl.forms if {d.kind for d in form.differs} <= allowed]


def _is_fine(verdict: Verdict, rule: Rule) -> bool:
    """Is there nothing that a diagnostic would say about this rule alone?"""
    allowed = {a.kind for a in rule.allow if a.value is None}
    return verdict.level is not Level.UNPROVED and allowed >= set(verdict.differences)


def _dtype_names(decl: OpDecl, call: Call, types: Mapping[str, Type]) -> dict[str, str]:
    """The dtype variables of an op as the formats of a rule's values."""
    names: dict[str, str] = {}
    for param, arg in zip(decl.call_params, call.args, strict=True):
        if not isinstance(arg, Ref):
            continue
        kind = types.get(arg.name)
        if isinstance(param.type, TensorType) and isinstance(kind, TensorType):
            if ANY not in (kind.dtype, param.type.dtype):
                names.setdefault(param.type.dtype, kind.dtype)
        elif param.type == ScalarType("dtype"):
            names[param.name] = arg.name
    return names


def _term(scope: Scope, name: str) -> Term:
    value = scope.values.get(name)
    if not isinstance(value, Value):
        raise Unprovable(f"`{name}` is not known")
    return value.term


def _types(rule: Rule) -> dict[str, Type]:
    return {**dict(rule.types), **{p.name: p.type for p in rule.params}}


def _verdict(sides: Sides | Cause, unread: Mapping[str, str | None] = _NOTHING) -> Verdict:
    """`unread` holds the values that are claimed to be, with what may be said against it."""
    if isinstance(sides, Cause):
        return Verdict(Level.UNPROVED, because=sides)
    outputs: list[Output] = []
    because: Cause | None = None
    for name, one, other in sides.pairs:
        found = sides.comparison.differences(one, other)
        objection = unread.get(name)
        if found is not None:
            outputs.append(Output(name, listed(found)))
        elif name in unread and objection is None:
            outputs.append(Output(name, (UNREAD,)))
        elif because is None:
            because = sides.explain.cause(name, one, other, EVERYTHING)
            if objection is not None:
                message = f"{because.message}, and it may be read: {objection}"
                because = replace(because, message=message)
    if because is not None:
        return Verdict(Level.UNPROVED, outputs=tuple(outputs), because=because)
    differences = listed(kind for output in outputs for kind in output.differences)
    level = Level.DIFFERS if differences else Level.EXACT
    return Verdict(level, differences, tuple(outputs))
