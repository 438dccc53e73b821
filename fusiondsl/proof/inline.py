"""Bodies as terms: every call of an op with a meaning is replaced by its meaning.

This follows `ops.reference` step by step, with terms where that has tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.expr import Spread
from fusiondsl.ir.program import (
    Branch,
    Computed,
    Const,
    ListOf,
    OpDecl,
    Operand,
    Ref,
    Step,
    TensorType,
    Unrounded,
)
from fusiondsl.ir.program import Call as CallStep
from fusiondsl.proof.attrs import Attr
from fusiondsl.proof.prims import Argument, Primitives
from fusiondsl.proof.scope import Scope
from fusiondsl.proof.terms import Term
from fusiondsl.proof.values import Context, Origin, Unprovable, Value

_PRIMITIVE = "prim."
MAX_DEPTH = 40
"""Ops that mean each other would never end."""


class Side:
    """One side of a proof: its values, and where its terms come from."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.primitives = Primitives(context)
        self.origins: dict[Term, Origin] = {}
        self.meaningless: set[str] = set()
        """Ops of which nothing is known but their name."""
        self._call: Span | None = None
        self._depth = 0

    # --- bodies --------------------------------------------------------------------------------

    def top(self, steps: Sequence[CallStep], scope: Scope) -> None:
        """The steps of a rule; what they compute is found in `scope`."""
        for step in steps:
            self._call = step.span
            self._step(step, scope)
        self._call = None

    def body(self, steps: Sequence[Step], scope: Scope) -> None:
        for step in steps:
            if isinstance(step, Branch):
                self._branch(step, scope)
            else:
                self._step(step, scope)

    def _branch(self, step: Branch, scope: Scope) -> None:
        holds = scope.truth(step.condition)
        if holds is not None:
            self.body(step.then if holds else step.otherwise, scope)
            return
        condition = scope.key(step.condition)
        then, otherwise = scope.copy(), scope.copy()
        self.body(step.then, then)
        self.body(step.otherwise, otherwise)
        for name, value in then.values.items():
            other = otherwise.values.get(name)
            if name not in scope.values and isinstance(value, Value) and isinstance(other, Value):
                scope.values[name] = self._either(condition, value, other)

    def _either(self, condition: Attr, one: Value, other: Value) -> Value:
        def choose(a: Term, b: Term) -> Term:
            if a is b:
                return a
            if a.format != b.format or a.shape != b.shape:
                raise Unprovable("a `case` whose results have several types")
            return self.context.pool.make("case", (a, b), (condition,), a.format, a.shape)

        exact = None
        if one.unrounded is not None or other.unrounded is not None:
            exact = choose(one.exact, other.exact)
        return Value(choose(one.term, other.term), exact, one.dtype)

    def _step(self, step: CallStep, scope: Scope) -> None:
        args = [self.operand(a, scope) for a in step.args]
        results = self._results(step.op, args)
        for name, value in zip(step.results, results, strict=False):
            if isinstance(value, Value):
                self._note(value, name, step.span)
            if name is not None:
                scope.values[name] = value

    def _note(self, value: Value, name: str | None, span: Span | None) -> None:
        written = None if name is None or name.startswith("%") else name
        for term in (value.exact, value.term):
            known = self.origins.get(term)
            if known is None or (known.name is None and written is not None):
                self.origins[term] = Origin(written, span, self._call)

    # --- calls ---------------------------------------------------------------------------------

    def _results(self, op: str, args: list[Argument]) -> Sequence[Value | Attr]:
        if op.startswith(_PRIMITIVE):
            return (self.primitives.apply(op.removeprefix(_PRIMITIVE), args),)
        decl = self.context.ops[op]
        named = dict(zip((p.name for p in decl.call_params), args, strict=True))
        scope = Scope.of_call(decl, named, self.context)
        if decl.axiom or decl.means is None:
            return self._opaque(decl, named, scope)
        if self._depth >= MAX_DEPTH:
            raise Unprovable(f"`{op}` is nested too deeply")
        self._depth += 1
        self.body(decl.means, scope)
        self._depth -= 1
        return [self._result(decl, r.name, scope) for r in decl.call_results]

    def _result(self, decl: OpDecl, name: str, scope: Scope) -> Value | Attr:
        value = scope.values.get(name)
        if isinstance(value, list) or value is None:
            raise Unprovable(f"the meaning of `{decl.name}` leaves `{name}` open")
        return value

    def _opaque(
        self, decl: OpDecl, named: Mapping[str, Argument], scope: Scope
    ) -> Sequence[Value | Attr]:
        """An op as a function of which nothing is known but that it is one."""
        if not decl.axiom:
            self.meaningless.add(decl.name)
        terms: list[Term] = []
        marks: list[Attr] = [("str", decl.name)]
        for name, argument in named.items():
            _collect(name, argument, terms, marks)
        results: list[Value | Attr] = []
        for position, result in enumerate(decl.call_results):
            if not isinstance(result.type, TensorType):
                raise Unprovable(f"`{decl.name}` returns something that is no tensor")
            try:
                dtype = scope.dtype(result.type.dtype)
            except Unprovable:
                dtype = f"dtype of {decl.name} {position}"
            shape = scope.shape(result.type.dims)
            key = (*marks, ("int", position))
            term = self.context.pool.make("call", tuple(terms), key, dtype, shape)
            results.append(Value(term, None, dtype))
        return results

    # --- operands ------------------------------------------------------------------------------

    def operand(self, operand: Operand, scope: Scope) -> Argument:
        if isinstance(operand, Ref):
            return scope.lookup(operand.name)
        if isinstance(operand, Const):
            return scope.constant(operand.value)
        if isinstance(operand, Unrounded):
            value = scope.lookup(operand.name)
            if not isinstance(value, Value):
                raise Unprovable(f"`~{operand.name}` of something that is no tensor")
            return value.skipping_rounding()
        if isinstance(operand, ListOf):
            return self._list(operand, scope)
        if isinstance(operand, Computed):
            return scope.attr(operand.expr)
        raise Unprovable("an argument that may be anything")

    def _list(self, operand: ListOf, scope: Scope) -> list[Argument]:
        items: list[Argument] = []
        for item in operand.items:
            if isinstance(item, Computed) and isinstance(item.expr, Spread):
                items.extend(("int", size) for size in scope.spread(item.expr.name))
            else:
                items.append(self.operand(item, scope))
        return items


def _collect(name: str, argument: Argument, terms: list[Term], marks: list[Attr]) -> None:
    if isinstance(argument, Value):
        marks.append((name, "tensor"))
        terms.append(argument.term)
    elif isinstance(argument, list):
        marks.append((name, "list", len(argument)))
        for item in argument:
            _collect(name, item, terms, marks)
    else:
        marks.append((name, argument))
