"""What only proofs, references and tests look at: meanings of ops, and examples of rules.

In an artifact it stands behind the program, and is read when somebody first looks at any of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fusiondsl import ir
from fusiondsl.artifact.plain import Damaged
from fusiondsl.artifact.sound import check_meanings


def split(program: ir.Program) -> tuple[ir.Program, ir.Aside]:
    """The program with empty meanings and no examples, and what was there."""
    means = {name: tuple(op.means) for name, op in program.ops.items() if op.means is not None}
    examples = {rule.name: tuple(rule.examples) for rule in program.rules}
    ops = {name: replace(op, means=()) if name in means else op for name, op in program.ops.items()}
    rules = tuple([replace(rule, examples=()) for rule in program.rules])
    return replace(program, ops=ops, rules=rules), ir.Aside(means, examples)


def attach(program: ir.Program, data: bytes, read: Callable[[], ir.Aside]) -> None:
    """Gives a program that nobody else has yet what `read` makes of `data`, to be read later."""
    for name, op in program.ops.items():
        if op.means is not None:
            means = ir.Later(("means", name, data), partial(_means, read, name))
            object.__setattr__(op, "means", means)
    for rule in program.rules:
        examples = ir.Later(("examples", rule.name, data), partial(_examples, read, rule.name))
        object.__setattr__(rule, "examples", examples)


def _means(read: Callable[[], ir.Aside], name: str) -> tuple[ir.Step, ...]:
    return read().means[name]


def _examples(read: Callable[[], ir.Aside], name: str) -> tuple[ir.Example, ...]:
    return read().examples[name]


def check_aside(aside: object, program: ir.Program) -> ir.Aside:
    """Raises `Damaged` where it is not what was split from the program."""
    meant = [name for name, op in program.ops.items() if op.means is not None]
    named = {rule.name for rule in program.rules}
    if not isinstance(aside, ir.Aside) or named != aside.examples.keys():
        raise Damaged("its examples are not those of its rules")
    if aside.means.keys() != set(meant):
        raise Damaged("its meanings are not those of its ops")
    check_meanings(program, aside.means)
    return aside
