"""The body being built: flat calls, temporaries, one value for equal calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusiondsl.analysis.values import TensorValue
from fusiondsl.diagnostics.source import Span
from fusiondsl.ir.program import (
    Branch,
    Call,
    Computed,
    ListOf,
    Operand,
    Ref,
    Step,
    TensorType,
    Unrounded,
)

TEMPORARY = "%"


class Body:
    """Calls in order, and the type of every value. `None` types were already reported."""

    def __init__(self, first_temporary: int = 0) -> None:
        self.steps: list[Step] = []
        self.types: dict[str, TensorType | None] = {}
        self.aliases: dict[str, str] = {}
        self.spans: dict[str, Span] = {}
        self._first = first_temporary
        self._temporaries = first_temporary
        self._known: dict[str, tuple[str, ...]] = {}
        self._made_by: dict[str, int] = {}

    # --- building ------------------------------------------------------------------------------

    def emit(
        self,
        op: str,
        args: tuple[Operand, ...],
        types: Iterable[TensorType | None],
        span: Span | None,
        *,
        pure: bool = True,
    ) -> list[TensorValue]:
        """Adds a call, or finds the equal one."""
        key = repr((op, args))
        types = list(types)
        names = self._known.get(key) if pure else None
        if names is None:
            names = tuple(self._temporary() for _ in types)
            for name in names:
                self._made_by[name] = len(self.steps)
            self.steps.append(Call(op, args, names, span))
            self.types.update(zip(names, types, strict=True))
            self._known[key] = names
        return [self.value(name) for name in names]

    def value(self, name: str) -> TensorValue:
        name = self.resolve(name)
        return TensorValue(Ref(name), name, self.types[name])

    def resolve(self, name: str) -> str:
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def bind(self, name: str, value: TensorValue, span: Span) -> None:
        """Gives a value the name it has in the text."""
        self.spans[name] = span
        if self.is_fresh(value):
            self._rename(value.name, name)
        elif name != value.name:
            self.aliases[name] = value.name

    def _rename(self, old: str, new: str) -> None:
        position = self._made_by.pop(old)
        self._made_by[new] = position
        self.types[new] = self.types.pop(old)
        self.aliases[old] = new
        for index in range(position, len(self.steps)):
            self.steps[index] = _renamed(self.steps[index], {old: new})

    def arm(self) -> Body:
        """A body for one arm of a `case`: it sees the values there are."""
        arm = Body(self._temporaries)
        arm.types.update(self.types)
        arm.aliases.update(self.aliases)
        return arm

    def take(self, arm: Body) -> None:
        """Goes on after an arm; its values have types here too."""
        self._temporaries = arm._temporaries
        self.types.update(arm.types)

    def is_fresh(self, value: TensorValue) -> bool:
        """A result that has no name yet."""
        return value.name.startswith(TEMPORARY) and value.name in self._made_by

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"{TEMPORARY}{self._temporaries - 1}"

    # --- finishing -----------------------------------------------------------------------------

    def finish(self) -> int:
        """Drops names nobody wrote or uses, numbers the others; returns the next free number."""
        used = set(_used(self.steps))
        order: dict[str, str] = {}
        for step in self.steps:
            for name in _bound(step):
                if name.startswith(TEMPORARY) and name in used:
                    order[name] = f"{TEMPORARY}{self._first + len(order)}"
        drop = {n for n in self.types if n.startswith(TEMPORARY) and n not in order}
        self.steps = [_renamed(step, order, drop) for step in self.steps]
        self.types = {order.get(k, k): v for k, v in self.types.items() if k not in drop}
        self.aliases = {
            k: order.get(self.resolve(k), self.resolve(k))
            for k in self.aliases
            if not k.startswith(TEMPORARY)
        }
        return self._first + len(order)


def refs(operand: Operand) -> Iterable[str]:
    """The names an operand reads, outside of expressions."""
    match operand:
        case Ref() | Unrounded():
            yield operand.name
        case ListOf():
            for item in operand.items:
                yield from refs(item)


def _used(steps: Iterable[Step]) -> Iterable[str]:
    for step in steps:
        if isinstance(step, Branch):
            yield from _used(step.then)
            yield from _used(step.otherwise)
            continue
        for arg in step.args:
            yield from refs(arg)


def _bound(step: Step) -> Iterable[str]:
    if isinstance(step, Branch):
        for inner in (*step.then, *step.otherwise):
            yield from _bound(inner)
    else:
        yield from (name for name in step.results if name is not None)


def _renamed(step: Step, names: dict[str, str], drop: Iterable[str] = ()) -> Step:
    if isinstance(step, Branch):
        return replace(
            step,
            then=tuple(_renamed(s, names, drop) for s in step.then),
            otherwise=tuple(_renamed(s, names, drop) for s in step.otherwise),
        )
    return replace(
        step,
        args=tuple(_renamed_operand(a, names) for a in step.args),
        results=tuple(None if r is None or r in drop else names.get(r, r) for r in step.results),
    )


def _renamed_operand(operand: Operand, names: dict[str, str]) -> Operand:
    match operand:
        case Ref():
            return Ref(names[operand.name]) if operand.name in names else operand
        case Unrounded():
            return Unrounded(names[operand.name]) if operand.name in names else operand
        case ListOf():
            return ListOf(tuple(_renamed_operand(i, names) for i in operand.items))
        case _:
            return operand


def reads(step: Call) -> tuple[str, ...]:
    """Every value or scalar parameter a call reads as a whole argument or list item."""
    return tuple(name for arg in step.args for name in refs(arg))


def computed(step: Call) -> Iterable[Computed]:
    """The computed scalars among the arguments of a call."""
    for arg in step.args:
        yield from _computed(arg)


def _computed(operand: Operand) -> Iterable[Computed]:
    if isinstance(operand, Computed):
        yield operand
    elif isinstance(operand, ListOf):
        for item in operand.items:
            yield from _computed(item)
