"""`fusiondsl ops --check-aiter`: what the ops call in AITER, held against its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusiondsl import ir
from fusiondsl.aiter.drift import Finding, Status, check_aiter, shortened
from fusiondsl.aiter.functions import Function, Parameter
from fusiondsl.aiter.tree import NoTree, Tree, installed_tree, tree_at
from fusiondsl.cli.exits import Exit
from fusiondsl.cli.table import table
from fusiondsl.diagnostics.diagnostic import Diagnostic, Severity
from fusiondsl.diagnostics.escape import escaped

if TYPE_CHECKING:
    from fusiondsl.cli.console import Console

_MESSAGES = {
    Status.DRIFTED: ("FD514", "AITER's `{function}` does not take what `{op}` passes"),
    Status.MISSING: ("FD515", "AITER has no `{function}`, which `{op}` calls"),
    Status.UNREADABLE: ("FD516", "what AITER's `{function}` takes, which `{op}` calls, is unknown"),
}

_SIGNATURE = 500
"""Characters that are shown of one; AITER's longest has fewer."""


def show_drift(console: Console, ops: Iterable[ir.OpDecl], path: str) -> int:
    try:
        tree = tree_at(Path(path)) if path else installed_tree()
    except NoTree as error:
        console.complain(str(error))
        return Exit.ENVIRONMENT if error.missing else Exit.USAGE
    findings = list(check_aiter(ops, tree))
    console.print(escaped(f"AITER {tree.version or 'of unknown version'} at {tree.root}"))
    console.print()
    if findings:
        rows = [(f.op.name, f.impl.location, f.status.value) for f in findings]
        console.print(table(("op", "function", "status"), rows))
        console.print()
    console.diagnostics(map(_diagnostic, (f for f in findings if f.status is not Status.FITS)))
    console.print(_summary(findings))
    console.add(aiter=_data(tree, findings))
    fits = all(finding.status is Status.FITS for finding in findings)
    return Exit.OK if fits else Exit.FINDINGS


def _summary(findings: list[Finding]) -> str:
    if not findings:
        return "no op of these calls AITER"
    counts = Counter(finding.status for finding in findings)
    return ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])


def _diagnostic(finding: Finding) -> Diagnostic:
    code, message = _MESSAGES[finding.status]
    function = finding.impl.location.partition(":")[2]
    notes = list(finding.problems)
    if finding.function is not None:
        notes.append(f"{finding.function.place}: {_signature(finding.function)}")
    return Diagnostic(
        code,
        Severity.ERROR,
        message.format(function=function, op=finding.op.name),
        finding.op.span,
        notes=tuple(notes),
    )


def _signature(function: Function) -> str:
    parts: list[str] = []
    positional = [p for p in function.parameters if p.by_position]
    for parameter in positional:
        if parts and parameter.by_name and not positional[len(parts) - 1].by_name:
            parts.append("/")
        parts.append(_parameter(parameter))
    named = [p for p in function.parameters if not p.by_position]
    if function.any_positional or named:
        parts.append("*args" if function.any_positional else "*")
    parts += map(_parameter, named)
    if function.any_keyword:
        parts.append("**kwargs")
    return shortened(f"{function.name}({', '.join(parts)})", _SIGNATURE)


def _parameter(parameter: Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}"


def _data(tree: Tree, findings: list[Finding]) -> dict[str, Any]:
    return {
        "version": tree.version,
        "root": str(tree.root),
        "calls": [
            {
                "op": finding.op.name,
                "declared": None if finding.op.span is None else str(finding.op.span),
                "function": finding.impl.location,
                "status": finding.status.value,
                "problems": list(finding.problems),
                "source": None
                if finding.function is None
                else {"file": str(finding.function.file), "line": finding.function.line},
            }
            for finding in findings
        ],
    }
