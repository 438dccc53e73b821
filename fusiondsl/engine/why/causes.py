"""Differences and refusals as causes: a code, a node, a place in the rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import fx

from fusiondsl import ir
from fusiondsl.diagnostics.source import Span
from fusiondsl.dims.dtypes import FP8_CANDIDATES
from fusiondsl.engine import aten
from fusiondsl.engine.mutation import VALUES, Version
from fusiondsl.engine.report import RefusalKind
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.why import nearest
from fusiondsl.engine.why.answer import Cause
from fusiondsl.engine.why.nearest import Assignment, Gap
from fusiondsl.engine.why.show import model_line, several, target_text, value_text
from fusiondsl.engine.why.sketch import Sketch, shown_op
from fusiondsl.engine.why.spans import (
    argument_span,
    condition_span,
    value_span,
)

_CODES = {
    RefusalKind.LOST.value: "lost-to-rule",
    RefusalKind.GRAPH_PASS.value: "needs-the-graph-pass",
}


def code_of(kind: str) -> str:
    """The code of an engine's refusal."""
    return _CODES.get(kind, kind.replace(" ", "-"))


class Teller:
    """Tells the differences of one assignment."""

    def __init__(
        self, sketch: Sketch, assignment: Assignment, spellings: Callable[[str], list[str]]
    ) -> None:
        self._sketch = sketch
        self._assignment = assignment
        self._spellings = spellings

    def causes(self) -> Iterator[Cause]:
        """Of every gap, what explains others first."""
        for gap in sorted(self._assignment.gaps, key=lambda gap: _ORDER[gap.kind]):
            yield from _TELL[gap.kind](self, gap)

    def call(self, gap: Gap) -> ir.Call:
        return self._sketch.body[gap.index]

    def missing(self, gap: Gap) -> Iterator[Cause]:
        op = shown_op(self.call(gap).op)
        wanted = self._sketch.result_name(gap.index)
        if gap.forward:
            readers = _readers(gap.value)
            node: Any = readers[0] if len(readers) == 1 else gap.value
            found = several(target_text(r) for r in readers) or "nobody"
            read = gap.value.name
            same = "" if read == gap.name else f", which is {read}"
            message = f"expected {op} to read {gap.name}{same}"
            listed = several(f"{reader.name} ({target_text(reader)})" for reader in readers)
            message += f"; read by {listed}" if readers else "; nobody reads it"
            yield self._cause("structure", message, node, wanted, op, found, gap)
            return
        found = target_text(gap.value)
        message = f"expected {op} at {value_text(gap.value)}, found {found}"
        yield self._cause("structure", message, gap.value, gap.name or wanted, op, found, gap)

    def between(self, gap: Gap) -> Iterator[Cause]:
        first = gap.between[0]
        chain = several(f"{n.name} ({target_text(n)})" for n in gap.between)
        message = f"{chain} stands in between: the rule reads {gap.name} directly"
        yield self._cause("structure", message, first, gap.name, None, target_text(first), gap)

    def written(self, gap: Gap) -> Iterator[Cause]:
        writer = gap.between[0]
        message = f"{gap.name} is written by {writer.name} ({target_text(writer)}) in between"
        yield self._cause("effect", message, writer, gap.name, None, target_text(writer), gap)

    def constant(self, gap: Gap) -> Iterator[Cause]:
        name = self._sketch.param(gap.index, gap.position)
        call = self.call(gap)
        found, wanted = _literal_text(gap.value), _literal_text(gap.wanted)
        if gap.name:
            wanted = f"{wanted}, as {gap.name} is elsewhere"
        message = f"{name} of {shown_op(call.op)} is {found}, the rule wants {wanted}"
        yield self._cause(
            "constant",
            message,
            self._node_of(gap),
            name,
            wanted,
            found,
            gap,
            span=argument_span(call, name),
        )

    def other(self, gap: Gap) -> Iterator[Cause]:
        one, two = value_text(gap.wanted), value_text(gap.value)
        message = f"{gap.name} is {one} in one place and {two} in another"
        yield self._cause("structure", message, gap.value, gap.name, one, two, gap)

    def kind(self, gap: Gap) -> Iterator[Cause]:
        name = self._sketch.param(gap.index, gap.position)
        found = value_text(gap.value)
        message = (
            f"{name} of {shown_op(self.call(gap).op)} is {found}, the rule wants a tensor there"
        )
        yield self._cause("structure", message, self._node_of(gap), name, "a tensor", found, gap)

    def spelling(self, gap: Gap) -> Iterator[Cause]:
        yield from gap.reasons

    def _node_of(self, gap: Gap) -> Any:
        call = self._assignment.calls.get(gap.index)
        return None if call is None else call.node

    def _cause(
        self,
        code: str,
        message: str,
        node: Any,
        field: str,
        expected: str | None,
        found: str | None,
        gap: Gap,
        span: Any = None,
    ) -> Cause:
        if code == "structure" and expected and gap.kind == nearest.MISSING:
            spelled = self._spellings(expected)
            if spelled:
                message += f" (also counts: {several(spelled)})"
        return Cause(
            code,
            message,
            node.name if isinstance(node, VALUES) else None,
            field,
            expected,
            found,
            span=span or self.call(gap).span,
            source=model_line(node),
            call=gap.index,
        )


