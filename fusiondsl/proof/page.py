"""The table of proofs as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from fusiondsl.ir.program import Program, Rule
from fusiondsl.proof.prove import Prover
from fusiondsl.proof.verdict import Verdict, listed

_HEAD = """\
# What is proved about the shipped rules

Every op of a rule is replaced by its meaning, and both sides are brought to a normal form. They
are then equal exactly, or up to the differences named here: those that the comparison itself
needed, by result; those that a target declares of its kernel; and those of the forms and other
spellings that the rule matches. [The language](language.md#proofs) says what each difference means.

This page is generated: `fusiondsl prove fusiondsl: --markdown docs/proofs.md`.

| rule | proved | by result | the target | matched forms |
|---|---|---|---|---|
"""


def page(program: Program) -> str:
    """Markdown with a line for each rule, by name."""
    prover = Prover(program)
    rules = sorted(program.rules, key=lambda rule: rule.name)
    return _HEAD + "".join(_line(rule, prover.rule(rule)) for rule in rules)


def _line(rule: Rule, verdict: Verdict) -> str:
    outputs = "; ".join(
        f"`{output.name}` {', '.join(output.differences) or 'exact'}" for output in verdict.outputs
    )
    target = listed(d.kind for d in verdict.declared if d.span is not None)
    cells = (f"`{rule.name}`", str(verdict), outputs, ", ".join(target), _forms(verdict))
    return f"| {' | '.join(cells)} |\n"


def _forms(verdict: Verdict) -> str:
    return ", ".join(_of_forms(verdict))


def _of_forms(verdict: Verdict) -> Iterator[str]:
    yield from listed(d.kind for d in verdict.declared if d.span is None)
