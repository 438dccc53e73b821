"""Several arguments that are parts of one base, in graphs as `torch.compile` makes them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2

from fusiondsl.engine import RefusalKind
from fusiondsl.engine.mutation import root_of
from fusiondsl.engine.regions import Region, box_of
from tests.engine.lab import (
    EPS,
    L,
    T,
    apply,
    apply_once,
    called,
    check_values,
    equal,
    refused,
    rows,
    rules,
    vector,
)
from tests.properties.graphs import (
    WIDTH,
    Built,
    Choose,
    aten,
    finish,
    inputs,
    noise,
    start,
)
from tests.properties.test_rewriting import CHECKS
from tests.support.capture import post_grad

RULES = """
rule merged(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm_into(x, r, w, eps); q, s = lab.group_codes(n, by) }
  replace { total = x + r; q, s = lab.norm_codes(total, w, eps, by) }
  allow { relayout: total }
}
rule kept(x: D[t.., H], r: D[t.., H], w: D[H], eps: float, by: int) {
  match { n, total = lab.add_norm_into(x, r, w, eps); q, s = lab.group_codes(n, by) }
  replace { total = x + r; n = lab.norm(total, w, eps); q, s = lab.group_codes(n, by) }
  allow { relayout: total; relayout: n }
  after merged
}
"""
MERGED = RULES.partition("rule kept")[0]
PART = 128

Function = Callable[[Tensor, Tensor], Any]


def halves(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), b + 1, c * 2)


def heads(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c = y.split([2 * PART, PART, PART], -1)
    L.add_norm_into(a.view(-1, 2, PART)[:, :1], b.view(-1, 1, PART), w, EPS)
    return (*L.group_codes(a[:, :PART], 32), a[:, PART:] + 1, b + 1, c * 2)


def stacked(x: Tensor, w: Tensor) -> Any:
    y = (x * 2).view(-1, 4, PART)
    a, b, c, d = y.unbind(1)
    L.add_norm_into(b, c, w, EPS)
    return (*L.group_codes(b, 32), a + 1, c + 1, d + 1)


def one_by_one(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c, d = y.split(PART, -1)
    L.add_norm_into(a, b, w, EPS)
    L.add_norm_into(b, c, w, EPS)
    return (*L.group_codes(a, 32), *L.group_codes(b, 32), c + 1, d + 1)


def read_elsewhere(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), a + b, c * 2)


def all_read(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), b + 1, c * 2, y.sum(-1))


def rows_of_both(x: Tensor, w: Tensor) -> Any:
    """What is put in the base is cut out of it along two dimensions."""
    y = x * 2
    a, b = y[1:3, :PART], y[3:5, :PART]
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), y.sum(-1))


def input_written(x: Tensor, w: Tensor) -> Any:
    a, b, c = x.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), b + 1, c * 2)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    ("function", "counts"),
    [
        (halves, {"merged": 1}),
        (heads, {"merged": 1}),
        (stacked, {"merged": 1}),
        (one_by_one, {"merged": 2}),
        (read_elsewhere, {"kept": 1}),
        (all_read, {"kept": 1}),
        (rows_of_both, {"kept": 1}),
        (input_written, {"kept": 1}),
    ],
)
def test_parts_of_one_base(function: Function, counts: dict[str, int], dynamic: bool) -> None:
    captured = post_grad(function, rows(), vector(PART), dynamic=dynamic)
    before, after = (rows(), vector(PART)), (rows(), vector(PART))
    expected = captured.run(before, T)
    applied = apply(captured, rules(MERGED if "merged" in counts else RULES))
    assert applied.counts == counts
    assert "add_norm_into" not in called(captured.gm.graph)
    assert equal(captured.run(after, T), expected)
    assert equal(before, after)


def test_the_rest_of_the_base_is_read_from_the_old_one() -> None:
    captured = post_grad(halves, rows(), vector(PART))
    assert apply(captured, rules(MERGED)).counts
    assert not any("scatter" in target for target in captured.targets())


def test_all_of_the_base_is_the_old_one_with_the_new_parts() -> None:
    captured = post_grad(all_read, rows(), vector(PART))
    apply(captured, rules(RULES))
    assert sum("slice_scatter" in target for target in captured.targets()) == 2


@pytest.mark.parametrize(
    ("function", "words"),
    [(all_read, ("n (getitem", "all of its base")), (read_elsewhere, ("n (getitem", "aten.add"))],
)
def test_what_else_reads_a_part_is_said_of_nodes_of_the_graph(
    function: Function, words: tuple[str, ...]
) -> None:
    captured = post_grad(function, rows(), vector(PART))
    known = {node.name for node in captured.gm.graph.nodes}
    before = str(captured.gm.graph)
    applied = apply(captured, rules(MERGED))
    refusal = refused(applied, "merged", RefusalKind.EXTRA_USER, *words)
    assert refusal.message.split(" is also used by ")[1].split()[0] in known
    assert str(captured.gm.graph) == before


def part_taken(x: Tensor, w: Tensor) -> Any:
    """The first call is replaced, so the second has no base to go back to."""
    y = x * 2
    a, b, c, d = y.split(PART, -1)
    L.add_norm_into(a, b, w, EPS)
    L.add_norm_into(c, d, w, EPS)
    return (*L.group_codes(a, 32), b + 1, c + 1, d + 1)


def test_a_call_whose_base_is_gone_stays_on_its_parts() -> None:
    captured = post_grad(part_taken, rows(), vector(PART))
    expected = captured.run((rows(), vector(PART)), T)
    assert apply(captured, rules(MERGED)).counts == {"merged": 1}
    assert equal(captured.run((rows(), vector(PART)), T), expected)
    (left,) = captured.gm.graph.find_nodes(op="call_function", target=auto_functionalized_v2)
    assert len(left.kwargs["_all_bases"]) == 2  # type: ignore[arg-type]
    args, kwargs = left.meta["eager_input_vals"]
    assert args == left.args
    assert kwargs.keys() == left.kwargs.keys()


READER = """
rule reader(n: D[t.., H], by: int) {
  match { q, s = lab.group_codes(n, by) }
  replace { q, s = lab.group_codes(lab.mix(n, [1]), by) }
  where { by == 32 }
  allow { relayout: q; relayout: s; unproved }
}
"""


def test_who_comes_to_read_a_part_reads_it_from_the_new_base() -> None:
    """The call stays, what reads it does not."""
    text = READER.replace("lab.group_codes(lab.mix(n, [1]), by)", "lab.group_codes(relu(n), by)")
    captured = post_grad(halves, rows(), vector(PART))
    compiled = rules(text)
    report = compiled.apply(captured.gm)
    captured.gm.graph.lint()
    check_values(captured.gm.graph)
    assert report.counts == {"reader": 1}
    (call,) = captured.gm.graph.find_nodes(op="call_function", target=auto_functionalized_v2)
    assert "_x_slice_dim" in call.kwargs
    got = captured.run((rows(), vector(PART)), T)
    y = rows() * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, vector(PART), EPS)
    assert equal(got[:2], L.group_codes(a.relu(), 32))
    assert equal(got[2:], (b + 1, c * 2))


def part_returned(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, w, EPS)
    return (*L.group_codes(a, 32), b, c * 2)


def test_who_read_a_part_reads_it_as_before_though_a_rule_has_changed_what_else_it_reads() -> None:
    text = READER.replace("lab.group_codes(lab.mix(n, [1]), by)", "lab.group_codes(relu(n), by)")
    captured = post_grad(part_returned, rows(), vector(PART))
    (before,) = captured.gm.graph.find_nodes(op="output")
    names = [str(node) for node in before.all_input_nodes]
    assert rules(text).apply(captured.gm).counts == {"reader": 1}
    captured.gm.graph.lint()
    after = [str(node) for node in before.all_input_nodes]
    assert after[2:] == names[2:]
    assert not captured.gm.graph.eliminate_dead_code()
    y = rows() * 2
    a, b, c = y.split([PART, PART, 2 * PART], -1)
    L.add_norm_into(a, b, vector(PART), EPS)
    got = captured.run((rows(), vector(PART)), T)
    assert equal(got, (*L.group_codes(a.relu(), 32), b, c * 2))


def test_what_an_out_op_returns_is_the_memory_it_writes() -> None:
    graph = fx.Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    added = graph.call_function(aten.add.out, (x, y), {"out": z})
    assert root_of(added) is z
    assert root_of(graph.call_function(aten.add_.Tensor, (x, y))) is x


# --- random graphs -------------------------------------------------------------------------------


def _part_of(choose: Choose, base: fx.Node, first: int) -> dict[str, Any]:
    ends = {"dim": 1, "start": first, "end": first + WIDTH}
    count = base.meta["val"].shape[0]
    if choose(2) or not isinstance(count, int):
        return {f"slice_{key}": end for key, end in ends.items()}
    stride = base.meta["val"].stride()
    return {"size": (count, WIDTH), "stride": tuple(stride), "storage_offset": first}


def _write(built: Built, choose: Choose, base: fx.Node, count: int) -> fx.Node:
    """A call on two parts of a base, which may be one, and the new base."""
    places = [choose(count), choose(count)]
    if places[0] == places[1] and choose(4):
        places[1] = (places[0] + 1) % count
    starts = [place * WIDTH + (WIDTH // 2 if not choose(12) else 0) for place in places]
    starts = [min(at, (count - 1) * WIDTH) for at in starts]
    said: dict[str, Any] = {}
    for name, at in zip("xr", starts, strict=True):
        part = _part_of(choose, base, at)
        said |= {f"_{name}_base_index": 0}
        said |= {f"_{name}_{key}": value for key, value in part.items()}
    weight = built.weights[choose(2)]
    call = built.call(
        auto_functionalized_v2,
        L.add_norm_into.default,
        w=weight,
        eps=EPS,
        **said,
        _all_bases=[base],
    )
    return built.call(operator.getitem, call, 1)


def _read(built: Built, choose: Choose, new: fx.Node, count: int, at: int) -> fx.Node:
    kind = choose(4)
    if kind == 0:
        items = built.call(aten.split_with_sizes.default, new, [WIDTH] * count, -1)
        return built.call(operator.getitem, items, at)
    if kind == 1:
        items = built.call(aten.split.Tensor, new, WIDTH, 1)
        return built.call(operator.getitem, items, at)
    if kind == 2:
        apart = built.call(aten.reshape.default, new, [-1, count, WIDTH])
        return built.call(aten.select.int, apart, 1, at)
    return built.call(aten.slice.Tensor, new, 1, at * WIDTH, (at + 1) * WIDTH)


def _readers(built: Built, choose: Choose, new: fx.Node, count: int, *, returned: bool) -> None:
    for at in range(count):
        if not choose(4):
            continue
        read = _read(built, choose, new, count, at)
        if not choose(3):
            built.results += built.items(
                built.call(L.group_codes.default, read, (16, 32)[choose(2)])
            )
        if choose(2):
            built.values.append(built.call(aten.mul.Tensor, read, 0.5))
        elif not choose(3):
            built.results.append(read if returned else built.call(aten.neg.default, read))
    if not choose(4):
        built.results.append(built.call(aten.mul.Tensor, new, 0.5))


def _run(gm: fx.GraphModule) -> Any:
    args = inputs()
    with torch.no_grad():
        return fx.Interpreter(gm).run(*args), args


@settings(CHECKS, max_examples=200)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_same_values_whatever_is_taken(numbers: Any, calls: int) -> None:
    choose: Choose = numbers.randrange
    built = start(bool(choose(2)))
    count = 2 + choose(3)
    base = built.call(aten.cat.default, [built.values[choose(2)] for _ in range(count)], 1)
    if not choose(3):
        noise(built, choose)
    written = None
    for _ in range(calls):
        new = _write(built, choose, base, count)
        # What a rule may lay out anew reaches no output through a second call.
        _readers(built, choose, new, count, returned=calls == 1)
        base = new if choose(3) else base
        written = new
    if not choose(4):
        assert written is not None
        flat = built.call(aten.slice.Tensor, written, 1, 0, WIDTH)
        built.call(aten.copy_.default, built.values[0], flat)
    gm = finish(built, choose)
    expected = _run(gm)
    before = str(gm.graph)
    compiled = rules((MERGED, RULES)[choose(2)])
    compiled.apply(gm, rewrite=False)
    assert str(gm.graph) == before
    applied = apply_once(gm, compiled)
    assert applied.report.fired or str(gm.graph) == before
    assert equal(_run(gm), expected), f"{before}\n{applied.report}\n{gm.graph}"
    check_values(gm.graph)


# --- regions -------------------------------------------------------------------------------------

MEMORY = torch.arange(4 * 6 * 5)
BASE = Region((4, 6, 5), (30, 5, 1), 0)


def _elements(region: Region) -> Tensor:
    return MEMORY.as_strided(region.sizes, region.strides, region.offset)  # type: ignore[arg-type]


@st.composite
def regions(draw: st.DrawFn) -> Region:
    region = BASE
    for _ in range(draw(st.integers(0, 3))):
        dim = draw(st.integers(0, len(region.sizes) - 1))
        total: Any = region.sizes[dim]
        first = draw(st.integers(0, total - 1))
        if len(region.sizes) > 1 and draw(st.booleans()):
            region = region.at(dim, first)
        else:
            region = region.cut(dim, first, draw(st.integers(1, total - first)))
    if draw(st.booleans()):
        size = MEMORY.as_strided(region.sizes, region.strides).numel()  # type: ignore[arg-type]
        inner = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        region = region.reshaped((size // inner, inner)) or region
    return region


@given(regions(), regions())
def test_what_is_said_of_regions_holds(left: Region, right: Region) -> None:
    ours, theirs = (set(_elements(r).flatten().tolist()) for r in (left, right))
    if left.is_apart_from(right):
        assert ours.isdisjoint(theirs)
    same = _elements(left).flatten().tolist() == _elements(right).flatten().tolist()
    assert left.has_elements_of(right) == same
    assert left.is_distinct()


@given(regions())
def test_a_box_is_what_a_region_shows(region: Region) -> None:
    cuts = box_of(region, BASE)
    if cuts is None:
        return
    shown = MEMORY.view(4, 6, 5)
    for cut in cuts:
        shown = shown.narrow(cut.dim, cut.start, cut.size)  # type: ignore[arg-type]
    assert shown.flatten().tolist() == _elements(region).flatten().tolist()


def test_parts_of_countare_told_apart() -> None:
    """A rotary embedding's queries and keys in rows of queries, keys and values."""
    query, key = (
        Region((7, 2, 64), (512, 64, 1), 0),
        Region((7, 1, 64), (512, 64, 1), 128),
    )
    assert query.is_apart_from(key)
    assert key.is_apart_from(query)
    assert not query.is_apart_from(Region((7, 1, 64), (512, 64, 1), 64))
    assert not query.is_apart_from(Region((7, 512), (512, 1), 0))
    assert box_of(key, Region((7, 512), (512, 1), 0)) is not None
