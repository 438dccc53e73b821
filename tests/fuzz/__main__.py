"""`python -m tests.fuzz`: inputs that follow from a seed, for so long or so many."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

os.environ.setdefault("FUSIONDSL_REFERENCE_OPS", "1")

from tests.fuzz.case import Case, Target, stored
from tests.fuzz.guard import run
from tests.fuzz.shrink import kind_of, smallest
from tests.fuzz.targets import TARGETS


@dataclass
class Tally:
    cases: int = 0
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, -1)
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[int]] = field(default_factory=dict)
    stopped: bool = False


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Stopped by a signal, it says what was done until then."""
    args = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    targets = [TARGETS[name] for name in args.target or TARGETS]
    if args.replay:
        return _replay(targets, args.replay)
    total = sum(target.share for target in targets)
    failed = False
    for target in targets:
        seconds = args.seconds * target.share / total
        tally = fuzz(target, args.seed, args.first, args.count, seconds, args.found)
        _print(target, tally, args.seed)
        failed = failed or bool(tally.findings)
        if tally.stopped:
            break
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=1200.0, help="CPU time of all targets together"
    )
    parser.add_argument("--count", type=int, help="inputs a target; else as many as time allows")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--found", type=Path, help="folder for inputs that show a fault, shrunk")
    parser.add_argument("--replay", type=Path, nargs="+", help="check these files instead")
    return parser.parse_args()


def fuzz(
    target: Target,
    seed: int,
    first: int = 0,
    count: int | None = None,
    seconds: float = float("inf"),
    found: Path | None = None,
) -> Tally:
    """Inputs `first`, `first + 1`, ... of a seed; one that shows a fault is reported and kept."""
    tally = Tally()
    _warm_up(target)
    start = time.process_time()
    try:
        for number in range(first, sys.maxsize if count is None else first + count):
            tally.seconds = time.process_time() - start
            if tally.seconds > seconds:
                break
            _one(target, seed, number, tally, found)
    except KeyboardInterrupt:
        tally.stopped = True
    tally.seconds = time.process_time() - start
    return tally


def _one(target: Target, seed: int, number: int, tally: Tally, found: Path | None) -> None:
    case = target.case(seed, number)
    try:
        done = run(target, case)
    except (Exception, RecursionError) as error:
        _keep(target, case, error, number, tally, found)
    else:
        tally.outcomes[done.outcome] += 1
        tally.slowest = max(tally.slowest, (done.seconds, number))
    tally.cases += 1


def _warm_up(target: Target) -> None:
    """What is loaded on first use is not measured."""
    for path in target.corpus()[:2]:
        target.check(stored(path))
    for number in range(3):
        try:
            target.check(target.case(-1, number))
        except Exception:  # shows again, where it is looked for
            continue


def _keep(
    target: Target, case: Case, error: BaseException, number: int, tally: Tally, found: Path | None
) -> None:
    kind = kind_of(error)
    known = kind in tally.findings
    tally.findings.setdefault(kind, []).append(number)
    if known:
        return
    print(f"{target.name} {number}: {kind}", file=sys.stderr)
    traceback.print_exception(error, limit=-8, file=sys.stderr)
    if found is not None:
        found.mkdir(parents=True, exist_ok=True)
        small = smallest(target, case)
        name = f"{target.name}-{sha256(kind.encode()).hexdigest()[:8]}{small.suffix}"
        (found / name).write_bytes(small.data)
        print(f"kept as {found / name}", file=sys.stderr)


def _print(target: Target, tally: Tally, seed: int) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(tally.outcomes.items()))
    seconds, number = tally.slowest
    print(
        f"{target.name}: seed {seed}, {tally.cases} inputs in {tally.seconds:.1f} s of CPU time; "
        f"{outcomes}; slowest {seconds:.2f} s (number {number})",
        flush=True,
    )
    for kind, numbers in tally.findings.items():
        print(f"  {len(numbers)} x {kind}: numbers {numbers[:8]}", flush=True)


def _replay(targets: list[Target], paths: list[Path]) -> int:
    for target in targets:
        _warm_up(target)
        for path in paths:
            done = run(target, stored(path))
            print(f"{path}: {target.name}: {done.outcome}, {done.seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
