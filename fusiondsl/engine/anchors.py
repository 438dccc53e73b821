"""Which graph targets the calls of compiled rules can have, known before there is a graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from fusiondsl.engine import aten
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.respelled import OTHER_TARGETS
from fusiondsl.ops.lookup import declared_overload


def anchor_targets(compiled: Compiled) -> list[Any]:
    """Targets by which every call of the rules' sources is found, however it is spelled.

    A call with several results, or one that is functionalised, is found by the `getitem`s that
    read it: later in the graph, and often fewer than the calls wrapped in one higher-order op.
    """
    ops = dict.fromkeys(call.op for rule in compiled.rules for call in rule.rule.match)
    spelled = dict.fromkeys(name for op in ops for name in _spellings(compiled, op))
    return list(dict.fromkeys(target for op in spelled for target in _targets(compiled, op)))


def _spellings(compiled: Compiled, op: str) -> Iterator[str]:
    """The op and every op that a spelling of it ends in."""
    yield op
    if op.startswith("prim."):
        return
    yield from compiled.forms.spellings.get(op, ())
    for result in range(len(compiled.program.ops[op].call_results)):
        yield from compiled.forms.ends(op, result)


def _targets(compiled: Compiled, op: str) -> Iterator[Any]:
    if op.startswith("prim."):
        yield from aten.TARGETS.get(op, ())
        yield from OTHER_TARGETS.get(op, ())
        return
    decl = compiled.program.ops[op]
    writes = any(param.kind in ("out", "inout") for param in decl.params)
    several = len(decl.call_results) > 1
    if several or writes:
        yield operator.getitem
    if several and not writes:
        return
    target = declared_overload(decl)
    if target is not None:
        yield target
