"""For which token counts the rules can fire on a target: where one compiled range has to end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fusiondsl import ir
from fusiondsl.dims import (
    NO_FACTS,
    Dim,
    Scope,
    Truth,
    Value,
    Verdict,
    as_dim,
    children,
    evaluate,
    names,
    truth,
)
from fusiondsl.dims.expr import Binary, Call, Expr
from fusiondsl.engine.compile import Compiled, Compiler
from fusiondsl.ops.registry import overload
from fusiondsl.target import ENV_FACTS, MODEL_DTYPE, MODEL_ITEMSIZE, MODEL_SIZES

TOKENS = "tokens"
_ORDERINGS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_DTYPES = {"2": ("bf16", "f16"), "4": ("f32",), "8": ("f64",)}
"""What activations may be, by size."""


@dataclass(frozen=True, slots=True)
class Span:
    """Token counts `first..last` for which a rule's bounds are true, false or unknown."""

    first: int
    last: int
    truth: Truth


def token_spans(rule: ir.Rule, compiled: Compiled, most: int) -> tuple[Span, ...]:
    """`1..most`, cut wherever what the rule's conditions say about `tokens` changes."""
    conditions = [c.expr for c in rule.where if TOKENS in names(c.expr)]
    scope = _Scope(compiled)
    ends = {end for expr in conditions for end in scope.candidates(expr) if 1 <= end < most}
    spans: list[Span] = []
    first = 1
    for last in (*sorted(ends), most):
        verdict = scope.all_hold(conditions, last)
        if spans and spans[-1].truth is verdict:
            spans[-1] = Span(spans[-1].first, last, verdict)
        else:
            spans.append(Span(first, last, verdict))
        first = last + 1
    return tuple(spans)


def end_points(
    compiled: Compiled, most: int, *, left_out: Collection[str] = ()
) -> dict[int, tuple[str, ...]]:
    """The last token counts of ranges below `most`, with the rules that ask for them.

    `left_out` are rules that do not ask.
    """
    asked: dict[int, list[str]] = {}
    for rule in allowed_rules(compiled):
        if rule.name not in left_out:
            for span in token_spans(rule, compiled, most)[:-1]:
                asked.setdefault(span.last, []).append(rule.name)
    return {end: tuple(asked[end]) for end in sorted(asked)}


def allowed_rules(compiled: Compiled) -> tuple[ir.Rule, ...]:
    """The rules that can fire, now or where graphs are compiled."""
    ready = {rule.name for rule in compiled.rules} | pending(compiled).keys()
    return tuple(rule for rule in compiled.program.rules if rule.name in ready)


def pending(compiled: Compiled) -> dict[str, str]:
    """Rules that cannot fire here and may where graphs are compiled, with what they wait for.

    A library may be imported there that registers an op, and extern predicates be answered.
    """
    refused = {item.rule for item in compiled.ineligible}
    if not refused:
        return {}
    compiler = Compiler(compiled.program, compiled.target)
    waiting = (
        (r.name, _waits_for(r, compiler)) for r in compiled.program.rules if r.name in refused
    )
    return {name: reason for name, reason in waiting if reason is not None}


