"""Whether the parts of a program go together, as they do in every program that was checked.

The types of fields are not enough: a file that somebody changed and sealed again could call an op
that is not there. What the checker found out about sizes and dtypes is not found out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn, TypeAlias

from fusiondsl import ir
from fusiondsl.artifact.plain import Damaged
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.ir import Branch, Ref

_Arity: TypeAlias = tuple[int, int]
"""How many arguments a call of an op has, and how many results at most."""

_PRIMITIVES: Mapping[str, _Arity] = {
    f"prim.{name}": (len(primitive.params), 1) for name, primitive in PRIMITIVES.items()
}
_NAMELESS = frozenset({ir.Const, ir.Computed, ir.Anything})
_TAKEN, _MUTATED = frozenset({"read", "inout"}), frozenset({"out", "inout"})


def check_sound(program: ir.Program) -> None:
    """Raises `Damaged` for calls of unknown ops or of another arity, and for unknown values.

    What ops mean is not looked at.
    """
    arities = _arities(program)
    for op in program.ops.values():
        own = [param.name for param in op.params]
        for form in op.forms:
            body = _Body(arities, own, f"op {op.name}")
            body.steps(form.body)
            body.read(name for name in form.results if name is not None)
    for rule in program.rules:
        _check_rule(arities, rule)


def check_meanings(program: ir.Program, means: Mapping[str, Iterable[ir.Step]]) -> None:
    """The same for what ops mean, by their names."""
    arities = _arities(program)
    for name, steps in means.items():
        own = [param.name for param in program.ops[name].params]
        _Body(arities, own, f"op {name}").steps(steps)


def _arities(program: ir.Program) -> dict[str, _Arity]:
    return {**_PRIMITIVES, **{name: _arity(op) for name, op in program.ops.items()}}


def _arity(op: ir.OpDecl) -> _Arity:
    kinds = [param.kind for param in op.params]
    taken = sum([kind in _TAKEN for kind in kinds])
    return taken, len(op.results) + sum([kind in _MUTATED for kind in kinds])


def _check_rule(arities: Mapping[str, _Arity], rule: ir.Rule) -> None:
    body = _Body(arities, [param.name for param in rule.params], f"rule {rule.name}")
    body.steps(rule.match)
    body.read([*rule.kept, *(matched for matched, _ in rule.outputs)])
    body.steps(rule.replace)
    body.read(written for _, written in rule.outputs)


class _Body:
    """The names that the steps of a body have bound so far."""

    def __init__(self, arities: Mapping[str, _Arity], names: Iterable[str], owner: str) -> None:
        self._arities = arities
        self._bound: set[str | None] = set(names)
        self._owner = owner

    def steps(self, steps: Iterable[ir.Step]) -> None:
        bound, arities = self._bound, self._arities
        for step in steps:
            if isinstance(step, Branch):
                self.steps(step.then)
                self.steps(step.otherwise)
                continue
            args, results = step.args, step.results
            arity = arities.get(step.op)
            if arity is None:
                self._refuse(f"calls {step.op[:40]!r}, which is no op")
            if len(args) != arity[0] or len(results) > arity[1]:
                self._refuse(f"calls {step.op[:40]!r} with other arguments or results")
            for arg in args:
                if type(arg) is Ref:
                    if arg.name not in bound:
                        self.read([arg.name])
                elif type(arg) not in _NAMELESS:
                    self.read(_references(arg))
            bound.update(results)

    def read(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._bound:
                self._refuse(f"reads {name[:40]!r}, which nothing binds")

    def _refuse(self, message: str) -> NoReturn:
        raise Damaged(f"{self._owner} {message}")


def _references(operand: ir.Operand) -> Iterator[str]:
    if isinstance(operand, ir.Ref | ir.Unrounded):
        yield operand.name
    elif isinstance(operand, ir.ListOf):
        for item in operand.items:
            yield from _references(item)
