"""Prints the demo's outcome and fails if it is not what it should be."""

from __future__ import annotations

import sys

from fusiondsl.demo.checks import problems, quantised_problems
from fusiondsl.demo.config import FLOAT32, QUANTISED
from fusiondsl.demo.printing import lines
from fusiondsl.demo.run import TARGET, families, run, shipped_rules


def main() -> int:
    rules = shipped_rules()
    known = families(rules)
    print(f"{len(known)} rules of {len(set(known.values()))} families, compiled for", end=" ")
    print(f"{TARGET.arch} and {TARGET.tp_size} ranks. References stand in for the GPU kernels.")
    failures: list[str] = []
    for config in (QUANTISED, FLOAT32):
        outcome = run(config, rules)
        print("", *lines(outcome, known), sep="\n", flush=True)
        failures += quantised_problems(outcome, known) if config is QUANTISED else problems(outcome)
    for failure in failures:
        print(f"FAILED: {failure}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
