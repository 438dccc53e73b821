"""Rules that have no site in an engine, by what is known of its graphs; and none that may have."""

from __future__ import annotations

import pytest

import fusiondsl
from fusiondsl import Target
from fusiondsl.engine.bounds import end_points, pending
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.prospects import Surroundings, without_prospects
from fusiondsl.target import Answer

RULES = """
import "fusiondsl:ops/norms.fuse"
import "fusiondsl:ops/collectives.fuse"
import "fusiondsl:ops/rotary.fuse"
import "fusiondsl:ops/kv_cache.fuse"
import "fusiondsl:ops/quant_fp8.fuse"

extern predicate fits(l: layer, n: int)

op prospects.norm(x: D[t.., H], weight: D[H], eps: float) -> (y: D[t.., H]) {
  means { y = rms_norm(x, weight, eps) }
}
op prospects.reduced(x: D[t.., H], group: str) -> (y: D[t.., H]) {
  effect communicator(group)
  means { y = all_reduce(x, group) }
}
op prospects.turned(
    p: i64[T], x: D[T, N, H], k: D[T, K], w: D[H], eps: float, cs: C[L, R], is_neox: bool)
    -> (a: D[T, N * H], b: D[T, K]) {
  means {
    n = rms_norm(x, w, eps)
    a, b = rotary_embedding(p, n.view(T, N * H), k, cs, H, is_neox)
  }
}
op prospects.turned_sum(
    p: i64[T], x: D[T, N, H], k: D[T, K], cs: C[L, R], is_neox: bool)
    -> (a: D[T, N * H], b: D[T, K]) {
  means {
    n = x + x
    a, b = rotary_embedding(p, n.view(T, N * H), k, cs, H, is_neox)
  }
}
op prospects.codes(x: D[t.., H]) -> (q: fp8[t.., H], s: f32[t.., H / 128]) {
  means { q, s = fp8_group_quant(x, group_size = 128) }
  where { H % 128 == 0 }
}
op prospects.cached(k: D[T, K, H], v: D[T, K, V], l: layer) -> (done: D[0]) {
  effect kv_cache(l)
  means { done = kv_cache_update(k, v, l) }
}

rule normed(x: D[tokens.., H], weight: D[H], eps: float) {
  match   { y = rms_norm(x, weight, eps) }
  replace { y = prospects.norm(x, weight, eps) }
  where   { tokens <= 10 }
}
rule reduced(x: D[tokens.., H], group: str) {
  match   { y = all_reduce(x, group) }
  replace { y = prospects.reduced(x, group) }
  where   { H <= 4096; D == bf16; tokens <= 20 }
}
rule turned(
    p: i64[tokens], x: D[tokens, N, H], k: D[tokens, K], w: D[H], eps: float, cs: C[L, R],
    is_neox: bool) {
  match {
    n = rms_norm(x, w, eps)
    a, b = rotary_embedding(p, n.view(tokens, N * H), k, cs, H, is_neox)
  }
  replace { a, b = prospects.turned(p, x, k, w, eps, cs, is_neox) }
  where   { tokens <= 30 }
}
rule turned_sum(
    p: i64[tokens], x: D[tokens, N, H], k: D[tokens, K], cs: C[L, R], is_neox: bool) {
  match {
    n = x + x
    a, b = rotary_embedding(p, n.view(tokens, N * H), k, cs, H, is_neox)
  }
  replace { a, b = prospects.turned_sum(p, x, k, cs, is_neox) }
  where   { tokens <= 40 }
}
rule codes(x: D[tokens.., H]) {
  match   { q, s = fp8_group_quant(x, group_size = 128) }
  replace { q, s = prospects.codes(x) }
  where   { H % 128 == 0; tokens <= 50 }
}
rule cached(k: D[tokens, K, H], v: D[tokens, K, V], l: layer) {
  match   { done = kv_cache_update(k, v, l) }
  replace { done = prospects.cached(k, v, l) }
  where   { K <= 64 or fits(l, K); fits(l, H); tokens <= 60 }
}
"""


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return fusiondsl.load_source(RULES).compile(Target()).compiled


