"""A body with what each of its calls wants, from whichever call one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fusiondsl import ir
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.engine.compile import CompiledRule
from fusiondsl.engine.forms import BodyForm, Forms
from fusiondsl.engine.pattern import FILL, LIST, SAME, SKIP, Argument, Path

_WEIGHTS = {"prim.view": 0.25, "prim.cast": 0.25}
"""Calls that may have vanished say little about whether a rule is near."""
_PRIMITIVE, _OP = 0.6, 1.0


@dataclass(frozen=True, eq=False)
class Sketch:
    """A body with its match program."""

    body: Sequence[ir.Call]
    path: Path
    literals: Mapping[int, Any]
    """By slot: the value it must hold."""
    ops: Mapping[str, ir.OpDecl]

    @staticmethod
    def of_rule(rule: CompiledRule, forms: Forms) -> Sketch:
        return Sketch(rule.rule.match, rule.path, dict(forms.literals(rule.path)), forms.ops)

    @staticmethod
    def of_form(form: BodyForm, forms: Forms) -> Sketch:
        return Sketch(form.form.body, form.path, dict(forms.literals(form.path)), forms.ops)

    @cached_property
    def args(self) -> dict[int, tuple[Argument, ...]]:
        """What each call of the body wants of its arguments."""
        return dict(zip(self.path.order, visits(self.path), strict=True))

    @cached_property
    def names(self) -> dict[int, str]:
        """What each slot that has a name is called for people."""
        names = {slot: name for name, slot in self.path.slots.items()}
        return {slot: self._shown(slot, name) for slot, name in names.items()}

    def _shown(self, slot: int, name: str) -> str:
        if not name.startswith("%") or slot not in self.producers:
            return name
        return f"what {shown_op(self.body[self.producers[slot][0]].op)} makes"

    @cached_property
    def producers(self) -> dict[int, tuple[int, int]]:
        """By slot: the call and its result that make what stands there."""
        made = {n: (i, r) for i, c in enumerate(self.body) for r, n in enumerate(c.results) if n}
        return {slot: made[name] for name, slot in self.path.slots.items() if name in made}

    @cached_property
    def made(self) -> dict[int, list[tuple[int, int]]]:
        """By call: (result, slot) of what it makes and others read."""
        found: dict[int, list[tuple[int, int]]] = {}
        for slot, (index, result) in self.producers.items():
            found.setdefault(index, []).append((result, slot))
        return found

    @cached_property
    def has_sizes(self) -> bool:
        """Some argument must equal an expression over sizes, as the ends of slices do."""
        return any(isinstance(operand, ir.Computed) for _, operand in self.path.constants)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        return tuple(
            _WEIGHTS.get(c.op, _PRIMITIVE if c.op.startswith("prim.") else _OP) for c in self.body
        )

    def param(self, index: int, position: int) -> str:
        """The name of an argument of a call."""
        return param_name(self.body[index].op, position, self.ops)

    def result_name(self, index: int) -> str:
        """What the body calls the first result it names."""
        op = shown_op(self.body[index].op)
        named = (name for name in self.body[index].results if name and not name.startswith("%"))
        return next(named, f"the {op}")


def visits(path: Path) -> list[tuple[Argument, ...]]:
    """What the calls of a match program want of their arguments, in its order."""
    return [path.args, *(step.args for step in path.steps if step.op not in (SAME, FILL))]


def place_of(path: Path, slot: int) -> tuple[int, int] | None:
    """(place in the program's order, argument) of what first fills a slot."""
    for place, arguments in enumerate(visits(path)):
        for position, (kind, filled, _) in enumerate(arguments):
            if filled == slot and kind not in (LIST, SKIP):
                return place, position
    return None


def param_name(op: str, position: int, ops: Mapping[str, ir.OpDecl]) -> str:
    """The name of an argument of an op or a primitive."""
    if op in ops:
        return ops[op].call_params[position].name
    return PRIMITIVES[op.removeprefix("prim.")].params[position]


def shown_op(op: str) -> str:
    """As rules write it: primitives have no prefix there."""
    return op.removeprefix("prim.")
