"""A small rule pack and a graph in an empty working directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusiondsl.cli.main import main

PACK = """\
op cli_demo.scale_add(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H]) {
  doc "Twice `x`, plus `y`."
  means { z = x * 2.0 + y }
  available { arch: env.arch in ("gfx942", "gfx950") }
  impl "cli_demo.kernels:scale_add"(x, y) -> z
}

rule scale_add(x: D[tokens.., H], y: D[tokens.., H]) {
  doc "One kernel for a scaled sum."
  match { z = x * 2.0 + y }
  replace { z = cli_demo.scale_add(x, y) }
  where {
    dtypes: D in (bf16, f16)
    limit: tokens * H * itemsize(D) <= 64 KiB
  }
  example { tokens = 7, H = 64, D = bf16, env.arch = "gfx950" } fires
  example { tokens = 4096, H = 64, D = bf16, env.arch = "gfx950" } refused because limit
}
"""

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x_1: "bf16[7, 64]cpu", y_1: "bf16[7, 64]cpu", w_1: "f32[7, 64]cpu"):
        mul: "bf16[7, 64]cpu" = torch.ops.aten.mul.Tensor(x_1, 2.0);  x_1 = None
        add: "bf16[7, 64]cpu" = torch.ops.aten.add.Tensor(mul, y_1);  mul = y_1 = None
        cast: "f32[7, 64]cpu" = torch.ops.aten._to_copy.default(add, dtype = torch.float32)
        mul_1: "f32[7, 64]cpu" = torch.ops.aten.mul.Tensor(cast, 2.0);  cast = None
        add_1: "f32[7, 64]cpu" = torch.ops.aten.add.Tensor(mul_1, w_1);  mul_1 = w_1 = None
        return (add, add_1)
""".replace("[7, 64]", "[7, 64][64, 1]")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line, in this process."""

    def call(*words: str) -> Ran:
        code = main(words)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `pack.fuse` and `graph.txt`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FUSIONDSL_TRACEBACK", raising=False)
    (tmp_path / "pack.fuse").write_text(PACK)
    (tmp_path / "graph.txt").write_text(GRAPH)
    return tmp_path
