"""Lints."""

from __future__ import annotations

from fusiondsl.analysis.declare import Declared
from fusiondsl.analysis.rules import Built
from fusiondsl.ir.program import OpDecl


def lint_op(declared: Declared, decl: OpDecl) -> None:
    return None


def lint_rule(built: Built) -> None:
    return None