def _waits_for(rule: ir.Rule, compiler: Compiler) -> str | None:
    """What keeps the rule from firing and may change; None where something else does as well."""
    reasons: list[str] = []
    for condition, verdict, _ in _unmet(rule, compiler):
        if verdict.truth is Truth.FALSE or not _asks(condition.expr, compiler.program):
            return None
        reasons.append(verdict.reason)
    reasons += [
        f"the op {decl.torch_name} is not registered in this process"
        for decl in _written(rule, compiler.program)
        if overload(decl) is None
    ]
    return reasons[0] if reasons else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the target, as far as it is known, does not let a rule fire."""

    reason: str
    lacking: tuple[str, ...] = ()
    """Facts of the target that would decide it; none where it is decided."""
    asked: tuple[str, ...] = ()
    """Extern predicates whose answers would."""


def refusals(compiled: Compiled) -> dict[str, Refusal]:
    """For every rule that cannot fire; what is false comes before what is not known."""
    refused = {item.rule: item.message for item in compiled.ineligible}
    if not refused:
        return {}
    compiler = Compiler(compiled.program, compiled.target)
    return {
        rule.name: _refusal(rule, refused[rule.name], compiler)
        for rule in compiled.program.rules
        if rule.name in refused
    }


def _refusal(rule: ir.Rule, message: str, compiler: Compiler) -> Refusal:
    unmet = list(_unmet(rule, compiler))
    for _, verdict, owner in unmet:
        if verdict.truth is Truth.FALSE:
            return Refusal(owner + verdict.reason)
    exprs = [condition.expr for condition, _, _ in unmet]
    lacking = ENV_FACTS.keys() & {n for expr in exprs for n in names(expr)}
    asked = {name for expr in exprs for name in _predicates(expr, compiler.program)}
    return Refusal(
        message, tuple(sorted(lacking - compiler.constants.keys())), tuple(sorted(asked))
    )


def _unmet(rule: ir.Rule, compiler: Compiler) -> Iterator[tuple[ir.Condition, Verdict, str]]:
    """The conditions on the target alone that are not true, and what to say before their reason."""
    own = ((condition, "") for condition in rule.where)
    others = (
        (condition, f"{decl.name} is not available: ")
        for decl in _written(rule, compiler.program)
        for condition in decl.available
    )
    for condition, owner in (*own, *others):
        if compiler.is_static(condition):
            verdict = compiler.verdict(condition)
            if verdict.truth is not Truth.TRUE:
                yield condition, verdict, owner


def _written(rule: ir.Rule, program: ir.Program) -> list[ir.OpDecl]:
    """The ops of the right side, but for primitives."""
    found = (program.ops.get(call.op) for call in rule.replace)
    return [decl for decl in found if decl is not None]


def asked_of_layers(rule: ir.Rule, compiled: Compiled) -> tuple[str, ...]:
    """Extern predicates in conditions that are decided in the graph, and have no answer yet."""
    answered = {answer.predicate for answer in compiled.target.answers}
    found = {name for c in rule.where for name in _predicates(c.expr, compiled.program)}
    return tuple(sorted(found - answered))


def _asks(expr: Expr, program: ir.Program) -> bool:
    """The condition has an extern predicate in it."""
    return any(True for _ in _predicates(expr, program))


def _predicates(expr: Expr, program: ir.Program) -> Iterator[str]:
    if isinstance(expr, Call) and expr.func in program.predicates:
        yield expr.func
    for child in children(expr):
        yield from _predicates(child, program)


def unknown_sizes(condition: ir.Condition, compiled: Compiled) -> tuple[str, ...]:
    """Facts of the model that a condition on `tokens` lacks; none where they would not do."""
    facts = {**MODEL_SIZES, MODEL_DTYPE: MODEL_ITEMSIZE}
    asked = {facts.get(name, name) for name in names(condition.expr)}
    lacking = (asked & _ASSUMED.keys()) - compiled.constants.keys()
    known = _Scope(compiled, {fact: _ASSUMED[fact] for fact in lacking})
    return () if None in known.roots(condition.expr) else tuple(sorted(lacking))


_ASSUMED = {**dict.fromkeys(MODEL_SIZES.values(), 4096), MODEL_ITEMSIZE: 2}
"""Sizes that a model may have."""


def unclosed(rule: ir.Rule, compiled: Compiled) -> tuple[ir.Condition, ...]:
    """Conditions on `tokens` that are no number of tokens for this target."""
    scope = _Scope(compiled)
    asking = (c for c in rule.where if TOKENS in names(c.expr))
    return tuple(c for c in asking if None in scope.roots(c.expr))


class _Scope:
    """What conditions on `tokens` are evaluated in: facts of the target, widths of the model.

    Of the dtype of the model only its size is a fact: what holds for all dtypes of that size holds.
    """

    def __init__(self, compiled: Compiled, assumed: Scope | None = None) -> None:
        constants = {**compiled.constants, **(assumed or {})}
        sizes = {n: constants[fact] for n, fact in MODEL_SIZES.items() if fact in constants}
        dtypes = _DTYPES.get(str(constants.get(MODEL_ITEMSIZE)), ())
        self._functions = compiled.functions
        self._scopes: list[dict[str, Value]] = [
            {**constants, **sizes, MODEL_DTYPE: ir.DType(name)} for name in dtypes
        ] or [{**constants, **sizes}]

    def all_hold(self, conditions: Sequence[Expr], tokens: int) -> Truth:
        verdicts = {self._all_hold(scope, conditions, tokens) for scope in self._scopes}
        return verdicts.pop() if len(verdicts) == 1 else Truth.UNKNOWN

    def _all_hold(self, given: Scope, conditions: Sequence[Expr], tokens: int) -> Truth:
        scope = {**given, TOKENS: Dim.const(tokens)}
        found = {truth(c, scope, NO_FACTS, self._functions).truth for c in conditions}
        if Truth.FALSE in found:
            return Truth.FALSE
        return Truth.UNKNOWN if Truth.UNKNOWN in found else Truth.TRUE

    def candidates(self, expr: Expr) -> Iterator[int]:
        """Every count after which a comparison may have another outcome."""
        for root in self.roots(expr):
            if root is not None:
                yield from (root - 1, root, root + 1)

    def roots(self, expr: Expr) -> Iterator[int | None]:
        """Where both sides of a comparison are equal; None where that is no number."""
        if isinstance(expr, Binary) and expr.op in _ORDERINGS:
            if TOKENS in names(expr):
                yield from (self._root(scope, expr) for scope in self._scopes)
            return
        for child in children(expr):
            yield from self.roots(child)

    def _root(self, scope: Scope, expr: Binary) -> int | None:
        start, second, third = (self._difference(scope, expr, tokens) for tokens in (0, 1, 2))
        if start is None or second is None or third is None:
            return None
        slope = second - start
        if slope == 0 or slope != third - second:
            return None
        return -start // slope

    def _difference(self, given: Scope, expr: Binary, tokens: int) -> int | None:
        scope = {**given, TOKENS: Dim.const(tokens)}
        left = as_dim(evaluate(expr.left, scope, NO_FACTS, self._functions))
        right = as_dim(evaluate(expr.right, scope, NO_FACTS, self._functions))
        return None if left is None or right is None else (left - right).as_int()
