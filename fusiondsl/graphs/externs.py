"""Defines declared extern ops that this process lacks, from their schema snapshots."""

from __future__ import annotations

from fusiondsl.ir.program import Program


def define_missing(program: Program) -> tuple[str, ...]:
    return ()
