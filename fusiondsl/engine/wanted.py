"""What rules look for that graphs may spell in another way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fusiondsl import ir
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.engine.pattern import references
from fusiondsl.engine.reciprocals import is_number

Readers: TypeAlias = "frozenset[str] | None"
"""Primitives, one of which reads a value; None where anybody may."""

PASSED = frozenset({"prim.cast", "prim.view"})
"""Who reads these reads what is behind them."""
_ELEMENTWISE = frozenset(
    f"prim.{name}" for name, p in PRIMITIVES.items() if p.typing == "elementwise"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the rules of one program have that graphs may spell in another way."""

    ops: frozenset[str]
    divisors: tuple[Any, ...]
    """Constants that something is divided by."""
    factors: tuple[Any, ...]
    """Constants that something is multiplied by."""
    any_divisor: bool
    """Something is divided by a scalar that is bound where it stands."""
    any_factor: bool
    quotients: Readers
    """What reads the quotients of values."""
    products: Readers
    """What reads the products with a reciprocal."""

    @staticmethod
    def of(rules: Iterable[ir.Rule], program: ir.Program) -> Wanted:
        ops: set[str] = set()
        operands: dict[str, dict[Any, None]] = {"prim.div": {}, "prim.mul": {}}
        quotients: list[Readers] = []
        products: list[Readers] = []
        for body, scalars in _bodies(rules, program):
            reciprocals = {n for c in body if c.op == "prim.reciprocal" for n in c.results}
            for call in body:
                ops.add(call.op)
                if call.op == "prim.div":
                    quotients.append(_readers(body, call))
                elif call.op == "prim.mul" and not reciprocals.isdisjoint(_named(call)):
                    products.append(_readers(body, call))
                if call.op in operands:
                    given = call.args[1:] if call.op == "prim.div" else call.args
                    operands[call.op].update(dict.fromkeys(_constants(given, scalars)))
        return Wanted(
            frozenset(ops),
            tuple(c for c in operands["prim.div"] if c is not None),
            tuple(c for c in operands["prim.mul"] if c is not None),
            None in operands["prim.div"],
            None in operands["prim.mul"],
            _all(quotients),
            _all(products),
        )


def _bodies(
    rules: Iterable[ir.Rule], program: ir.Program
) -> Iterator[tuple[Sequence[ir.Call], frozenset[str]]]:
    """Sources and the forms of their ops, each with the names that are scalars there."""
    waiting: dict[str, None] = {}
    for rule in rules:
        yield rule.match, _scalars(rule.params)
        waiting.update(dict.fromkeys(call.op for call in rule.match))
    pending, seen = list(waiting), set(waiting)
    while pending:
        decl = program.ops.get(pending.pop())
        for form in () if decl is None else decl.forms:
            assert decl is not None
            yield form.body, _scalars(decl.params)
            more = {call.op for call in form.body} - seen
            seen |= more
            pending += more


def _scalars(params: Iterable[ir.Param]) -> frozenset[str]:
    return frozenset(p.name for p in params if isinstance(p.type, ir.ScalarType))


def _constants(operands: Iterable[ir.Operand], scalars: frozenset[str]) -> Iterator[Any]:
    """Numbers among operands; None for one that is known at the site only."""
    for operand in operands:
        if isinstance(operand, ir.Const):
            if is_number(operand.value):
                yield operand.value
        elif not isinstance(operand, ir.Ref) or operand.name in scalars:
            yield None


def _named(call: ir.Call) -> Iterator[str]:
    for operand in call.args:
        yield from references(operand)


def _readers(body: Sequence[ir.Call], call: ir.Call) -> Readers:
    found: set[str] = set()
    waiting = [name for name in call.results if name is not None]
    for name in waiting:
        readers = [reader for reader in body if name in _named(reader)]
        if not readers:
            return None
        for reader in readers:
            if reader.op in PASSED:
                waiting += [result for result in reader.results if result is not None]
            elif reader.op in _ELEMENTWISE:
                found.add(reader.op)
            else:
                return None
    return frozenset(found)


def _all(readers: Sequence[Readers]) -> Readers:
    known = [found for found in readers if found is not None]
    return frozenset().union(*known) if len(known) == len(readers) else None
