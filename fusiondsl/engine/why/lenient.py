"""Rules that a target rules out, compiled all the same, and what the target lacks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusiondsl import ir
from fusiondsl.dims import Truth, names
from fusiondsl.engine.compile import Compiled, Compiler
from fusiondsl.engine.why.answer import Cause
from fusiondsl.target import ENV_FACTS


class _Lenient(Compiler):
    """Compiles what can be matched, whether or not it may fire."""

    def refused(self, rule: ir.Rule) -> None:
        return None

    def lacks(self, rule: ir.Rule) -> Iterator[Cause]:
        """Every condition on the target alone that does not hold, of the rule and its ops."""
        yield from self._failing(rule.where, "")
        for op in dict.fromkeys(call.op for call in rule.replace):
            decl = self.program.ops.get(op)
            if decl is not None:
                yield from self._failing(decl.available, f"{op} is not available: ")

    def _failing(self, conditions: tuple[ir.Condition, ...], prefix: str) -> Iterator[Cause]:
        for condition in conditions:
            if not self.is_static(condition):
                continue
            verdict = self.verdict(condition)
            if verdict.truth is Truth.TRUE:
                continue
            facts = sorted(names(condition.expr) & ENV_FACTS.keys())
            unknown = [name for name in facts if name not in self.constants]
            yield Cause(
                "environment",
                f"{prefix}{verdict.reason}",
                field=", ".join(unknown or facts) or None,
                label=condition.label,
                span=condition.span,
            )


@dataclass(frozen=True)
class Lenient:
    """Every rule that can be matched, and by rule what the target lacks."""

    compiled: Compiled
    lacks: dict[str, tuple[Cause, ...]]


def compile_leniently(compiled: Compiled) -> Lenient:
    """The same rules without regard to what the target can do."""
    if not compiled.ineligible:
        return Lenient(compiled, {})
    compiler = _Lenient(compiled.program, compiled.target)
    rules = {rule.name: rule for rule in compiled.program.rules}
    everything = compiler.compile()
    lacks = {i.rule: tuple(compiler.lacks(rules[i.rule])) for i in compiled.ineligible}
    return Lenient(everything, lacks)
