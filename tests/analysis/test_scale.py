"""Ten thousand rules in one file: processor time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COUNT = 10_000
SECONDS = 120
GIGABYTES = 3

RULE = """
rule r{i}(x: D[tokens.., H], weight: D[H], eps: float) {{
  match {{
    normed = rms_norm(x, weight, eps)
    q, scale = fp8_group_quant(normed, group_size = {size})
  }}
  replace {{ q, scale = aiter.rms_norm_group_quant(x, weight, eps, group_size = {size}) }}
  where {{ dtypes: D in (bf16, f16); aligned: H % {size} == 0 }}
  allow {{ round; reduce_order; recip; amax_floor; saturate }}
  example {{ tokens = 7, H = 4096, D = bf16, env.arch = "gfx950" }} fires
}}
"""

IMPORTS = """
import "fusiondsl:ops/norms.fuse"
import "fusiondsl:ops/quant_fp8.fuse"
import "fusiondsl:ops/aiter_norm_quant.fuse"
"""

PROGRAM = """
import resource, sys
import fusiondsl
print(len(fusiondsl.load(sys.argv[1]).program.rules))
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss / 1e6, used.ru_utime + used.ru_stime)
"""


@pytest.mark.slow
def test_ten_thousand_rules(tmp_path: Path) -> None:
    path = tmp_path / "many.fuse"
    rules = (RULE.format(i=i, size=i + 1) for i in range(COUNT))
    path.write_text(IMPORTS + "".join(rules))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    rules_found, gigabytes, seconds = done.stdout.split()
    assert int(rules_found) == COUNT
    assert float(gigabytes) < GIGABYTES
    assert float(seconds) < SECONDS
