"""Exported programs that are compiled to a package, with rules; and who can load it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._inductor import config

import fusiondsl
from fusiondsl.integrations import torch_compile

RULES = """\
op export.twice(x: D[t..]) -> (y: D[t..]) {
  means { y = x + x }
  impl "tests.integrations.kernels:twice"(x) -> y
}
rule twice(x: D[t..]) {
  match   { y = x + x }
  replace { y = export.twice(x) }
}
"""
LOADER = """\
import sys
import torch
from fusiondsl.integrations import torch_compile
if len(sys.argv) > 2:
    torch_compile.make_pass(sys.argv[2])
print(torch._inductor.aoti_load_package(sys.argv[1])(torch.ones(3)).tolist())
"""
pytestmark = pytest.mark.slow


class Sum(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


def loaded(*words: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(fusiondsl.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", LOADER, *words],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_package_calls_the_ops_of_rules(tmp_path: Path) -> None:
    rules, package = tmp_path / "twice.fuse", str(tmp_path / "sum.pt2")
    rules.write_text(RULES)
    program = torch.export.export(Sum(), (torch.ones(3),))
    with (
        config.patch(force_disable_caches=True),
        torch_compile.installed(rules, require="twice") as fusion,
    ):
        torch._inductor.aoti_compile_and_package(program, package_path=package)
    assert [report.counts for report in fusion.reports] == [{"twice": 1}]
    assert loaded(package, str(rules)).stdout == "[2.0, 2.0, 2.0]\n"
    without = loaded(package)
    assert without.returncode != 0
    assert "Could not find schema for fusiondsl::export_twice" in without.stderr