_TURNING = (("_C::rotary_embedding", "no"), ("vllm::rocm_aiter_*", "no"))
_WIDE = "H is 8192, over the limit 4096"
_BOTH = (("vllm::all_reduce", "one rank"), ("_c10d_functional::*", "never"))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Surroundings(), {}),
        # One of several spellings is left.
        (Surroundings(absent=_BOTH[:1]), {}),
        (Surroundings(absent=_TURNING[:1]), {}),
        (Surroundings(absent=_BOTH), {"reduced": "one rank"}),
        (Surroundings(absent=_TURNING), {"turned": "no", "turned_sum": "no"}),
        # Somebody else writes the op itself.
        (Surroundings(absent=_BOTH, written=frozenset({"all_reduce"})), {}),
        # A norm can be written out: that its ops are absent says nothing.
        (Surroundings(absent=(("vllm_ir::*", "no"), ("_C::*", "no"), ("vllm*", "no"))),
         {"turned": "no", "turned_sum": "no", "cached": "no"}),
        (Surroundings(plain_heads="plain"), {"turned": "plain"}),
        (Surroundings(absent_dtypes=(("fp8", "no fp8"),)), {"codes": "no fp8"}),
        (Surroundings(reduced_rows=(4096, ("bf16", "f16"))), {}),
        (Surroundings(reduced_rows=(8192, ("bf16",))), {"reduced": _WIDE}),
        (Surroundings(reduced_rows=(64, ("f16", "f32"))), {"reduced": "D is f16, not bf16"}),
        (Surroundings(answers=(Answer("fits", True),)), {}),
        (Surroundings(answers=(Answer("fits", False),)), {"cached": "fits(l, H) is false"}),
        # One answer of several, and none for what is asked.
        (Surroundings(answers=(Answer("fits", False, {"l": "a", "n": 8}),)), {}),
    ],
)  # fmt: skip
def test_what_is_known(compiled: Compiled, known: Surroundings, expected: dict[str, str]) -> None:
    assert without_prospects(compiled, known) == expected


def test_they_end_no_range(compiled: Compiled) -> None:
    left_out = without_prospects(compiled, Surroundings(absent=_BOTH, plain_heads="plain"))
    assert [*end_points(compiled, 100)] == [10, 20, 30, 40, 50, 60]
    assert [*end_points(compiled, 100, left_out=left_out)] == [10, 40, 50, 60]


def test_an_answer_of_the_target_counts(compiled: Compiled) -> None:
    target = Target(answers=(Answer("fits", True),))
    answered = fusiondsl.CompiledRules(compiled.program, target).compiled
    assert without_prospects(answered, Surroundings(answers=(Answer("fits", False),))) == {}


PENDING = """
extern predicate is_fast(n: int)
op prospects.twice(x: D[t.., H]) -> (y: D[t.., H]) { means { y = x + x } }
rule asking(x: D[tokens.., H]) {
  match { y = x + x }
  replace { y = prospects.twice(x) }
  where { is_fast(4) or env.aiter; tokens <= 10 }
}
rule forbidden(x: D[tokens.., H]) {
  match { y = x + x }
  replace { y = prospects.twice(x) }
  where { is_fast(4); env.tp_size == 2; tokens <= 20 }
  after asking
}
rule unknown(x: D[tokens.., H]) {
  match { y = x + x }
  replace { y = prospects.twice(x) }
  where { env.aiter; tokens <= 30 }
  after forbidden
}
"""


def test_what_may_be_answered_later_ends_ranges_now() -> None:
    made = fusiondsl.load_source(PENDING).compile(Target(tp_size=1)).compiled
    assert made.rules == ()
    assert [*pending(made)] == ["asking"]
    assert end_points(made, 100) == {10: ("asking",)}


MISSING = """
extern op prospects_library.twice(x: D[t.., H]) -> (y: D[t.., H])
op prospects.doubled(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = prospects_library.twice(x) }
}
rule library(x: D[tokens.., H]) {
  match { y = prospects.doubled(x) }
  replace { y = prospects_library.twice(x) }
  where { tokens <= 10 }
}
"""


def test_an_op_that_may_be_registered_later_ends_ranges_now() -> None:
    made = fusiondsl.load_source(MISSING).compile(Target()).compiled
    reason = "the op prospects_library::twice is not registered in this process"
    assert pending(made) == {"library": reason}
    assert end_points(made, 100) == {10: ("library",)}
