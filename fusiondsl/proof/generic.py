"""Rules without their numbers: what is proved for any number is proved for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusiondsl.ir.program import Call, Const, OpDecl, Operand, Param, Ref, Rule, ScalarType

_WHOLE = ScalarType("int")


def without_numbers(rule: Rule, ops: Mapping[str, OpDecl]) -> Rule:
    """`rule` with whole numbers passed to ops as parameters; equal numbers are one parameter."""
    numbers: dict[int, str] = {}
    match = tuple(_abstract(call, ops, numbers) for call in rule.match)
    written = tuple(_abstract(call, ops, numbers) for call in rule.replace)
    if not numbers:
        return rule
    params = tuple(Param(name, _WHOLE) for name in numbers.values())
    return replace(rule, params=rule.params + params, match=match, replace=written)


def _abstract(call: Call, ops: Mapping[str, OpDecl], numbers: dict[int, str]) -> Call:
    decl = ops.get(call.op)
    if decl is None:
        return call
    pairs = zip(decl.call_params, call.args, strict=True)
    return replace(call, args=tuple(_argument(param, arg, numbers) for param, arg in pairs))


def _argument(param: Param, arg: Operand, numbers: dict[int, str]) -> Operand:
    if param.type != _WHOLE or not isinstance(arg, Const) or type(arg.value) is not int:
        return arg
    return Ref(numbers.setdefault(arg.value, f"#{len(numbers)}"))