_TELL: dict[int, Callable[[Teller, Gap], Iterator[Cause]]] = {
    nearest.MISSING: Teller.missing,
    nearest.BETWEEN: Teller.between,
    nearest.WRITTEN: Teller.written,
    nearest.CONSTANT: Teller.constant,
    nearest.OTHER: Teller.other,
    nearest.KIND: Teller.kind,
    nearest.SPELLING: Teller.spelling,
}
_ORDER = {
    nearest.WRITTEN: 0,
    nearest.BETWEEN: 1,
    nearest.SPELLING: 2,
    nearest.CONSTANT: 3,
    nearest.MISSING: 4,
    nearest.KIND: 5,
    nearest.OTHER: 6,
}
"""What explains the others comes first: a call that is missing may be so because of another gap."""


def of_problem(problem: Problem, rule: ir.Rule, anchor: fx.Node, nodes: Mapping[str, Any]) -> Cause:
    """What the engine refuses, located."""
    name = problem.node or anchor.name
    code, message, field = code_of(problem.kind), problem.message, problem.about or problem.label
    expected = found = None
    dtype = _DTYPE.fullmatch(message)
    if problem.kind == "dtype" and dtype is not None:
        found, expected = dtype["found"], dtype["wanted"] or dtype["here"]
        code = "fp8-flavour" if _are_flavours(found, expected) else code
    if problem.kind == RefusalKind.LOST.value:
        field, message = problem.message, f"{problem.message} takes these operations"
    return Cause(
        code,
        message,
        name,
        field,
        expected,
        found,
        problem.label,
        _span(problem, rule),
        model_line(nodes.get(name, anchor)),
    )


_DTYPE = re.compile(
    r"\w+ is (?P<found>\w+), (the rule wants (?P<wanted>.+)|but \w+ is (?P<here>\w+) here)"
)


def _span(problem: Problem, rule: ir.Rule) -> Span | None:
    """The part of a rule that a refusal is about."""
    if problem.kind.startswith("predicate"):
        return condition_span(rule, problem.label)
    if problem.kind in ("dtype", "shape", "constant") and problem.about:
        return value_span(rule, problem.about)
    return rule.span


def _are_flavours(found: str, expected: str | None) -> bool:
    return expected is not None and {found, *expected.split(" or ")} <= FP8_CANDIDATES


def _readers(value: Any) -> list[fx.Node]:
    """Who reads a value, also behind reshapes and what changes nothing."""
    found: dict[fx.Node, None] = {}
    waiting = list(value.users)
    while waiting:
        user = waiting.pop(0)
        passes = id(user.target) in aten.NO_OP_IDS or id(user.target) in aten.VIEW_IDS
        if passes and user.users:
            waiting += user.users
        else:
            found[user] = None
    return list(found)


def _literal_text(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return f"{len(value)} values"
    if isinstance(value, (tuple, list)) and any(isinstance(v, VALUES) for v in value):
        return f"[{several(value_text(v) for v in value)}]"
    if isinstance(value, Version):
        return value.name
    return value_text(value)
