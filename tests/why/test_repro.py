"""`fusiondsl why --repro`: its script says the same first cause, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fusiondsl
from tests.cli.conftest import Run, run
from tests.why.test_threads import CASES, FILES, parts

__all__ = ["run"]

ROOT = Path(fusiondsl.__file__).parents[1]
BLOCK = """\
rule norm_quant(x: bf16[tokens.., H], w: bf16[H]) {
  match { h = repro_lab.norm(x, w, 1e-6); q = repro_lab.quant(h, 128) }
  replace { q = repro_lab.norm_quant(x, w, 1e-6, 128) }
}
extern op repro_lab.norm(x: bf16[t.., H], w: bf16[H], eps: float) -> bf16[t.., H]
extern op repro_lab.quant(x: bf16[t.., H], group: int) -> f8e4m3fn[t.., H]
extern op repro_lab.norm_quant(x: bf16[t.., H], w: bf16[H], eps: float, group: int)
    -> f8e4m3fn[t.., H]
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(CASES / "pack.fuse", tmp_path)


def printed(script: str, *words: str) -> str:
    """What the script prints; nothing of this process helps it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def model(layers: int) -> str:
    """Blocks that repeat; the last one quantises by halves of the width."""
    lines, last = [], "x"
    for layer in range(layers):
        group = 64 if layer == layers - 1 else 128
        bf16, fp8 = ('"bf16[s0, 512][512, 1]cpu"', '"f8e4m3fn[s0, 512][512, 1]cpu"')
        cast = "torch.ops.aten._to_copy.default"
        lines += [
            f"h{layer}: {bf16} = torch.ops.repro_lab.norm.default({last}, w, 1e-06)",
            f"q{layer}: {fp8} = torch.ops.repro_lab.quant.default(h{layer}, {group})",
            f"m{layer}: {bf16} = {cast}(q{layer}, dtype = torch.bfloat16)",
        ]
        last = f"m{layer}"
    head = 'def forward(self, s0: "Sym(s0)", x: "bf16[s0, 512][512, 1]cpu", w: "bf16[512][1]cpu"):'
    body = "".join(f"        {line}\n" for line in (*lines, f"return ({last},)"))
    return f"class GraphModule(torch.nn.Module):\n    {head}\n{body}"


def saved_nodes(script: str) -> list[tuple[str, str]]:
    """(kind, name) of the nodes in a script."""
    text = Path(script).read_text(encoding="utf-8")
    return re.findall(r'\{"name":"(\w+)","op":"(\w+)"', text)


def test_only_what_the_site_needs(run: Run) -> None:
    Path("block.fuse").write_text(BLOCK)
    Path("graph.txt").write_text(model(5))
    done = run("why", "block.fuse", "--graph", "graph.txt", "--repro", "miss.py")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "wrote miss.py: norm_quant at q4"
    assert saved_nodes("miss.py") == [
        ("w", "placeholder"),
        ("m3", "placeholder"),
        ("h4", "call_function"),
        ("q4", "call_function"),
        ("output", "output"),
    ]
    assert '"shape":["s0",512]' in Path("miss.py").read_text()
    cause = "constant: group of repro_lab.quant is 64, the rule wants 128"
    assert printed("miss.py") == f"norm_quant at q4: {cause}\n"


def test_other_rules_and_the_fixed_rule(run: Run) -> None:
    Path("block.fuse").write_text(BLOCK)
    Path("graph.txt").write_text(model(2))
    run("why", "block.fuse", "--graph", "graph.txt", "--repro", "miss.py")
    Path("fixed.fuse").write_text(BLOCK.replace("128", "64"))
    assert printed("miss.py", "fixed.fuse") == "norm_quant at q1: fires\n"


@pytest.mark.parametrize(
    "case", ["lost_to_larger", "buffer_written", "extra_user", "token_limit", "ranks_unknown"]
)
def test_public_threads(case: str, run: Run) -> None:
    _, command, graph, _ = parts(CASES / f"{case}.txt")
    Path("graph.txt").write_text(graph)
    done = run(*command.split(), "--repro", "miss.py", "--format", "json")
    assert (done.code, done.err) == (0, "")
    data = json.loads(done.out)
    named = data["repro"]
    assert named["file"] == "miss.py"
    (rule,) = [r for r in data["graphs"][0]["rules"] if r["rule"] == named["rule"]]
    (site,) = [s for s in rule["sites"] if s["node"] == named["node"] and not s["fired"]]
    first = site["causes"][0]
    told = f"{named['rule']} at {named['node']}: {first['code']}: {first['message']}\n"
    assert printed("miss.py") == told


def test_an_input_is_not_written_over(run: Run) -> None:
    _, command, graph, _ = parts(FILES[0])
    Path("graph.txt").write_text(graph)
    for name in ("graph.txt", "pack.fuse"):
        before = Path(name).read_text()
        done = run(*command.split(), "--repro", name)
        assert (done.code, done.out) == (2, "")
        assert "is an input; the output would replace it" in done.err
        assert Path(name).read_text() == before


def test_nothing_near(run: Run) -> None:
    Path("block.fuse").write_text(BLOCK)
    Path("graph.txt").write_text(
        'def forward(self, x: "bf16[7, 512][512, 1]cpu"):\n'
        '    y: "bf16[7, 512][512, 1]cpu" = torch.ops.aten.neg.default(x)\n'
        "    return (y,)\n"
    )
    done = run("why", "block.fuse", "--graph", "graph.txt", "--repro", "miss.py")
    assert done.code == 2
    assert done.err == ("fusiondsl: no rule comes close: there is nothing to write to `miss.py`\n")
    assert not Path("miss.py").exists()
