"""The result depends on the text alone: not on the hash seed, nor on files and their order."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import fusiondsl

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "cases" / "check"

PROGRAM = """
import json, sys
from fusiondsl.diagnostics.diagnostic import Diagnostics
from fusiondsl.diagnostics.render import render_all
from fusiondsl.rules import check, in_text_order
for paths in json.loads(sys.argv[1]):
    diagnostics = Diagnostics()
    program = check(paths, diagnostics)
    print(repr(program), render_all(in_text_order(diagnostics)))
assert "torch" not in sys.modules
"""


def printed(seed: str, *groups: tuple[str, ...]) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(groups)]
    done = subprocess.run(command, env=environment, cwd=CASES, capture_output=True, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


def test_hash_seed() -> None:
    several = ("fusiondsl:", "fd401_orders.fuse")
    broken = ("fd220_kinds.fuse", "fd110_unknown_names.fuse", "fd403_chain.fuse")
    assert len({printed(seed, several, broken) for seed in "012"}) == 1


def write(folder: Path, groups: dict[str, list[str]]) -> list[Path]:
    paths = []
    for name, rules in groups.items():
        path = folder / name
        path.write_text("\n".join(['import "ops.fuse"', *rules]))
        paths.append(path)
    return paths


RULES = {
    "small": "rule small(x: D[T, H], w: D[H]) { match { y = norm(x, w) }; "
    "replace { y = k(x, w) } }",
    "large": "rule large(x: D[T, H], w: D[H]) { match { y = abs(norm(x, w)) }; "
    "replace { y = abs(k(x, w)) } }",
    "special": "rule special(a: D[T, H], b: D[H]) { match { c = norm(a, b) }; "
    "replace { c = k(a, b) }; where { H % 8 == 0 } }",
}

OPS = """
op norm(x: D[t.., H], w: D[H]) -> (y: D[t.., H]) { means { y = x * w } }
op k(x: D[t.., H], w: D[H]) -> (y: D[t.., H]) { means { y = w * x } }
"""


def test_order_of_files_and_items(tmp_path: Path) -> None:
    orders = set()
    for number, names in enumerate(permutations(RULES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "ops.fuse").write_text(OPS)
        one = write(folder, {"all.fuse": [RULES[n] for n in names]})
        many = write(folder, {f"{i}.fuse": [RULES[n]] for i, n in enumerate(names)})
        for paths in (one, many, many[::-1]):
            program = fusiondsl.load(*paths).program
            orders.add(tuple(rule.name for rule in program.rules))
    assert orders == {("large", "special", "small")}
