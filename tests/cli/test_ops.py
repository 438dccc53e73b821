"""`ops`: the list, one op in full, and how words are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.aiter.trees import write
from tests.cli.conftest import Run


def test_the_list(run: Run) -> None:
    done = run("ops", "pack.fuse")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "op                  kind    forms  available                               kernels",
        (
            'cli_demo.scale_add  target         arch: env.arch in ("gfx942", "gfx950")  '
            "cli_demo.kernels:scale_add"
        ),
        "",
        "1 ops; `fusiondsl ops NAME` shows one",
    ]


def test_one_op(run: Run) -> None:
    done = run("ops", "pack.fuse", "cli_demo.scale_add")
    assert done.code == 0
    assert done.out == (
        "op cli_demo.scale_add(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H])\n"
        "\n"
        "Twice `x`, plus `y`.\n"
        "\n"
        "kind      target\n"
        "torch op  fusiondsl::cli_demo_scale_add\n"
        "declared  pack.fuse:1:4\n"
        "\n"
        "means\n"
        "  %0 = prim.mul(x, 2.0)\n"
        "  z = prim.add(%0, y)\n"
        "\n"
        "available\n"
        '  arch: env.arch in ("gfx942", "gfx950")\n'
        "\n"
        "impl\n"
        '  "cli_demo.kernels:scale_add"(x, y) -> z\n'
    )


def test_shipped_ops(run: Run) -> None:
    listed = run("ops")
    assert listed.code == 0
    assert "\n_C.silu_and_mul.gpu " in listed.out
    semantic = run("ops", "--kind", "semantic").out
    assert "rms_norm" in semantic
    assert "extern" not in semantic
    one = run("ops", "rms_norm").out
    assert one.startswith("op rms_norm(x: D[t.., H], weight: W[H], eps: float) -> (y: D[t.., H])\n")
    assert "\nform vllm_ir\n  y = vllm_ir.rms_norm(x, weight, eps, none)\n" in one
    assert "\n  differs reduce_order\n" in one
    several = run("ops", "aiter.add_rms_norm_mxfp4_quant", "_C.rms_norm").out
    assert "(codes: u8[T, N / 2], scales: u8[" in several
    assert "extern op _C.rms_norm(out result: " in several


def test_an_unknown_op(run: Run) -> None:
    done = run("ops", "rms_nrom")
    assert (done.code, done.out) == (2, "")
    assert done.err == "fusiondsl: no op is called `rms_nrom`; did you mean `rms_norm`?\n"
    assert run("ops", "pack.fuse", "zebra").err == "fusiondsl: no op is called `zebra`\n"


def test_an_artifact(run: Run) -> None:
    run("compile", "pack.fuse", "-o", "pack.fused")
    assert run("ops", "pack.fused").out == run("ops", "pack.fuse").out


def test_json(run: Run) -> None:
    (summary,) = json.loads(run("ops", "pack.fuse", "--format", "json").out)["ops"]
    assert summary == {
        "name": "cli_demo.scale_add",
        "kind": "target",
        "torch_name": "fusiondsl::cli_demo_scale_add",
        "overload": "default",
        "signature": "cli_demo.scale_add(x: D[t.., H], y: D[t.., H]) -> (z: D[t.., H])",
        "doc": "Twice `x`, plus `y`.",
        "forms": [],
        "available": ['arch: env.arch in ("gfx942", "gfx950")'],
        "impls": ["cli_demo.kernels:scale_add"],
        "differs": "",
        "declared": "pack.fuse:1:4",
    }
    words = ("ops", "pack.fuse", "cli_demo.scale_add", "--format", "json")
    (one,) = json.loads(run(*words).out)["ops"]
    assert one["declaration"] == {
        "params": [
            {
                "name": name,
                "type": "D[t.., H]",
                "kind": "read",
                "default": None,
                "keyword_only": False,
            }
            for name in ("x", "y")
        ],
        "results": [{"name": "z", "type": "D[t.., H]"}],
        "means": ["%0 = prim.mul(x, 2.0)", "z = prim.add(%0, y)"],
        "forms": [],
        "where": [],
        "available": [{"label": "arch", "condition": 'env.arch in ("gfx942", "gfx950")'}],
        "impls": ['"cli_demo.kernels:scale_add"(x, y) -> z'],
        "effects": [],
        "unread": [],
        "differs": [],
    }


# --- AITER ---------------------------------------------------------------------------------------

CALLS = """\
op pack.norm(x: D[t.., H], w: D[H], eps: float) -> (y: D[t.., H]) {
  means { y = x * w + eps }
  impl "aiter.ops.norm:norm"(x, w, eps) -> y
}

