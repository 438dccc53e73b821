"""Where match programs stopped, as refusals of the rules behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from fusiondsl import ir
from fusiondsl.dims import show
from fusiondsl.engine.compile import CompiledRule
from fusiondsl.engine.match import Near
from fusiondsl.engine.report import Refusal, RefusalKind
from fusiondsl.engine.typecheck import scalar_value

_MANY = 16
"""More rules than this at one stop are not reported one by one."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One stopped match program, without references into the graph."""

    rules: list[CompiledRule]
    anchor: str
    kind: str
    found: str
    """Name of the value looked at."""
    what: Any
    """Its target, or how else to describe it."""
    wanted: tuple[str, ...]
    literals: tuple[tuple[int, Any], ...]
    matched: int

    @staticmethod
    def of(near: Near[CompiledRule]) -> Stop:
        value = near.value
        is_node = isinstance(value, fx.Node)
        constant = near.kind == "constant"
        return Stop(
            near.node.members,
            near.calls[0].node.name,
            near.kind,
            value.name if is_node else str(getattr(value, "name", value)),
            value.target if is_node and value.op == "call_function" else _kind_of(value),
            () if constant else near.detail,
            tuple(zip(near.detail[0].slots, near.detail[1], strict=True)) if constant else (),
            len(near.calls),
        )

    def refusals(self) -> Iterator[Refusal]:
        if len(self.rules) > _MANY:
            return
        for rule in self.rules:
            message = self._constant(rule) if self.kind == "constant" else self._structure()
            yield Refusal(
                rule.name,
                self.anchor,
                RefusalKind(self.kind),
                message,
                None,
                self.matched,
                len(rule.rule.match),
            )

    def _structure(self) -> str:
        wanted = " or ".join(sorted(self.wanted))
        return f"expected {wanted} at {self.found}, found {self.what}"

    def _constant(self, rule: CompiledRule) -> str:
        found = dict(self.literals)
        for slot, operand in rule.path.constants:
            if isinstance(operand, ir.Const) and slot in found:
                wanted, there = show(operand.value), _show(found[slot])
                if wanted != there:
                    return f"found {there} where the rule wants {wanted}"
        return f"found {', '.join(_show(value) for value in found.values())}"


def _kind_of(value: Any) -> str:
    if isinstance(value, fx.Node):
        return f"the {value.op} {value.name}"
    return "a written buffer" if hasattr(value, "writer") else repr(value)


def _show(value: Any) -> str:
    return value.name if isinstance(value, fx.Node) else show(scalar_value(value))
