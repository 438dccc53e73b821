"""What a declaration needs beside itself: the other ops, dtype sets, lets and tables it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusiondsl.ir.program import Const, OpDecl, Program, Table


@dataclass(frozen=True)
class Context:
    ops: Mapping[str, OpDecl] = field(default_factory=dict)
    dtype_sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lets: Mapping[str, Const] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> Context:
        return Context(program.ops, program.dtype_sets, program.lets, program.tables)
