"""What the shipped rules cost to load from an artifact, in time and in memory above torch.

`python -m benchmarks.load` prints a Markdown table. CPU time of one process with one torch thread,
the bytes in memory and everything imported; medians of repetitions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import fusiondsl
from benchmarks.timing import Spread, cpu_ms
from fusiondsl import artifact
from fusiondsl.engine import CompiledRules

TARGET = fusiondsl.Target(arch="gfx950", tp_size=8, tp_group="tp:0", facts={"env.aiter": True})
PACKS = ("fusiondsl:rocm_aiter/allreduce_rms_norm.fuse", "fusiondsl:")

_MEMORY = """
import sys
import torch, torch._inductor.custom_graph_pass
from pathlib import Path
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = resident()
from benchmarks.load import ready
ready(Path(sys.argv[1]).read_bytes())
print(resident() - before)
"""


@dataclass(frozen=True)
class Row:
    name: str
    rules: int
    size: int
    """Of the artifact, in bytes."""
    opened: Spread
    """Header, target and checksum."""
    program: Spread
    """And the program, built and checked."""
    ready: Spread
    """And compiled: a graph can be rewritten."""
    complete: Spread
    """And what else a first graph may need: the match programs of forms of several operations."""
    memory: int
    """Above torch, in bytes."""


def ready(data: bytes) -> CompiledRules:
    loaded = artifact.loads(data)
    rules = CompiledRules(loaded.program, loaded.target)
    _ = rules.plan
    return rules


def complete(data: bytes) -> CompiledRules:
    rules = ready(data)
    for key in rules.compiled.forms.composed:
        rules.compiled.forms.tries.get(key)
    return rules


def measure(name: str, repetitions: int) -> Row:
    program = fusiondsl.load(name).program
    data = artifact.dumps(program, TARGET)
    complete(data)  # registers the ops, once a process

    def times(action: Callable[[bytes], object]) -> Spread:
        return Spread.of([cpu_ms(lambda: action(data)) for _ in range(repetitions)])

    return Row(
        name,
        len(program.rules),
        len(data),
        times(artifact.loads),
        times(lambda data: artifact.loads(data).program),
        times(ready),
        times(complete),
        memory(data),
    )


def memory(data: bytes) -> int:
    """Of a process of its own: the memory it needs more than for torch alone."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"rules{artifact.SUFFIX}"
        path.write_bytes(data)
        root = str(Path(__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", _MEMORY, str(path)],
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
    return int(done.stdout)


def print_rows(rows: Sequence[Row]) -> None:
    print(
        "| artifact | rules | bytes | opened, ms | program, ms | ready, ms | complete, ms |"
        " above torch, MB |\n|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        spreads = (row.opened, row.program, row.ready, row.complete)
        print(
            f"| `{row.name}` | {row.rules} | {row.size:,} |"
            f" {' | '.join(spread.format() for spread in spreads)} | {row.memory / 1e6:.1f} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args(argv)
    print_rows([measure(name, options.repetitions) for name in PACKS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
