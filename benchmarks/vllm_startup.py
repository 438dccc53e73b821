"""What rules add to the start of a vLLM engine, beside vLLM's own passes for the same sites.

`python -m benchmarks.vllm_startup`, with the Python of an environment that has vLLM, prints a
Markdown table; with `--check` it fails above the target. CPU time; each start is a process of its
own, with all caches of what is compiled off, and the kinds of starts are taken in turn: medians of
the repetitions. Text is checked and proved, or found as an earlier process has left it. The model
is a small Llama of four layers with static fp8, which vLLM cuts into five graphs. Every start is
also told on standard error, as it ends.
"""

from __future__ import annotations

import argparse
import compileall
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fusiondsl
from benchmarks.startup_engine import APPLY, COMPILE, COMPILERS, IMPORT, LOAD, TARGET, UPDATE
from benchmarks.timing import Spread
from fusiondsl import Target, artifact, load, stored
from tests.vllm.cpu_engine.start import PYTHON, ROOT, Engines
from tests.vllm.engines import CUSTOM, GPU_OPS, PIECES, SHIPPED

PACKAGE = Path(fusiondsl.__file__).parent
MODEL = "llama_fp8_static"
RULES = SHIPPED["FUSIONDSL_RULES"]
MOST = 0.02
"""Of vLLM's compile time, for rules that were checked before."""

STEPS = {
    IMPORT: "import",
    LOAD: "load (vLLM: build)",
    TARGET: "compile for the target, end points, cache keys, report",
    APPLY: "match and rewrite",
}
NOBODY, ARTIFACT, OWN = "neither", "rules, artifact", "vLLM's two passes"
AGAIN, TEXT = "rules, text that was checked before", "rules, text"
CHECKED = (ARTIFACT, AGAIN)
KINDS = (NOBODY, ARTIFACT, AGAIN, TEXT, OWN)


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
    """All there are; what they need is made in the directory."""
    packed = directory / f"rules{artifact.SUFFIX}"
    packed.write_bytes(artifact.dumps(load(RULES).program, Target()))
    return {
        NOBODY: Kind("none", {}),
        ARTIFACT: Kind("rules", {**SHIPPED, "FUSIONDSL_RULES": str(packed)}),
        AGAIN: Kind("rules", SHIPPED),
        TEXT: Kind("rules", {**SHIPPED, stored.SWITCH: "0"}),
        OWN: Kind("fusions", {"CPU_ENGINE_VLLM_PASSES": "1"}),
    }


def measure(repetitions: int, only: Sequence[str] = ()) -> dict[str, Starts]:
    """`only` are the kinds to start, by default all."""
    with tempfile.TemporaryDirectory() as name:
        engines = Engines(Path(name))
        asked = {kind: how for kind, how in kinds(Path(name)).items() if not only or kind in only}
        found = {kind: Starts() for kind in asked}
        # As installing does; a process that may write no bytecode would compile at every start.
        compileall.compile_dir(PACKAGE, quiet=2)
        if AGAIN in asked:
            _check_once(engines)
        for _ in range(repetitions):
            for kind, how in asked.items():
                _start(engines, how, found[kind])
                print(kind, json.dumps(found[kind].spent[-1]), file=sys.stderr, flush=True)
    return found


def _check_once(engines: Engines) -> None:
    """What an earlier start leaves."""
    code = f"from fusiondsl.kept import load_once; load_once({RULES!r})"
    subprocess.run([str(PYTHON), "-c", code], env=engines.variables({}), cwd=ROOT, check=True)


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
    columns = [kind for kind in found if kind != NOBODY]
    print(f"| CPU time, ms | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for step, text in STEPS.items():
        print(f"| {text} | {' | '.join(found[kind].ms(step).format() for kind in columns)} |")
    totals = {kind: found[kind].ms(*STEPS) for kind in columns}
    print(f"| together | {' | '.join(total.format() for total in totals.values())} |")
    if NOBODY in found:
        _print_shares(found[NOBODY], totals)
    sites = [f"{found[kind].sites} in {found[kind].graphs}" for kind in columns]
    print(f"| sites, in graphs | {' | '.join(sites)} |")
    updates = [found[kind].ms(UPDATE).format() for kind in columns]
    print(f"| FakeTensorUpdater, apart | {' | '.join(updates)} |")
    if NOBODY in found:
        print(f"\nFakeTensorUpdater without either: {found[NOBODY].ms(UPDATE).format()} ms.")


def _print_shares(nobody: Starts, totals: Mapping[str, Spread]) -> None:
    own = nobody.ms(COMPILE).median
    whole = own + nobody.ms(COMPILERS).median
    for text, base in (("compiling", whole), ("compiling without g++", own)):
        shares = [f"{total.median / base:.2%}" for total in totals.values()]
        print(f"| of {text}, {base / 1e3:.1f} s | {' | '.join(shares)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_startup", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail above the target")
    parser.add_argument(
        "--only", action="append", choices=KINDS, default=[], help="kinds of starts, else all"
    )
    options = parser.parse_args(argv)
    if options.check and options.only and not {NOBODY, *CHECKED} <= set(options.only):
        parser.error(f"--check compares {', '.join((NOBODY, *CHECKED))}")
    found = measure(options.repetitions, options.only)
    print_rows(found)
    return int(options.check and not is_within(found))


def is_within(found: Mapping[str, Starts]) -> bool:
    """Rules that were checked before take no more of a start than they may."""
    whole = found[NOBODY].ms(COMPILE, COMPILERS).median
    return all(found[kind].ms(*STEPS).median < MOST * whole for kind in CHECKED)


if __name__ == "__main__":
    sys.exit(main())
