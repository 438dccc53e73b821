"""The graph pass in `torch.compile`: identity, pickling, chaining, results at several sizes."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._inductor import config

import fusiondsl
from tests.engine.lab import EPS, LAB, L, called, equal, rows, rules, vector

PLAIN = """
rule plain(x: D[t.., H], w: D[H], eps: float, by: int) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale = lab.norm_codes(x, w, eps, by) }
}
"""
ADDED = """
rule added(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm_into(x, r, w, eps); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale, total = lab.add_norm_codes(x, r, w, eps, by) }
}
"""
INTO = """
rule into(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.mx_codes(n) }
  replace { codes, scale = lab.norm_mx(x, w, eps) }
  where { group_free: H % 32 == 0 }
}
"""
W = vector()


def model(x: Tensor, w: Tensor) -> Any:
    """Custom ops only: nothing that a back end would round differently."""
    codes, scale = L.group_codes(L.norm(x, w, EPS), 128)
    y, s = L.other(x), L.act(x)
    L.add_norm_into(y, s, w, EPS)
    return codes, scale, L.group_codes(y, 128), s, L.mx_codes(L.norm(s, w, EPS))


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_compiled_equals_eager_at_every_size(version: int) -> None:
    fusion = rules(PLAIN + ADDED + INTO).graph_pass()
    seen: list[fx.Graph] = []

    def spy(graph: fx.Graph) -> None:
        fusion(graph)
        seen.append(copy.deepcopy(graph))

    settings = {
        "post_grad_custom_post_pass": spy,
        "fx_graph_cache": False,
        "enable_auto_functionalized_v2": version == 2,
    }
    torch._dynamo.reset()
    with config.patch(settings), torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        for tokens in (7, 33, 128):
            x = rows(tokens)
            torch._dynamo.mark_dynamic(x, 0)
            same = equal(compiled(x, W), model(x, W))
            assert same, tokens
    assert len(seen) == 1, "a size was compiled again"
    assert fusion.reports[0].counts == {"added": 1, "into": 1, "plain": 1}, fusion.reports[0]
    fused = ["act", "add_norm_codes", "norm_codes", "norm_mx", "other"]
    assert sorted(called(seen[0])) == fused


def test_an_output_has_the_strides_its_users_were_compiled_for() -> None:
    """A custom op gets its arguments with the strides of eager mode."""
    strides: list[tuple[int, ...]] = []

    def spy(x: Tensor) -> Tensor:
        strides.append(tuple(x.stride()))
        return x.contiguous().clone()

    library = torch.library.Library("lab_spy", "FRAGMENT")
    library.define("look(Tensor x) -> Tensor", tags=(torch.Tag.needs_exact_strides,))
    library.impl("look", spy, "CompositeExplicitAutograd")
    torch.library.register_fake("lab_spy::look", lambda x: x.new_empty(x.shape), lib=library)
    text = """
    extern op lab_spy.look(x: D[t.., H] strides (_, _)) -> D[t.., H]
    rule look(x: D[t.., H]) {
      match { y = lab.act(x) }
      replace { y = lab_spy.look(x) }
    }
    """

    def function(x: Tensor) -> Tensor:
        return torch.ops.lab.act(torch.ops.lab.other(x).t())

    torch._dynamo.reset()
    fusion = rules(text).graph_pass()
    settings = {"post_grad_custom_post_pass": fusion, "fx_graph_cache": False}
    with config.patch(settings), torch.no_grad():
        torch.compile(function, fullgraph=True)(rows(6, 8))
    assert fusion.reports[0].counts == {"look": 1}
    assert strides == [(1, 8)]


# --- identity ------------------------------------------------------------------------------------


def test_the_pass_can_be_pickled_and_copied() -> None:
    fusion = rules(PLAIN + ADDED, arch="gfx950").graph_pass(tokens=range(1, 65))
    fusion.uuid()
    for other in (pickle.loads(pickle.dumps(fusion)), copy.deepcopy(fusion)):
        assert other.uuid() == fusion.uuid()
        assert other.tokens == fusion.tokens
        assert not other.reports


def test_the_identity_changes_with_what_matters() -> None:
    passes = [
        rules(PLAIN).graph_pass(),
        rules(ADDED).graph_pass(),
        rules(PLAIN + ADDED).graph_pass(),
        rules(PLAIN, arch="gfx942").graph_pass(),
        rules(PLAIN, arch="gfx950").graph_pass(),
        rules(PLAIN, arch="gfx950", tp_size=8).graph_pass(),
        rules(PLAIN).graph_pass(tokens=range(1, 129)),
        rules(PLAIN).graph_pass(tokens=range(1, 257)),
        rules(PLAIN.replace("}\n}", "}\n  where { H % 128 == 0 }\n}")).graph_pass(),
        rules(PLAIN.replace("}\n}", "}\n  where { H % 256 == 0 }\n}")).graph_pass(),
    ]
    assert len({fusion.uuid() for fusion in passes}) == len(passes)
    assert all(isinstance(fusion.uuid(), bytes) for fusion in passes)


def test_the_key_tells_whether_an_op_of_others_is_there() -> None:
    """Without it the rule is left out, and a graph made with it cannot run."""
    text = """
    extern op lab_late.act(x: D[t..]) -> D[t..]
    rule late(x: D[t..]) {
      match { y = lab.act(x) }
      replace { y = lab_late.act(x) }
    }
    """
    fusion = rules(text).graph_pass()
    before, identity = fusion.uuid(), fusion.identity()
    library = torch.library.Library("lab_late", "FRAGMENT")
    library.define("act(Tensor x) -> Tensor")
    assert fusion.uuid() != before
    assert fusion.identity() == identity


def test_the_same_rules_for_another_target() -> None:
    made = rules(PLAIN).graph_pass()
    before = made.identity()
    other = fusiondsl.Target(arch="gfx942", tp_size=2, tp_group="tp:0")
    moved = made.with_target(other)
    assert (
        moved.identity()
        == fusiondsl.CompiledRules(made.rules.program, other).graph_pass().identity()
    )
    assert moved.rules.target == other
    assert made.identity() == before != moved.identity()


def test_rewriting_imports_nothing_that_checks_or_proves_rules() -> None:
    """Nor what reads printed graphs: an engine with an artifact pays for none of it."""
    code = (
        "import sys, fusiondsl.engine.graph_pass;"
        " others = ('analysis', 'proof', 'graphs.reader');"
        " print([m for m in others if f'fusiondsl.{m}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[]\n"


SCRIPT = """
import sys
import fusiondsl
print(fusiondsl.load(*sys.argv[1:]).compile(fusiondsl.Target(arch="gfx950")).graph_pass().uuid().hex())
"""


def test_the_identity_does_not_change_with_file_order_or_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "lab.fuse").write_text(LAB)
    for name, text in (("one", PLAIN), ("two", ADDED), ("three", INTO)):
        (tmp_path / f"{name}.fuse").write_text('import "lab.fuse"\n' + text)
    root = str(Path(fusiondsl.__file__).parents[1])
    running = []
    for seed, order in (("0", ("one", "two", "three")), ("7", ("three", "one", "two"))):
        paths = [str(tmp_path / f"{name}.fuse") for name in order]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        command = [sys.executable, "-c", SCRIPT, *paths]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    found = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(found) == 1
