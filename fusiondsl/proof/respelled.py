"""What a rule matches once it allows `recip`: other spellings of quotients, roots and means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fusiondsl.ir.program import (
    Call,
    Const,
    OpDecl,
    Operand,
    Param,
    Ref,
    Rule,
    ScalarType,
    TensorType,
    Type,
)
from fusiondsl.ir.strata import admitted_forms
from fusiondsl.proof.verdict import Declared

_RECIP = "recip"
_IN_HALF = frozenset({"round"})
_IN_HALF_SUMS = frozenset({"reduce_order"})
_ALWAYS = frozenset({"prim.rsqrt", "prim.reciprocal", "prim.mean"})
_UNROUNDED = frozenset({"f32", "f64"})
"""Dtypes in which a value in between is as good as one at the end."""


def respelled(rule: Rule, ops: Mapping[str, OpDecl]) -> Iterator[Declared]:
    """Differences that a site of the rule may have because the rule allows them."""
    allowed = {difference.kind for difference in rule.allow}
    if _RECIP not in allowed:
        return
    types = dict(rule.types)
    for body, scalars in _bodies(rule, ops):
        made = {name: call.op for call in body for name in call.results if name}
        for call in body:
            if not _may_be(call, made, scalars):
                continue
            owner = f"another spelling of `{call.op.removeprefix('prim.')}`"
            yield Declared(_RECIP, owner)
            if body is rule.match and not _is_wide(call, types):
                also = _IN_HALF | (_IN_HALF_SUMS if call.op == "prim.mean" else frozenset())
                yield from (Declared(kind, owner) for kind in sorted(also & allowed))


def _bodies(
    rule: Rule, ops: Mapping[str, OpDecl]
) -> Iterator[tuple[Sequence[Call], AbstractSet[str]]]:
    """The source and the forms its ops may have, each with the names that are scalars there."""
    yield rule.match, _scalars(rule.params)
    for call in rule.match:
        for form in admitted_forms(rule, call, ops):
            yield form.body, _scalars(ops[call.op].params)


def _scalars(params: Iterable[Param]) -> AbstractSet[str]:
    return {param.name for param in params if isinstance(param.type, ScalarType)}


def _may_be(call: Call, made: Mapping[str, str], scalars: AbstractSet[str]) -> bool:
    if call.op in _ALWAYS:
        return True
    if call.op == "prim.div":
        divisor = call.args[1]
        return not isinstance(divisor, Const) or _is_rounded(divisor)
    return call.op == "prim.mul" and any(_is_factor(a, made, scalars) for a in call.args)


def _is_factor(operand: Operand, made: Mapping[str, str], scalars: AbstractSet[str]) -> bool:
    """What a quotient may have as its divisor, as a reciprocal."""
    if isinstance(operand, Const):
        return _is_rounded(operand)
    if not isinstance(operand, Ref):
        return False
    return operand.name in scalars or made.get(operand.name) in ("prim.rsqrt", "prim.reciprocal")


def _is_rounded(constant: Const) -> bool:
    """The reciprocal of the constant is no number of its format."""
    value = constant.value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value != 0 and abs(math.frexp(value)[0]) != 0.5


def _is_wide(call: Call, types: Mapping[str, Type]) -> bool:
    declared = [types.get(name) for name in call.results if name]
    return all(isinstance(t, TensorType) and t.dtype in _UNROUNDED for t in declared)
