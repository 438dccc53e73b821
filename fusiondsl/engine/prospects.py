"""Which rules can fire in no graph of an engine, by what is known of its graphs beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from fusiondsl import ir
from fusiondsl.dims import NO_FACTS, Dim, Facts, Function, Truth, Value, truth
from fusiondsl.dims.expr import Name
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.pattern import references
from fusiondsl.engine.predicates import answers_of
from fusiondsl.ir.strata import written_ops
from fusiondsl.target import Answer

_PASSED_ON = frozenset({"prim.view", "prim.slice", "prim.cast"})
"""Primitives that leave a value what it is."""
_TURNING = ("_C::rotary_embedding", "vllm::rocm_aiter_triton_rotary_embedding", "vllm::mrope")
_NORMING = ("prim.rsqrt", "vllm_ir::*rms_norm", "_C::*rms_norm", "vllm_aiter::*rms_norm")
_REDUCING = ("vllm::all_reduce", "_c10d_functional::all_reduce")


@dataclass(frozen=True)
class Surroundings:
    """What is known of every graph that an engine compiles; what is not said may stand there."""

    absent: tuple[tuple[str, str], ...] = ()
    """Torch ops that stand in none of them, as patterns of names (`vllm::*moe*`), each with why."""
    absent_dtypes: tuple[tuple[str, str], ...] = ()
    """Dtypes that no value has, each with why."""
    plain_heads: str | None = None
    """Why nothing that is normed goes into a rotary embedding; None where something may."""
    reduced_rows: tuple[int, tuple[str, ...]] | None = None
    """How wide the rows are that all-reduces take, and the dtypes that they may have."""
    answers: tuple[Answer, ...] = ()
    """To extern predicates, whatever the layers are."""
    written: frozenset[str] = frozenset()
    """Ops that other rules write into these graphs."""


NOTHING_KNOWN = Surroundings()


def without_prospects(compiled: Compiled, known: Surroundings) -> dict[str, str]:
    """The rules that can fire in none of the graphs although the target allows them, with why."""
    prospects = _Prospects(compiled, known)
    found = {rule.name: prospects.why_none(rule) for rule in compiled.program.rules}
    return {name: reason for name, reason in found.items() if reason is not None}


class _Prospects:
    def __init__(self, compiled: Compiled, known: Surroundings) -> None:
        self.compiled = compiled
        self.known = known
        program = compiled.program
        self._ops = program.ops
        own = {op for rule in program.rules for op in written_ops(rule)}
        self._written = known.written | own
        self._functions = {**compiled.functions, **_answered(compiled, known.answers)}
        self._absent: dict[str, str | None] = {}
        self._has: dict[tuple[str, tuple[str, ...]], bool] = {}

    def why_none(self, rule: ir.Rule) -> str | None:
        """Why the rule has no site; None where it may have one."""
        for call in rule.match:
            reason = self._why_absent(call.op)
            if reason is not None:
                return reason
        return self._dtype(rule) or self._heads(rule) or self._condition(rule)

    # --- ops -----------------------------------------------------------------------------------

    def _why_absent(self, op: str) -> str | None:
        """Why no spelling of an op stands in a graph."""
        if op not in self._absent:
            self._absent[op] = None
            self._absent[op] = self._found_absent(op)
        return self._absent[op]

    def _found_absent(self, op: str) -> str | None:
        decl = self._ops.get(op)
        if decl is None:
            return None
        if decl.extern:
            return next(
                (why for n, why in self.known.absent if fnmatchcase(decl.torch_name, n)), None
            )
        if self._stands_itself(decl):
            return None
        reasons = [self._why_form_is_absent(form) for form in decl.forms]
        return reasons[0] if reasons and None not in reasons else None

    def _why_form_is_absent(self, form: ir.Form) -> str | None:
        reasons = (self._why_absent(call.op) for call in form.body)
        return next((reason for reason in reasons if reason is not None), None)

    def _stands_itself(self, decl: ir.OpDecl) -> bool:
        """A call of our own op may be there: some rule writes it, or it can be run."""
        return decl.name in self._written or bool(decl.impls) or not decl.axiom

    def _always_has(self, op: str, patterns: tuple[str, ...]) -> bool:
        """In every spelling of the op that may stand in a graph there is one of these."""
        key = (op, patterns)
        if key not in self._has:
            self._has[key] = False
            self._has[key] = self._found_in_all(op, patterns)
        return self._has[key]

    def _found_in_all(self, op: str, patterns: tuple[str, ...]) -> bool:
        decl = self._ops.get(op)
        if decl is None or decl.extern:
            name = op if decl is None else decl.torch_name
            return any(fnmatchcase(name, pattern) for pattern in patterns)
        bodies = [
            [call.op for call in form.body]
            for form in decl.forms
            if self._why_form_is_absent(form) is None
        ]
        if self._stands_itself(decl):
            bodies.append(list(_calls(decl.means or ())))
        return bool(bodies) and all(
            any(self._always_has(inner, patterns) for inner in body) for body in bodies
        )

    # --- values --------------------------------------------------------------------------------

    def _dtype(self, rule: ir.Rule) -> str | None:
        """A matched value has a dtype that none has."""
        reasons = dict(self.known.absent_dtypes)
        matched = {name for call in rule.match for name in call.results}
        for name, declared in rule.types:
            if (
                name in matched
                and isinstance(declared, ir.TensorType)
                and declared.dtype in reasons
            ):
                return reasons[declared.dtype]
        return None

    def _heads(self, rule: ir.Rule) -> str | None:
        """A rotary embedding takes what has been normed."""
        if self.known.plain_heads is None:
            return None
        producer = {name: call for call in rule.match for name in call.results if name}
        for call in rule.match:
            if self._always_has(call.op, _TURNING) and self._takes_normed(call, producer):
                return self.known.plain_heads
        return None

    def _takes_normed(self, call: ir.Call, producer: Mapping[str, ir.Call]) -> bool:
        pending = [name for operand in call.args for name in references(operand)]
        while pending:
            made = producer.get(pending.pop())
            if made is None:
                continue
            if made.op in _PASSED_ON:
                pending.extend(name for operand in made.args for name in references(operand))
            elif self._always_has(made.op, _NORMING):
                return True
        return False

    # --- conditions ----------------------------------------------------------------------------

    def _condition(self, rule: ir.Rule) -> str | None:
        """A condition that is false whatever is bound at a site."""
        reasons = [self._false(rule, scope) for scope in self._scopes(rule)]
        return reasons[0] if None not in reasons else None

    def _false(self, rule: ir.Rule, scope: Mapping[str, Any]) -> str | None:
        for condition in rule.where:
            verdict = truth(condition.expr, scope, NO_FACTS, self._functions)
            if verdict.truth is Truth.FALSE:
                return verdict.reason
        return None

    def _scopes(self, rule: ir.Rule) -> list[dict[str, Any]]:
        """What is bound at every site, for each of the dtypes that are possible."""
        constants = dict(self.compiled.constants)
        reduced = self._reduced(rule)
        if reduced is None or self.known.reduced_rows is None:
            return [constants]
        width, dtypes = self.known.reduced_rows
        last = reduced.dims[-1]
        if isinstance(last, Name):
            constants[last.id] = Dim.const(width)
        if reduced.dtype in constants:  # no variable
            return [constants]
        return [{**constants, reduced.dtype: ir.DType(dtype)} for dtype in dtypes] or [constants]

    def _reduced(self, rule: ir.Rule) -> ir.TensorType | None:
        """The type of what an all-reduce of the rule takes, if that is an input."""
        inputs = {p.name: p.type for p in rule.params if isinstance(p.type, ir.TensorType)}
        for call in rule.match:
            if not self._always_has(call.op, _REDUCING):
                continue
            for operand in call.args:
                for name in references(operand):
                    if name in inputs and inputs[name].dims:
                        return inputs[name]
        return None


@dataclass(frozen=True)
class _Always:
    """An extern predicate that is the same whatever is asked, which need not be known."""

    value: Truth
    takes_unknown: ClassVar[bool] = True

    def __call__(self, args: Sequence[Value], facts: Facts) -> Value:
        return self.value


def _answered(compiled: Compiled, answers: Iterable[Answer]) -> dict[str, Function]:
    """The predicates with an answer here that the target has none for."""
    given = {answer.predicate for answer in compiled.target.answers}
    found: dict[str, Function] = {}
    for name, predicate in compiled.program.predicates.items():
        own = [answer for answer in answers if answer.predicate == name and name not in given]
        values = {answer.value for answer in own}
        if own and len(values) == 1 and all(answer.args is None for answer in own):
            found[name] = _Always(Truth.of(values.pop()))
        elif own:
            found[name] = answers_of(predicate, own)
    return found


def _calls(steps: Iterable[ir.Step]) -> Iterator[str]:
    """Operations that are done whichever branch is taken."""
    for step in steps:
        if isinstance(step, ir.Call):
            yield step.op
