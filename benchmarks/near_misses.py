"""How often `why` names the true cause first, on sources of shipped rules broken in known ways.

`python -m benchmarks.near_misses` prints a Markdown table by kind of break; with `--check` it fails
below 95 %, or on fewer than 200 cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.breaks import Broken, Expected, broken_sources
from fusiondsl.engine.why import Cause

MIN_CASES = 200
MIN_SHARE = 0.95


@dataclass(frozen=True)
class Scored:
    case: Broken
    first: Cause | None

    @property
    def right(self) -> bool:
        wanted = self.case.expected
        return _says(self.first, wanted) or _says(self.first, wanted.instead)


def _says(told: Cause | None, wanted: Expected | None) -> bool:
    if told is None or wanted is None or told.code != wanted.code or told.field is None:
        return False
    # What the target lacks is about no node.
    node = told.node in wanted.nodes or told.code == "environment"
    return node and not wanted.fields.isdisjoint(told.field.split(", "))


def score(case: Broken) -> Scored:
    """The first cause of the best site."""
    (answer,) = case.rules.why(case.graph, rules=[case.rule]).rules
    causes = answer.near[0].causes if answer.near else answer.causes
    return Scored(case, causes[0] if causes else None)


def table(scored: Iterable[Scored]) -> list[str]:
    kinds: dict[str, list[bool]] = {}
    for item in scored:
        kinds.setdefault(item.case.kind, []).append(item.right)
    kinds["all"] = [right for rights in kinds.values() for right in rights]
    rows = ["| break | cases | true cause first |", "|---|---|---|"]
    for kind, rights in kinds.items():
        share = 100 * sum(rights) / len(rights)
        rows.append(f"| {kind} | {len(rights)} | {sum(rights)} ({share:.1f} %) |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail below the bounds")
    parser.add_argument("--rule", action="append", help="only this rule; may be given again")
    args = parser.parse_args()
    chosen = None if args.rule is None else frozenset(args.rule)
    scored = [score(case) for case in broken_sources(chosen)]
    print("\n".join(table(scored)))
    for item in scored:
        if not item.right:
            told = item.first
            said = "nothing" if told is None else f"{told.code} {told.node} {told.field}"
            print(f"{item.case.name}: expected {item.case.expected.code}, told {said}")
    share = sum(item.right for item in scored) / max(len(scored), 1)
    return int(args.check and (len(scored) < MIN_CASES or share < MIN_SHARE))


if __name__ == "__main__":
    sys.exit(main())
