"""Values that a rule may replace by any other, because nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusiondsl.analysis.exprs import conjuncts, substitute
from fusiondsl.analysis.scope import is_fact
from fusiondsl.dims.expr import Expr, Name
from fusiondsl.dims.names import names
from fusiondsl.dims.render import render
from fusiondsl.ir.program import (
    READ_AS,
    UNREAD,
    ListOf,
    OpDecl,
    Operand,
    Readers,
    Ref,
    Rule,
    Unrounded,
)


def claims(rule: Rule, ops: Mapping[str, OpDecl]) -> dict[str, str | None]:
    """Each value that `allow` says is `unread`; None if so it is, otherwise why it may be read."""
    named = {a.value for a in rule.allow if a.kind == UNREAD}
    return {value: _objection(rule, value, ops) for value, _ in rule.outputs if value in named}


def above(rule: Rule, output: str) -> set[str | None]:
    """A matched value and those it is computed from."""
    found: set[str | None] = {output}
    for call in reversed(rule.match):
        if found.intersection(call.results):
            found.update(name for arg in call.args for name in _names(arg))
    return found


def _objection(rule: Rule, value: str, ops: Mapping[str, OpDecl]) -> str | None:
    staying = next((name for name in rule.kept if value in above(rule, name)), None)
    if staying is not None:
        return f"`{staying}` stays and reads it"
    stated = [readers for readers in rule.readers if readers.value == value]
    if not stated:
        return f"no `{READ_AS}` says who may read it"
    objections = [_of_readers(rule, readers, ops) for readers in stated]
    return None if None in objections else objections[0]


def _of_readers(rule: Rule, readers: Readers, ops: Mapping[str, OpDecl]) -> str | None:
    """The first reader that may depend on it."""
    known = {part for condition in rule.where for part in conjuncts(condition.expr)}
    given = {parameter: Name(scalar) for parameter, scalar in readers.given}
    for op, parameter in readers.roles:
        promised = [u.when for u in ops[op].unread if u.parameter == parameter]
        if not promised:
            return f"`{op}` may depend on its `{parameter}`"
        asked = [substitute(when, given) for when in promised if _is_decided(when, given)]
        if not asked:
            return f"`{render(promised[0])}` is not decided by what `{op}` must be given"
        if not any(known.issuperset(conjuncts(when)) for when in asked):
            return f"`where` does not ask for `{render(asked[0])}`"
    return None


def _is_decided(when: Expr, given: Mapping[str, Expr]) -> bool:
    return all(name in given or is_fact(name) for name in names(when))


def _names(operand: Operand) -> Iterator[str]:
    if isinstance(operand, (Ref, Unrounded)):
        yield operand.name
    elif isinstance(operand, ListOf):
        for item in operand.items:
            yield from _names(item)