op pack.scale(x: D[t..]) -> (y: D[t..]) {
  means { y = x * 2.0 }
  impl "aiter.ops.norm:scale"(x, by = 2.0) -> y
}

op pack.gone(x: D[t..]) -> (y: D[t..]) {
  means { y = x * 3.0 }
  impl "aiter.ops.gone:gone"(x) -> y
}

op pack.made(x: D[t..]) -> (y: D[t..]) {
  means { y = x * 4.0 }
  impl "aiter.ops.norm:made"(x) -> y
}
"""
NORM = """\
def norm(x, w, eps, *, mode): ...
def scale(x, by=1.0): ...
made = compiled("made")
"""
CHECKED = """\
AITER 0.1.20 at aiter

op          function              status
pack.gone   aiter.ops.gone:gone   missing
pack.made   aiter.ops.norm:made   unreadable
pack.norm   aiter.ops.norm:norm   drifted
pack.scale  aiter.ops.norm:scale  fits

1 fits, 1 drifted, 1 missing, 1 unreadable
"""
DRIFT = """\
error[FD515]: AITER has no `gone`, which `pack.gone` calls
  --> calls.fuse:11:4
   |
11 | op pack.gone(x: D[t..]) -> (y: D[t..]) {
   |    ^^^^^^^^^
   |
   = note: there is no module `aiter.ops.gone`

error[FD516]: what AITER's `made` takes, which `pack.made` calls, is unknown
  --> calls.fuse:16:4
   |
16 | op pack.made(x: D[t..]) -> (y: D[t..]) {
   |    ^^^^^^^^^
   |
   = note: `made` is no plain function at aiter/ops/norm.py:3

error[FD514]: AITER's `norm` does not take what `pack.norm` passes
 --> calls.fuse:1:4
  |
1 | op pack.norm(x: D[t.., H], w: D[H], eps: float) -> (y: D[t.., H]) {
  |    ^^^^^^^^^
  |
  = note: `mode`, which is taken by name only, has no default and is not passed
  = note: aiter/ops/norm.py:1: norm(x, w, eps, *, mode)

3 errors
"""


@pytest.fixture
def _tree(place: Path) -> None:
    write(place, {"ops/norm.py": NORM, "_version.py": "__version__ = '0.1.20'\n"})
    (place / "calls.fuse").write_text(CALLS)


@pytest.mark.usefixtures("_tree")
def test_calls_of_aiter(run: Run) -> None:
    done = run("ops", "calls.fuse", "--check-aiter=.")
    assert (done.code, done.out, done.err) == (1, CHECKED, DRIFT)
    one = run("ops", "calls.fuse", "pack.scale", "--check-aiter=aiter")
    assert (one.code, one.err) == (0, "")
    assert one.out.endswith("\n\n1 fits\n")


@pytest.mark.usefixtures("_tree")
def test_ops_that_call_no_aiter(run: Run) -> None:
    done = run("ops", "pack.fuse", "--check-aiter=.")
    assert (done.code, done.err) == (0, "")
    assert done.out == "AITER 0.1.20 at aiter\n\nno op of these calls AITER\n"


@pytest.mark.usefixtures("_tree")
def test_what_a_tree_says_does_not_reach_the_terminal_as_it_is(run: Run, place: Path) -> None:
    (place / "aiter/_version.py").write_text("__version__ = '\\x1b[2J\\n'")
    long = ", ".join(f"p{i}=1" for i in range(1000))
    (place / "aiter/ops/norm.py").write_text(f"def norm(x, w, eps, mode, {long}): ...\n")
    done = run("ops", "calls.fuse", "pack.norm", "--check-aiter=.")
    assert done.code == 1
    assert done.out.startswith("AITER <U+001B>[2J<U+000A> at aiter\n")
    assert max(map(len, done.err.splitlines())) < 600


def test_no_aiter(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = run("ops", "pack.fuse", "--check-aiter")
    assert (done.code, done.out) == (4, "")
    assert done.err == (
        "fusiondsl: AITER is not installed here (`pip install --pre amd-aiter`); or name its "
        "source tree: --check-aiter=PATH\n"
    )
    done = run("ops", "--check-aiter", "pack.fuse")
    assert (done.code, done.err) == (2, "fusiondsl: `pack.fuse` is no directory\n")
