"""Where new nodes stand, what they carry, and what happens to the values around a site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import fusiondsl
from fusiondsl.engine.report import RefusalKind
from tests.engine.lab import (
    EPS,
    H,
    L,
    T,
    apply,
    called,
    equal,
    refused,
    rewritten,
    rows,
    rules,
    shape_env,
    snapshot,
    vector,
)
from tests.support import spellings
from tests.support.capture import post_grad, traced

X, R, W = rows(), rows(salt=1), vector()
EXTRA, STRUCTURE, EFFECT = RefusalKind.EXTRA_USER, RefusalKind.STRUCTURE, RefusalKind.EFFECT
LAYOUT = RefusalKind.LAYOUT

FUSED = """
rule fused(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm(x, r, w, eps); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale, total = lab.add_norm_codes(x, r, w, eps, by) }
}
"""
FLAT = FUSED.replace("lab.add_norm_codes", "lab.flat_add_norm_codes").replace("fused", "flat")
PLAIN = """
rule plain(x: D[t.., H], w: D[H], eps: float, by: int) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale = lab.norm_codes(x, w, eps, by) }
}
"""
PAIR = """
rule pair(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); s = b + done }
  replace { done, s = lab.act_sum(a, b) }
}
"""


def source(x: Tensor, r: Tensor, w: Tensor) -> Any:
    n, total = L.add_norm(x, r, w, EPS)
    return (*L.group_codes(n, 128), total)


# --- values around a site ------------------------------------------------------------------------


def test_an_output_of_the_rule_is_a_graph_output() -> None:
    applied = rewritten(traced(lambda a, b: (L.act(a), b + L.act(a)), X, R), rules(PAIR), (X, R))
    assert applied.counts == {"pair": 1}


def test_an_output_is_returned_twice_and_used() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        t = L.act(a)
        s = b + t
        return s, t, s, L.other(s) + t

    assert rewritten(traced(function, X, R), rules(PAIR), (X, R)).counts == {"pair": 1}


SPLIT = """
rule split_pair(a: D[T, H], b: D[T, 2, H / 2]) {
  match { done = lab.act(a); s = b + done.view(T, 2, H / 2) }
  replace { done, t = lab.act_sum(a, b.view(T, H)); s = t.view(T, 2, H / 2) }
}
"""


@pytest.mark.parametrize("late", [False, True])
def test_a_matched_view_of_an_output_that_others_read_too(late: bool) -> None:
    """It stays and shows the new value; `late`: it stands before an input of the new call."""

    def function(a: Tensor, b: Tensor) -> Any:
        b = b.view(T, 2, H // 2)
        view = L.act(a).view(T, 2, H // 2)
        tripled = view * 3
        return view.neg(), tripled, (b.exp() if late else b) + view

    captured = traced(function, X, R, dynamic=False)
    assert rewritten(captured, rules(SPLIT), (X, R)).counts == {"split_pair": 1}
    assert "lab.act.default" not in captured.targets()


def test_an_input_is_a_view_of_an_output() -> None:
    """`b` would be computed from `done`."""

    def function(a: Tensor) -> Any:
        t = L.act(a)
        return t.flip(0) + t

    applied = rewritten(traced(function, X), rules(PAIR), (X,))
    refused(applied, "pair", STRUCTURE, "cycle")


@pytest.mark.parametrize("view", [lambda t: t.view(-1, H), lambda t: t[:, :], lambda t: t.clone()])
def test_an_input_is_the_output_behind_a_no_op(view: Callable[[Tensor], Tensor]) -> None:
    def function(a: Tensor) -> Any:
        t = L.act(a)
        return view(t) + t

    rewritten(traced(function, X), rules(PAIR), (X,))


@pytest.mark.parametrize(("written", "fires"), [("other", True), ("between", False)])
def test_reshapes_that_cancel_out_where_something_is_written(written: str, fires: bool) -> None:
    """Writes to other memory are none of their business; one to what lies between them is."""

    def function(x: Tensor, w: Tensor) -> Any:
        other = torch.zeros(4, 8)
        between = L.norm(x, w, EPS).view(-1, 2, H // 2)
        (other if written == "other" else between).mul_(2.0)
        return (*L.group_codes(between.view(-1, H), 128), other)

    applied = rewritten(traced(function, X, W), rules(PLAIN), (X, W))
    assert applied.counts == ({"plain": 1} if fires else {})


RELAID = """
rule relaid(x: D[t.., H]) {
  match { n = x * 2.0; y = pad(n, 0, 64, 0.0) }
  replace { y = pad(x, 0, 64, 0.0) * 2.0; n = y[.., :H] }
  allow { relayout: n }
}
"""


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("returned", [True, False])
def test_what_a_graph_returns_keeps_its_strides(rank: int, returned: bool) -> None:
    """Inside of the graph the slice of the padded value serves."""

    def function(x: Tensor) -> Any:
        n = x.view(T, 2, H // 2) * 2.0 if rank == 3 else x * 2.0
        y = torch.nn.functional.pad(n, (0, 64))
        return (n if returned else n.exp()), y

    captured = traced(function, X)
    assert rewritten(captured, rules(RELAID), (X,)).counts == {"relaid": 1}
    assert ("aten.clone.default" in captured.targets()) is returned


def test_what_a_graph_returns_in_another_layout_is_left_alone() -> None:
    def function(x: Tensor) -> Any:
        n = x.t() * 2.0
        return n, torch.nn.functional.pad(n, (0, 64))

    refused(rewritten(traced(function, X), rules(RELAID), (X,)), "relaid", LAYOUT, "returns n")


def test_sites_that_share_an_input() -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        return source(x, r, w), source(x, r, w * 2), source(r, x, w)

    assert rewritten(traced(function, X, R, W), rules(FUSED), (X, R, W)).counts == {"fused": 3}


@pytest.mark.parametrize("layers", [2, 5])
@pytest.mark.parametrize("text", [FUSED, FLAT], ids=["fused", "flat"])
def test_sites_in_a_row(layers: int, text: str) -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        for _ in range(layers):
            codes, scale, r = source(x, r, w)
            x = (codes.float() * scale.repeat_interleave(128, -1)).to(x.dtype)
        return x, r

    applied = rewritten(traced(function, X, R, W), rules(text), (X, R, W))
    assert sum(applied.counts.values()) == layers


def test_outputs_of_one_site_feed_the_next_directly() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        for _ in range(4):
            t = L.act(a)
            a, b = b + t, t
        return a, b

    assert rewritten(traced(function, X, R), rules(PAIR), (X, R)).counts == {"pair": 4}


def test_an_output_is_used_by_a_copy_epilogue() -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        codes, scale, total = source(x, r, w)
        r.copy_(total)
        return codes, scale

    for captured, given in ((traced(function, X, R, W), None), (post_grad(function, X, R, W), T)):
        x, r = X.clone(), R.clone()
        captured.run((x, r, W), given)
        applied = apply(captured, rules(FUSED))
        assert applied.counts == {"fused": 1}
        again = R.clone()
        captured.run((X.clone(), again, W), given)
        assert torch.equal(r, again)


def test_a_source_that_reads_a_written_input() -> None:
    """The write stands before the site, so that the site reads what was written."""

    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        x = x + 1
        x.mul_(2)
        codes, scale, total = source(x, r, w)
        x.mul_(3)
        return codes, scale, total, x.clone()

    assert rewritten(traced(function, X, R, W), rules(FUSED), (X, R, W)).counts == {"fused": 1}


def test_a_write_between_two_matched_calls_that_read_one_buffer() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        a, b = a + 1, b + 1
        t = L.act(a)
        b.mul_(2)
        return b + t, t

    rewritten(traced(function, X, R), rules(PAIR), (X, R))


def test_a_write_to_an_output_in_between() -> None:
    """`done` is replaced, but `b + done` reads it after a write."""

    def function(a: Tensor, b: Tensor) -> Any:
        t = L.act(a)
        t.add_(1)
        return b + t, t

    applied = rewritten(traced(function, X, R), rules(PAIR), (X, R))
    assert not applied.counts


def test_a_write_to_a_kept_value_in_between() -> None:
    text = """
    rule kept(x: D[t.., H], w: D[H], eps: float) {
      match { n = lab.norm(x, w, eps); y = lab.act(n) }
      replace { n = n; y = lab.mix(n, [1]) }
    }"""

    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS).abs()
        y = L.act(n)
        n.add_(1)
        return y, n

    rewritten(traced(function, X, W), rules(text), (X, W))


def test_a_clone_of_what_is_written_later_is_not_transparent() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS)
        saved = n.clone()
        n.add_(1)
        return L.group_codes(saved, 128), n

    applied = rewritten(traced(function, X, W), rules(PLAIN), (X, W))
    assert not applied.counts


def test_a_clone_that_is_written_later_is_not_transparent() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS)
        mine = n.clone()
        mine.add_(1)
        return L.group_codes(mine, 128)

    applied = rewritten(traced(function, X, W), rules(PLAIN), (X, W))
    assert not applied.counts


# --- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7, H), (2, 7, H), (1, 7, H), (2, 3, 4, H), (H,)])
@pytest.mark.parametrize("text", [FUSED, FLAT], ids=["fused", "flat"])
def test_any_rank(shape: tuple[int, ...], text: str) -> None:
    count = max(1, torch.Size(shape).numel() // H)
    x, r = rows(count).reshape(shape), rows(count, salt=1).reshape(shape)
    captured = traced(source, x, r, W, dynamic=False)
    applied = rewritten(captured, rules(text), (x, r, W))
    if len(shape) > 1 or text is FUSED:
        assert sum(applied.counts.values()) == 1


def test_a_residual_in_another_grouping() -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        return source(x.view(-1, H), r, w)

    x = rows(6).view(2, 3, H)
    r = rows(6, salt=1)
    for text in (FUSED, FLAT):
        assert rewritten(traced(function, x, r, W, dynamic=False), rules(text), (x, r, W)).counts


@pytest.mark.parametrize("text", [FUSED, FLAT], ids=["fused", "flat"])
def test_two_symbolic_sizes(text: str) -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        batch = torch.cat([x, r])
        return source(batch, batch * 2, w), source(x, x * 3, w)

    r = rows(11, salt=1)
    captured = traced(function, X, r, W)
    applied = rewritten(captured, rules(text), (X, r, W))
    assert sum(applied.counts.values()) == 2
    other = (rows(5), rows(3, salt=1), W)
    assert equal(captured.run(other), function(*other))


# --- kept values, several calls ------------------------------------------------------------------

KEPT_LATE = """
rule kept_late(a: D[t..], b: D[t..]) {
  match { done = lab.act(a); n = lab.other(b); s = done + n }
  replace { done, s = lab.act_sum(a, n) }
}
"""


def test_a_kept_value_that_is_made_after_a_user_of_an_output() -> None:
    def function(a: Tensor, b: Tensor) -> Any:
        t = L.act(a)
        early = t * 5
        n = L.other(b)
        return early, t + n, n

    applied = rewritten(traced(function, X, R), rules(KEPT_LATE), (X, R))
    assert applied.counts == {"kept_late": 1}


def test_a_kept_value_keeps_its_other_users() -> None:
    text = """
    rule kept(x: D[t.., H], w: D[H], eps: float) {
      match { n = lab.norm(x, w, eps); y = lab.other(lab.act(n)) }
      replace { n = n; y = lab.twice(n) }
    }"""

    def function(x: Tensor, w: Tensor) -> Any:
        n = L.norm(x, w, EPS)
        return L.other(L.act(n)), n, L.other(n)

    applied = rewritten(traced(function, X, W), rules(text), (X, W))
    assert applied.counts == {"kept": 1}
    assert sorted(called(applied.graph)) == ["norm", "other", "twice"]


def test_a_replacement_of_two_calls() -> None:
    text = """
    rule two(x: D[t.., H], w: D[H], eps: float, by: int) {
      match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, by) }
      replace {
        y = lab.norm_into(x, w, eps)
        codes, scale, k = lab.add_norm_codes(x, y, w, eps, by)
      }
    }"""
    with_source = traced(lambda x, w: L.group_codes(L.norm(x, w, EPS), 128), X, W)
    report = rules(text).apply(with_source.gm)
    with_source.gm.graph.lint()
    assert report.counts == {"two": 1}
    assert called(with_source.gm.graph) == ["norm_into", "add_norm_codes"]


# --- mutating targets ----------------------------------------------------------------------------

INTO = """
rule into(x: D[t.., H], w: D[H], eps: float, group: int) {
  match { n = lab.norm(x, w, eps); codes, scale = lab.group_codes(n, group) }
  replace { codes, scale = lab.norm_codes_into(x, w, eps, group) }
}
"""
IN_PLACE = """
rule in_place(x: D[t..]) {
  match { y = lab.other(lab.act(x)) }
  replace { y = lab.other(lab.act_bump(x, 0.0)) }
}
"""


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("shape", [(T, H), (2, 3, H)])
def test_a_target_that_writes_buffers(shape: tuple[int, ...], dead: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        codes, scale = L.group_codes(L.norm(x, w, EPS), 128)
        return codes if dead else (codes, scale)

    x = rows(torch.Size(shape).numel() // H).view(shape)
    applied = rewritten(traced(function, x, W), rules(INTO), (x, W))
    assert applied.counts == {"into": 1}
    call = next(n for n in applied.graph.nodes if "auto_functionalized" in str(n.target))
    assert set(call.kwargs) == {"codes", "scale", "x", "w", "eps", "group"}
    assert all("empty" in str(call.kwargs[name].target) for name in ("codes", "scale"))


def test_a_target_that_writes_its_input_leaves_the_input_alone() -> None:
    """Functionalised: whether the input may be overwritten is decided by a later pass."""

    def function(x: Tensor) -> Any:
        return L.other(L.act(x)), x * 2

    applied = rewritten(traced(function, X), rules(IN_PLACE), (X,))
    assert applied.counts == {"in_place": 1}


@pytest.mark.parametrize("version", [1, 2])
def test_in_place_sources_under_functionalisation(version: int) -> None:
    text = """
    rule merged(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
      match { n, total = lab.add_norm_into(x, r, w, eps); codes, scale = lab.group_codes(n, by) }
      replace { codes, scale, total = lab.add_norm_codes(x, r, w, eps, by) }
    }"""

    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        x, r = x + 0.5, r + 0.5
        L.add_norm_into(x, r, w, EPS)
        return (*L.group_codes(x, 128), r)

    captured = post_grad(function, X, R, W, functionalized=version)
    assert rewritten(captured, rules(text), (X, R, W), given=T).counts == {"merged": 1}
    captured = traced(function, X, R, W)
    assert rewritten(captured, rules(text), (X, R, W)).counts == {"merged": 1}


# --- chains --------------------------------------------------------------------------------------

CHAIN = """
rule first(x: D[t.., H], w: D[H], eps: float, group: str) {
  match { n = lab.norm(lab.reduce(x, group), w, eps) }
  replace { n = lab.reduce_norm(x, w, eps, group) }
}
rule second(x: D[t.., H], w: D[H], eps: float, group: str, by: int) {
  match { n = lab.reduce_norm(x, w, eps, group); codes, scale = lab.group_codes(n, by) }
  replace { codes, scale = lab.reduce_norm_codes(x, w, eps, by, group) }
}
"""


@pytest.mark.parametrize("layers", [1, 3])
def test_the_target_of_one_rule_is_the_source_of_another(layers: int) -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        outputs = []
        for _ in range(layers):
            x = x + 1
            outputs.append(L.group_codes(L.norm(L.reduce(x, "tp"), w, EPS), 128))
        return outputs

    applied = rewritten(traced(function, X, W), rules(CHAIN), (X, W))
    assert applied.counts == {"first": layers, "second": layers}
    assert set(called(applied.graph)) == {"reduce_norm_codes"}


# --- effects -------------------------------------------------------------------------------------

REDUCED = """
rule reduced(x: D[t.., H], w: D[H], eps: float, group: str) {
  match { r = lab.reduce(x, group); n = lab.norm(r, w, eps) }
  replace { n = lab.reduce_norm(x, w, eps, group) }
}
"""


def test_effects_on_one_communicator_keep_their_order() -> None:
    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        first = L.reduce(x, "tp")
        second = L.reduce(r, "tp")
        return L.norm(first, w, EPS), second

    applied = rewritten(traced(function, X, R, W), rules(REDUCED), (X, R, W))
    order = [n for n in called(applied.graph) if "reduce" in n]
    assert order in (["reduce", "reduce"], ["reduce_norm", "reduce"])


def test_an_effect_does_not_move_up_either() -> None:
    """The first output is used before another collective, the matched one stands behind it."""
    text = """
    rule tied(a: D[t..], group: str) {
      match { done = lab.act(a); r = lab.reduce(done, group) }
      replace { done, r = lab.act_reduce(a, group) }
    }"""
    extern = """
    extern op lab.act_reduce(a: D[t..], group: str) -> (t: D[t..], r: D[t..]) {
      effect communicator(group)
    }
    """.replace("(t: D", "(first: D")

    def function(a: Tensor, c: Tensor) -> Any:
        t = L.act(a)
        early = L.other(t)
        between = L.reduce(c, "tp")
        return early, between, L.reduce(t, "tp")

    applied = rewritten(traced(function, X, R), rules(extern + text), (X, R))
    refused(applied, "tied", EFFECT, "communicator", "reduce")

    def later(a: Tensor, c: Tensor) -> Any:
        t = L.act(a)
        return L.other(t), L.reduce(t, "tp"), L.reduce(c, "tp")

    applied = rewritten(traced(later, X, R), rules(extern + text), (X, R))
    assert applied.counts == {"tied": 1}


def test_repeated_collectives_are_not_merged() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return L.norm(L.reduce(x, "tp"), w, EPS), L.norm(L.reduce(x, "tp"), w, EPS)

    applied = rewritten(traced(function, X, W), rules(REDUCED), (X, W))
    assert len([n for n in called(applied.graph) if "reduce" in n]) == 2


# --- metadata ------------------------------------------------------------------------------------

CARRIED = ("stack_trace", "nn_module_stack", "original_aten", "from_node", "seq_nr", "custom")


@pytest.mark.parametrize("text", [FUSED, FLAT], ids=["fused", "flat"])
def test_new_nodes_carry_where_they_come_from(text: str) -> None:
    x, r = rows(6).view(2, 3, H), rows(6, salt=1).view(2, 3, H)
    captured = traced(source, x, r, W, dynamic=False)
    for node in captured.gm.graph.nodes:
        if node.op == "call_function":
            node.meta.update({key: f"{key} of {node.target}" for key in CARRIED})
    old = set(captured.gm.graph.nodes)
    assert sum(apply(captured, rules(text)).counts.values()) == 1
    new = [n for n in captured.gm.graph.nodes if n not in old]
    assert new
    for node in new:
        assert all("lab" in str(node.meta.get(key)) for key in CARRIED), node
        assert node.meta["fusiondsl"]["rule"] in ("fused", "flat")
        assert node.meta["fusiondsl"]["at"]


def test_values_are_moved_not_made_again() -> None:
    """Later passes tell by the storage of a value what may share memory."""
    captured = traced(source, X, R, W)
    outputs = captured.gm.graph.output_node().args[0]
    before = [id(node.meta["val"]) for node in outputs]
    apply(captured, rules(FUSED))
    outputs = captured.gm.graph.output_node().args[0]
    assert [id(node.meta["val"]) for node in outputs] == before


def test_no_value_shares_memory_with_an_input() -> None:
    captured = traced(lambda x: L.other(L.act(x)), X)
    applied = apply(captured, rules(IN_PLACE))
    storages = [
        value.untyped_storage()._cdata
        for node in applied.graph.nodes
        for value in [node.meta.get("val")]
        if isinstance(value, Tensor) and "getitem" not in node.name
    ]
    assert len(set(storages)) == len(storages)


def clones(graph: fx.Graph) -> int:
    return sum("clone" in str(node.target) for node in graph.nodes)


def test_reinplacing_adds_no_copy() -> None:
    """As many copies as before, less those of the calls that are gone."""
    from torch._inductor.fx_passes.post_grad import decompose_auto_functionalized
    from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops_core

    text = """
    rule merged(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
      match { n, total = lab.add_norm_into(x, r, w, eps); codes, scale = lab.group_codes(n, by) }
      replace { codes, scale, total = lab.add_norm_codes(x, r, w, eps, by) }
    }"""

    def function(x: Tensor, r: Tensor, w: Tensor) -> Any:
        outputs = []
        for _ in range(4):
            x, r = x + 0.5, r * 0.5
            L.add_norm_into(x, r, w, EPS)
            codes, scale = L.group_codes(x, 128)
            x = (codes.float() * scale.repeat_interleave(128, -1)).to(r.dtype)
            y = torch.empty_like(x)
            L.norm_into(y, r, w, EPS)
            outputs.append(y)
        return x, r, outputs

    counts = []
    for fuse in (False, True):
        captured = post_grad(function, X, R, W)
        if fuse:
            assert apply(captured, rules(text)).counts == {"merged": 4}
        reinplace_inplaceable_ops_core(captured.gm.graph)
        decompose_auto_functionalized(captured.gm.graph)
        counts.append(clones(captured.gm.graph))
    assert counts[1] <= counts[0]


# --- fakes that decide something -----------------------------------------------------------------


@pytest.mark.parametrize("question", ["equal", "less", "multiple", "number"])
def test_a_fake_that_looks_at_a_size_leaves_no_trace(question: str) -> None:
    """Its decision holds for this trace only, so it must not stick to the graph."""
    library = torch.library.Library("lab_nosy", "FRAGMENT")

    def fake(x: Tensor) -> Tensor:
        tokens = x.shape[0]
        if question == "equal":
            assert tokens == T or tokens != T
        elif question == "less":
            assert tokens < 9 or tokens > 3
        elif question == "multiple":
            assert tokens % 7 == 0 or tokens > 3
        else:
            int(tokens)
        return x.new_empty(x.shape)

    library.define(f"{question}(Tensor x) -> Tensor")
    library.impl(question, lambda x: x.relu(), "CompositeExplicitAutograd")
    torch.library.register_fake(f"lab_nosy::{question}", fake, lib=library)
    text = f"""
    extern op lab_nosy.{question}(x: D[t..]) -> D[t..]
    rule nosy(x: D[t..]) {{
      match {{ y = lab.act(x) }}
      replace {{ y = lab_nosy.{question}(x) }}
    }}"""
    captured = traced(lambda x: L.act(x), X)
    env = shape_env(captured.gm.graph)
    before = snapshot(env)
    report = rules(text).apply(captured.gm)
    assert snapshot(env) == before
    value = captured.gm.graph.output_node().args[0].meta["val"]
    assert isinstance(value.shape[0], torch.SymInt)
    assert report.counts == {"nosy": 1} or report.refused


@pytest.mark.parametrize("writes", [False, True], ids=["returns", "writes"])
def test_a_fake_that_refuses_a_layout_is_asked_at_each_layout(writes: bool) -> None:
    """Sites that differ in the strides of an input alone do not share a verdict."""
    library = torch.library.Library("lab_strict", "FRAGMENT")
    name = "act_into" if writes else "act"

    def fake(*tensors: Tensor) -> Tensor | None:
        if not tensors[-1].is_contiguous():
            raise ValueError("rows are not dense")
        return None if writes else torch.empty_like(tensors[-1])

    library.define(
        f"{name}(Tensor(a!) y, Tensor x) -> ()" if writes else f"{name}(Tensor x) -> Tensor"
    )
    torch.library.register_fake(f"lab_strict::{name}", fake, lib=library)
    x = "x: D[M, N] strides (_, _)"
    declared = f"out y: D[M, N], {x}" if writes else f"{x}) -> D[M, N"
    text = f"""
    extern op lab_strict.{name}({declared}{")" if writes else "]"}
    rule strict(x: D[M, N]) {{
      match {{ y = lab.act(x) }}
      replace {{ y: D[M, N] = lab_strict.{name}(x) }}
    }}"""
    wide = torch.zeros(T, 16)
    captured = traced(
        lambda a, b: (L.act(a), L.act(b[:, :8]), L.act(b[:, 8:])), wide[:, :8] + 1, wide
    )
    report = rules(text).apply(captured.gm)
    assert report.counts == {"strict": 1}
    assert [r.kind for r in report.refused] == [RefusalKind.ENVIRONMENT] * 2
    assert all("rows are not dense" in r.message for r in report.refused)


# --- tokens of several dimensions ----------------------------------------------------------------

LIMITED = "  where { few: tokens <= 256 }\n}\n"


@pytest.mark.parametrize("text", [FUSED, FLAT], ids=["fused", "flat"])
@pytest.mark.parametrize(("limit", "fires"), [(256, True), (257, False)])
def test_a_token_range_bounds_the_product_of_leading_sizes(
    text: str, limit: int, fires: bool
) -> None:
    x, r = rows(6).view(2, 3, H), rows(6, salt=1).view(2, 3, H)
    bounded = text.replace("t..", "tokens..").replace("  }\n}\n", "  }\n" + LIMITED)
    if "where" not in bounded:
        bounded = bounded.rstrip().removesuffix("}") + LIMITED
    captured = traced(source, x, r, W)
    applied = rewritten(captured, rules(bounded), (x, r, W), range(1, limit + 1))
    assert bool(applied.counts) is fires
    if not fires:
        (name,) = {refusal.rule for refusal in applied.report.refused}
        assert refused(applied, name, RefusalKind.PREDICATE_UNKNOWN, "tokens").label == "few"


@pytest.mark.parametrize(("limit", "fires"), [(128, True), (129, False)])
def test_a_token_range_is_that_of_the_rows_of_an_input(limit: int, fires: bool) -> None:
    """Every token becomes two rows, as behind a choice of experts."""
    text = PLAIN.replace("t..", "tokens..").rstrip().removesuffix("}") + LIMITED

    def function(x: Tensor, w: Tensor) -> Any:
        return L.group_codes(L.norm(torch.cat((x, x)), w, EPS), 128)

    captured = traced(function, rows(), W)
    applied = rewritten(captured, rules(text), (rows(), W), range(1, limit + 1))
    assert bool(applied.counts) is fires
    if not fires:
        assert refused(applied, "plain", RefusalKind.PREDICATE_UNKNOWN, "tokens").label == "few"


@pytest.mark.parametrize(("rank", "view", "times"), [(2, False, 2), (3, True, 1), (3, True, 2)])
def test_decomposed_spellings_behind_a_view_and_repeated(rank: int, view: bool, times: int) -> None:
    compiled = fusiondsl.load("fusiondsl:rocm_aiter/rms_norm_group_quant.yaml").compile(
        fusiondsl.Target(arch="gfx950", facts={"env.aiter": True, "env.vllm": True})
    )

    def function(x: Tensor, w: Tensor) -> Any:
        normed = spellings.norm_ir_native(x, w)
        normed = normed.view(-1, H) if view else normed
        return [spellings.group_native(normed) for _ in range(times)]

    x = rows(6).view(2, 3, H) if rank == 3 else rows(6)
    captured = post_grad(function, x, W, dynamic=False)
    assert apply(captured, compiled, range(1, 65)).counts == {"rms_norm_group_quant": 1}


# --- right sides that are inputs -----------------------------------------------------------------

TWICE = """
rule twice(x: D[T, H]) {
  match { y = neg(neg(x)) }
  replace { y = x }
}
"""


def test_an_output_does_not_become_an_input() -> None:
    captured = post_grad(lambda x: (x.neg().neg(), x * 2), rows())
    assert rewritten(captured, rules(TWICE), (rows(),)).counts == {"twice": 1}
    x = rows()
    assert captured.run([x], T)[0].data_ptr() != x.data_ptr()


@pytest.mark.parametrize("written", ["input", "result"])
def test_a_write_into_what_was_other_memory(written: str) -> None:
    def function(x: Tensor) -> Any:
        y = x.neg().neg()
        (x if written == "input" else y).add_(1)
        return (y * 2, x * 3)

    captured = traced(function, rows())
    assert rewritten(captured, rules(TWICE), (rows(),)).counts == {"twice": 1}


def test_a_view_of_an_input_is_no_output_either() -> None:
    text = """
rule flat(x: D[T, H]) {
  match { y = neg(neg(x)).view(T * H) }
  replace { y = x.view(T * H) }
}
"""
    captured = post_grad(lambda x: (x.neg().neg().view(-1), x * 2), rows(), dynamic=False)
    assert rewritten(captured, rules(text), (rows(),)).counts == {"flat": 1}
    x = rows()
    assert captured.run([x])[0].data_ptr() != x.data_ptr()
