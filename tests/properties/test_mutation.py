"""Graphs that write their buffers in place: rewriting never moves a read across a write."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from tests.engine.lab import L, apply_once, equal, rules
from tests.properties.graphs import EPS, WIDTH, Built, Choose, aten, finish, inputs, noise, start
from tests.properties.test_rewriting import CHECKS

RULES = """
rule into(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm_into(x, w, eps); q, s = lab.group_codes(n, 32) }
  replace { q, s = lab.norm_codes(x, w, eps, 32) }
}
rule shown(x: D[t.., H], w: D[H], eps: float) {
  match { n = lab.norm_into(x, w, eps); q, s = lab.group_codes(n, 16) }
  replace { q, s, n = lab.norm_codes_keep(x, w, eps, 16) }
}
rule merged(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm_into(x, r, w, eps); q, s = lab.group_codes(n, by) }
  replace { q, s, total = lab.add_norm_codes(x, r, w, eps, by) }
}
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
rule twice(x: D[t..]) {
  match { y = lab.other(lab.act(x)) }
  replace { y = lab.twice(x) }
}
rule plain(x: D[t.., H], w: D[H], eps: float, by: int) {
  match { n = lab.norm(x, w, eps); q, s = lab.group_codes(n, by) }
  replace { n = n; q, s = lab.group_codes(lab.mix(n, [1]), by) }
}
"""


def write(built: Built, choose: Choose) -> None:
    """A write to something that is there, declared or not, whole or in part."""
    value = built.values[-1 - min(choose(len(built.values)), choose(len(built.values)))]
    kind = choose(7)
    if kind == 0:
        built.call(aten.add_.Tensor, value, 1.0)
    elif kind == 1:
        built.call(L.bump.default, value, 0.5)
    elif kind == 2:
        built.call(aten.copy_.default, value, built.values[choose(len(built.values))])
    elif kind == 3:
        flat = built.call(aten.view.default, value, [-1, 2, WIDTH // 2])
        built.call(aten.mul_.Tensor, flat, 0.5)
    elif kind == 4:
        part = built.call(aten.slice.Tensor, value, 1, 0, WIDTH // 2)
        built.call(aten.add_.Tensor, part, 1.0)
    elif kind == 5:
        built.values.append(built.call(aten.view.default, value, [-1, WIDTH]))
    else:
        built.call(aten.add_.Tensor, built.weights[choose(2)], 0.25)


def source(built: Built, choose: Choose) -> None:
    """The source of a rule over a buffer, with writes anywhere in it."""

    def maybe() -> None:
        if not choose(4):
            write(built, choose)

    a, w = built.values[choose(len(built.values))], built.weights[choose(2)]
    kind = choose(4)
    if kind == 0:
        n = built.call(aten.empty_like.default, a)
        if not choose(3):
            built.values.append(n if choose(2) else built.call(aten.view.default, n, [-1, WIDTH]))
            built.call(aten.zero_.default, n)
        maybe()
        built.call(L.norm_into.default, n, a, w, EPS)
    elif kind == 1:
        n = built.call(aten.mul.Tensor, a, 0.5)
        r = built.call(aten.mul.Tensor, built.values[choose(len(built.values))], 2.0)
        maybe()
        built.call(L.add_norm_into.default, n, r, w, EPS)
        built.values.append(r)
    elif kind == 2:
        n = built.call(L.norm.default, a, w, EPS)
    else:
        n = built.call(L.act.default, a)
        maybe()
        b = built.values[choose(len(built.values))]
        built.values.append(built.call(aten.add.Tensor, b, n))
        return
    if not choose(3):
        built.values.append(n)
    maybe()
    read = built.call(aten.clone.default, n) if not choose(4) else n
    maybe()
    codes = built.call(L.group_codes.default, read, (16, 32)[choose(2)])
    built.results += built.items(codes)


def run(gm: fx.GraphModule) -> Any:
    """Results, and what is left of the inputs."""
    given = inputs()
    with torch.no_grad():
        return fx.Interpreter(gm).run(*given), given


@settings(CHECKS, max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_what_is_read_is_what_was_there(numbers: Any, count: int) -> None:
    choose = numbers.randrange
    built = start(bool(choose(2)))
    for _ in range(count):
        for _ in range(choose(3)):
            noise(built, choose)
        source(built, choose)
    write(built, choose)
    gm = finish(built, choose)
    expected = run(gm)
    before = str(gm.graph)
    applied = apply_once(gm, rules(RULES))
    assert equal(run(gm), expected), f"{before}\n{applied.report}\n{gm.graph}"
