"""Extern predicates as functions of conditions, answered by what the target was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fusiondsl import ir
from fusiondsl.dims import Dim, Facts, Truth
from fusiondsl.dims.values import Unknown, Value, show
from fusiondsl.target import Answer


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one predicate.

    A layer in a graph may stand for any other of its kind, because one compiled graph serves them
    all. So the answers for every layer with the same other arguments count: they must agree.
    """

    predicate: ir.Predicate
    given: tuple[Answer, ...]

    def __call__(self, args: Sequence[Value], facts: Facts) -> Value:
        asked: dict[str, Any] = {}
        for param, arg in zip(self.predicate.params, args, strict=True):
            if _is_layer(param):
                continue
            value = _plain(arg, facts)
            if value is None:
                return Unknown(f"{self._question(args)} is asked of one number, not of a range")
            asked[param.name] = value
        fitting = [answer for answer in self.given if self._fits(answer, asked)]
        if not fitting:
            return Unknown(f"nobody answers {self._question(args)}")
        values = {answer.value for answer in fitting}
        if len(values) == 1:
            return Truth.of(values.pop())
        return Unknown(f"{self._question(args)} {self._disagreement(fitting)}")

    def _fits(self, answer: Answer, asked: dict[str, Any]) -> bool:
        if answer.args is None:
            return True
        return all(_same(answer.args.get(name), value) for name, value in asked.items())

    def _question(self, args: Sequence[Value]) -> str:
        shown = [
            f"{param.name} = {show(arg)}"
            for param, arg in zip(self.predicate.params, args, strict=True)
            if not _is_layer(param)
        ]
        return f"{self.predicate.name}({', '.join(shown)})"

    def _disagreement(self, fitting: Iterable[Answer]) -> str:
        layers = [param.name for param in self.predicate.params if _is_layer(param)]
        if not layers:
            return "is answered with true and with false"
        named = {a.value: str((a.args or {}).get(layers[0], "some layers")) for a in fitting}
        return f"is true for {named[True]} and false for {named[False]}"


def answers_of(predicate: ir.Predicate, given: Iterable[Answer]) -> Answers:
    """Raises `ValueError` where an answer is not about the arguments the predicate has."""
    own = tuple(answer for answer in given if answer.predicate == predicate.name)
    names = {param.name for param in predicate.params}
    for answer in own:
        if answer.args is not None and answer.args.keys() != names:
            raise ValueError(
                f"an answer to {predicate.name} has the arguments ({', '.join(answer.args)}), "
                f"the predicate ({', '.join(p.name for p in predicate.params)})"
            )
    return Answers(predicate, own)


def _is_layer(param: ir.Param) -> bool:
    return isinstance(param.type, ir.ScalarType) and param.type.kind == "layer"


def _plain(arg: Value, facts: Facts) -> Any:
    """An argument as answers have it; None for a size that is no single number."""
    if isinstance(arg, Dim):
        return facts.bounds(arg).single
    return arg.name if isinstance(arg, ir.DType) else arg


def _same(answered: Any, asked: Any) -> bool:
    """Type-strict: `true` is no 1."""
    return type(answered) is type(asked) and answered == asked
