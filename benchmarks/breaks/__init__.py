"""Sources of rules broken in one known way each: what near misses are scored on.

A break says what the true cause is before anything is asked. Every break gets its own copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import fusiondsl
from benchmarks.breaks import arguments, precedence, structure, users, values
from benchmarks.breaks.source import Break, Broken, Expected, fires, sources
from fusiondsl.graphs.externs import define_missing

__all__ = ["BREAKS", "Broken", "Expected", "broken_sources"]

BREAKS: tuple[Break, ...] = (
    arguments.literals,
    arguments.keywords,
    arguments.attributes,
    values.dtypes,
    values.flavours,
    values.bounds,
    values.symbols,
    users.extra_users,
    users.writers,
    users.written_inputs,
    structure.in_between,
    structure.split_graphs,
    structure.other_ops,
    precedence.capabilities,
    precedence.larger_rules,
)


def broken_sources(rules: frozenset[str] | None = None) -> Iterator[Broken]:
    """Every break of every shipped rule; those that the engine sees through are left out."""
    program = fusiondsl.load("fusiondsl:").program
    define_missing(program)
    for rule in program.rules:
        if rules is not None and rule.name not in rules:
            continue
        make = sources(program, rule)
        if make is None:
            continue
        for way in BREAKS:
            for case in way(make):
                if not fires(case.rules, case.graph, case.rule):
                    yield case
