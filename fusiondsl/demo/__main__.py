"""Prints the demo's outcome and fails if it is not what it should be."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fusiondsl.demo.model import ModelConfig
from fusiondsl.demo.run import TARGET, Measured, Outcome, run

MIN_FAMILIES = 3
MAX_MEAN_ERROR = 0.01
"""Of the dequantised output, relative to its largest magnitude."""
MAX_CODE_FLIPS = 0.1
"""Share of the output's fp8 codes."""


def main() -> int:
    outcome = run(ModelConfig())
    for line in _lines(outcome):
        print(line)
    problems = list(_problems(outcome))
    for problem in problems:
        print(f"FAILED: {problem}")
    return int(bool(problems))


def _lines(outcome: Outcome) -> Iterator[str]:
    families = outcome.families
    yield f"{len(families)} rules of {len(set(families.values()))} families, compiled for"
    yield f"{TARGET.arch} and {TARGET.tp_size} ranks. References stand in for the GPU kernels."
    for report in outcome.reports:
        yield ""
        yield f"Graph: {report.nodes_before} nodes before, {report.nodes_after} after."
        yield ""
        fired = [(str(n), rule, families[rule]) for rule, n in report.counts.items()]
        yield from _table(("fired", "rule", "family"), fired)
        yield ""
        refused = [(r.rule, r.node, f"{r.kind.value}: {r.message}") for r in report.close()]
        yield from _table(("refused", "at", "because"), refused)
    yield ""
    compared = (row for measured in outcome.measured for row in _comparison(measured))
    yield from _table(("tokens", "output", "against eager"), compared)


def _comparison(measured: Measured) -> Iterator[tuple[str, str, str]]:
    tokens, output = str(measured.tokens), measured.quantised
    yield tokens, "fp8 codes", f"{output.code_flips:.2%} differ"
    yield tokens, "f32 scales", f"{output.scale_flips:.2%} differ"
    yield (
        tokens,
        "dequantised",
        f"error {output.mean_error:.1e} on average, {output.max_error:.1e} at most",
    )
    yield (
        tokens,
        "bf16 norm",
        f"error {measured.norm.mean_error:.1e} on average, {measured.norm.max_ulp} ulp at most",
    )


def _problems(outcome: Outcome) -> Iterator[str]:
    fired = Counter(outcome.families[rule] for r in outcome.reports for rule in r.counts)
    if len(fired) < MIN_FAMILIES:
        yield f"rules of {len(fired)} families fired, expected at least {MIN_FAMILIES}"
    if not any(report.close() for report in outcome.reports):
        yield "no site was refused, expected at least one"
    if len(outcome.reports) != 1:
        yield f"{len(outcome.reports)} graphs were compiled, expected one for all token counts"
    for measured in outcome.measured:
        if measured.quantised.mean_error > MAX_MEAN_ERROR:
            yield f"at {measured.tokens} tokens the output is too far from eager's"
        if measured.quantised.code_flips > MAX_CODE_FLIPS:
            yield f"at {measured.tokens} tokens too many codes differ from eager's"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]])


if __name__ == "__main__":
    sys.exit(main())
