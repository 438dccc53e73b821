"""What rules add to the start of a vLLM engine, beside vLLM's own passes for the same sites.

`python -m benchmarks.vllm_startup`, with the Python of an environment that has vLLM, prints a
Markdown table; with `--check` it fails above the target. CPU time; each start is a process of its
own, with all caches off, and the kinds of starts are taken in turn: medians of the repetitions. The
model is a small Llama of four layers with static fp8, which vLLM cuts into five graphs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("FUSIONDSL_VLLM_PYTHON", sys.executable)

from benchmarks.startup_engine import APPLY, COMPILE, COMPILERS, IMPORT, LOAD, TARGET, UPDATE
from benchmarks.timing import Spread
from fusiondsl import Target, artifact, load
from tests.vllm.cpu_engine.start import Engines
from tests.vllm.engines import CUSTOM, GPU_OPS, PIECES, SHIPPED

MODEL = "llama_fp8_static"
RULES = SHIPPED["FUSIONDSL_RULES"]
MOST = 0.02
"""Of vLLM's compile time, for rules from an artifact."""

STEPS = {
    IMPORT: "import",
    LOAD: "load (vLLM: build)",
    TARGET: "compile for the target, end points, cache keys, report",
    APPLY: "match and rewrite",
}
NOBODY, ARTIFACT, TEXT, OWN = "neither", "rules, artifact", "rules, text", "vLLM's two passes"


@dataclass(frozen=True)
class Kind:
    """A kind of start."""

    watch: str
    variables: Mapping[str, str]


@dataclass
class Starts:
    """What came of the starts of one kind."""

    sites: int = 0
    graphs: int = 0
    spent: list[dict[str, float]] = field(default_factory=list)

    def ms(self, *steps: str) -> Spread:
        return Spread.of(sum(row.get(step, 0.0) for step in steps) * 1e3 for row in self.spent)


def kinds(directory: Path) -> dict[str, Kind]:
    packed = directory / f"rules{artifact.SUFFIX}"
    packed.write_bytes(artifact.dumps(load(RULES).program, Target()))
    return {
        NOBODY: Kind("none", {}),
        ARTIFACT: Kind("rules", {**SHIPPED, "FUSIONDSL_RULES": str(packed)}),
        TEXT: Kind("rules", SHIPPED),
        OWN: Kind("fusions", {"CPU_ENGINE_VLLM_PASSES": "1"}),
    }


def measure(repetitions: int) -> dict[str, Starts]:
    with tempfile.TemporaryDirectory() as name:
        engines = Engines(Path(name))
        asked = kinds(Path(name))
        found = {kind: Starts() for kind in asked}
        for _ in range(repetitions):
            for kind, how in asked.items():
                _start(engines, how, found[kind])
    return found


def _start(engines: Engines, how: Kind, starts: Starts) -> None:
    ran = engines.start(
        MODEL,
        variables={**GPU_OPS, **how.variables},
        compilation={**CUSTOM, **PIECES},
        module="benchmarks.startup_engine",
        watch=how.watch,
    )
    row: dict[str, Any] = ran["spent"]
    starts.spent.append(row)
    starts.sites = sum(ran["matched"].values()) or sum(ran.result.get("counts", {}).values())
    starts.graphs = int(ran["counter"]["num_backend_compilations"])


def print_rows(found: Mapping[str, Starts]) -> None:
    compiling, compilers = found[NOBODY].ms(COMPILE), found[NOBODY].ms(COMPILERS)
    whole = compiling.median + compilers.median
    columns = [kind for kind in found if kind != NOBODY]
    print(f"| CPU time, ms | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for step, text in STEPS.items():
        print(f"| {text} | {' | '.join(found[kind].ms(step).format() for kind in columns)} |")
    totals = {kind: found[kind].ms(*STEPS) for kind in columns}
    print(f"| together | {' | '.join(total.format() for total in totals.values())} |")
    for text, base in (("compiling", whole), ("compiling without g++", compiling.median)):
        shares = [f"{total.median / base:.2%}" for total in totals.values()]
        print(f"| of {text}, {base / 1e3:.1f} s | {' | '.join(shares)} |")
    sites = [f"{found[kind].sites} in {found[kind].graphs}" for kind in columns]
    print(f"| sites, in graphs | {' | '.join(sites)} |")
    updates = [found[kind].ms(UPDATE).format() for kind in columns]
    print(f"| FakeTensorUpdater, apart | {' | '.join(updates)} |")
    print(f"\nFakeTensorUpdater without either: {found[NOBODY].ms(UPDATE).format()} ms.")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_startup", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="fail above the target")
    options = parser.parse_args(argv)
    found = measure(options.repetitions)
    print_rows(found)
    spent = found[ARTIFACT].ms(*STEPS).median
    whole = found[NOBODY].ms(COMPILE, COMPILERS).median
    return int(options.check and spent >= MOST * whole)


if __name__ == "__main__":
    sys.exit(main())
