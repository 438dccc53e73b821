"""Whether the parts of a program go together, as they do in every program that was checked.

The types of fields are not enough: a file that somebody changed and sealed again could call an op
that is not there. What the checker found out about sizes and dtypes is not found out again.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusiondsl import ir
from fusiondsl.artifact.plain import Damaged
from fusiondsl.decl.primitives import PRIMITIVES

_PRIMITIVE = "prim."


def check_sound(program: ir.Program) -> None:
    """Raises `Damaged` for calls of unknown ops or of another arity, and for unknown values."""
    for op in program.ops.values():
        own = [param.name for param in op.params]
        _Body(program, own, f"op {op.name}").steps(op.means or ())
        for form in op.forms:
            body = _Body(program, own, f"op {op.name}")
            body.steps(form.body)
            body.read(name for name in form.results if name is not None)
    for rule in program.rules:
        _check_rule(program, rule)


def _check_rule(program: ir.Program, rule: ir.Rule) -> None:
    body = _Body(program, [param.name for param in rule.params], f"rule {rule.name}")
    body.steps(rule.match)
    body.read([*rule.kept, *(matched for matched, _ in rule.outputs)])
    body.steps(rule.replace)
    body.read(written for _, written in rule.outputs)


class _Body:
    """The names that the steps of a body have bound so far."""

    def __init__(self, program: ir.Program, names: Iterable[str], owner: str) -> None:
        self._ops = program.ops
        self._bound = set(names)
        self._owner = owner

    def steps(self, steps: Iterable[ir.Step]) -> None:
        for step in steps:
            if isinstance(step, ir.Branch):
                self.steps(step.then)
                self.steps(step.otherwise)
            else:
                self._call(step)

    def _call(self, call: ir.Call) -> None:
        args, results = self._arity(call.op)
        if len(call.args) != args or len(call.results) > results:
            raise Damaged(f"{self._owner} calls {call.op[:40]!r} with other arguments or results")
        for arg in call.args:
            self._operand(arg)
        self._bound.update(name for name in call.results if name is not None)

    def _arity(self, op: str) -> tuple[int, int]:
        primitive = PRIMITIVES.get(op.removeprefix(_PRIMITIVE))
        if op.startswith(_PRIMITIVE) and primitive is not None:
            return len(primitive.params), 1
        if op not in self._ops:
            raise Damaged(f"{self._owner} calls {op[:40]!r}, which is no op")
        return len(self._ops[op].call_params), len(self._ops[op].call_results)

    def _operand(self, operand: ir.Operand) -> None:
        match operand:
            case ir.Ref(name) | ir.Unrounded(name):
                self.read([name])
            case ir.ListOf(items):
                for item in items:
                    self._operand(item)
            case _:
                pass

    def read(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._bound:
                raise Damaged(f"{self._owner} reads {name[:40]!r}, which nothing binds")
