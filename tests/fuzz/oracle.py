"""What must hold of a rewritten graph: its values, its results, and all that it must not touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized,
    auto_functionalized_dense,
    auto_functionalized_v2,
    auto_functionalized_v2_dense,
)
from torch.utils._pytree import tree_flatten

from fusiondsl.graphs.opaque import OpaqueOp
from fusiondsl.ops import binding, references
from fusiondsl.ops.dispatch import reference_ops
from fusiondsl.ops.references.collectives import reference_world
from fusiondsl.verify.numerics import ulp_distance
from tests.engine.lab import same, shape_env, snapshot
from tests.fuzz.case import Finding
from tests.fuzz.unrounded import Unrounded, Wide, widened

SIZE = 7
"""What every symbol is when a graph runs."""
_CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
_BLOCK_SCALE = torch.float8_e8m0fnu

Compare = Callable[[Any, Any], None]


class CannotRun(Exception):
    """An operation of the graph refuses its arguments, or makes something else than its fake."""


def inputs(gm: fx.GraphModule, size: int = SIZE, small: bool = True) -> list[Any]:
    """Arguments for the placeholders, the same for the same placeholders."""
    generator = torch.Generator().manual_seed(3)
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    made = [_input(node, generator, size) for node in nodes]
    for value in made:
        if small and isinstance(value, Tensor) and value.dtype.is_floating_point:
            _shrink_rows(value)
    return made


def _shrink_rows(value: Tensor) -> None:
    """What is added to a mean square shows in rows that are small."""
    if value.dim() > 1:
        value.narrow(0, 0, (len(value) + 1) // 2).mul_(2**-8)


def has_gates(text: str) -> bool:
    """Behind a gate small rows are so small that lower bounds of scales count, which may differ."""
    return any(word in text for word in ("silu", "sigmoid", "gated", "aten.exp"))


def _input(node: fx.Node, generator: torch.Generator, size: int) -> Any:
    value = value_of(node)
    if isinstance(value, str):
        return value
    if not isinstance(value, Tensor):
        return whole(value, size)
    shape = [whole(length, size) for length in value.shape]
    stride = [whole(step, size) for step in value.stride()]
    if value.dtype == torch.bool:
        made = torch.randint(0, 2, shape, generator=generator).bool()
    elif value.dtype.is_floating_point:
        made = torch.randn(shape, generator=generator).to(value.dtype)
        if made.numel() == 1:  # a scale
            made = (made.float().abs() + 0.5).to(value.dtype)
    else:
        made = torch.randint(0, 3, shape, generator=generator).to(value.dtype)
    return torch.empty_strided(shape, stride, dtype=value.dtype).copy_(made)


def whole(value: Any, size: int = SIZE) -> int:
    """A size when the graph runs."""
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr.subs(dict.fromkeys(expr.free_symbols, size)))
    return int(value)


class _Recorder(fx.Interpreter):
    """Runs a graph and remembers what was sent to other ranks and to caches, in order."""

    def __init__(self, gm: fx.GraphModule, size: int) -> None:
        super().__init__(gm)
        self.size = size
        self.sent: list[Any] = []

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.op == "call_function" and "val" in n.meta:
            self._check_form(made, n.meta["val"], n)
        return made

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent = _SENT.get(str(target))
        if sent is not None:
            self.sent.append(sent(*args).clone())
        made = call(target, args, kwargs)
        if str(target).startswith(_FRESH):
            made.copy_(torch.ones(made.shape).to(made.dtype))  # else it is anything
        return made

    def _check_form(self, made: Any, value: Any, node: fx.Node) -> None:
        if isinstance(made, tuple | list):
            for one, fake in zip(made, value, strict=True):
                self._check_form(one, fake, node)
        elif isinstance(made, Tensor) and value is not None:  # a text leaves out what nobody reads
            shape, stride = (
                [whole(n, self.size) for n in of] for of in (value.shape, value.stride())
            )
            wanted = value.dtype, shape, stride
            assert (made.dtype, list(made.shape), list(made.stride())) == wanted, (node, wanted)


def call(target: Any, args: Any, kwargs: Any) -> Any:
    return _FUNCTIONALIZED.get(target, target)(*args, **kwargs)


# What they dispatch to takes plain tensors only.
_FUNCTIONALIZED: dict[Any, Callable[..., Any]] = {
    auto_functionalized: auto_functionalized_dense,
    auto_functionalized_v2: auto_functionalized_v2_dense,
}
_FRESH = ("aten.empty", "aten.new_empty")


def _act(x: Tensor, *_: Any) -> Tensor:
    done: Tensor = torch.ops.lab.act(x)
    return done


def _first(x: Tensor, *_: Any) -> Tensor:
    return x


_SENT: dict[str, Callable[..., Tensor]] = {
    "lab.reduce.default": _first,
    "twin.reduce.default": _first,
    "lab.reduce_norm.default": _first,
    "lab.reduce_norm_codes.default": _first,
    "lab.act_reduce.default": _act,
}


def run(
    gm: fx.GraphModule, size: int = SIZE, *, rounded: bool = True, small: bool = True
) -> tuple[Any, ...]:
    """Results, what is left of the inputs, and what was sent."""
    given = inputs(gm, size, small)
    if not rounded:
        given = [widened(value) for value in given]
    recorder = _Recorder(gm, size)
    try:
        with (
            torch.no_grad(),
            _surroundings(recorder.sent),
            nullcontext() if rounded else Unrounded(),  # type: ignore[no-untyped-call],
        ):
            result = recorder.run(*given)
    except Finding:
        raise
    except Exception as error:
        raise CannotRun(str(error)) from error
    return result, given, recorder.sent


@contextmanager
def _surroundings(sent: list[Any]) -> Iterator[None]:
    """Another rank, and caches of layers: what they get decides what they give."""
    caches: dict[str, tuple[Tensor, Tensor]] = {}

    def world(x: Tensor, group: str) -> Sequence[Tensor]:
        sent.append((group, x.clone()))
        return x, x.flip(-1) * 0.5

    def update(key: Tensor, value: Tensor, layer: Any) -> Tensor:
        name = getattr(layer, "name", layer)
        caches[name] = key.clone(), value.clone()
        sent.append((name, *caches[name]))
        return key.new_empty(0)

    def attend(
        query: Tensor, key: Any, value: Any, output: Tensor, layer: Any, done: Any
    ) -> Tensor:
        total = query.float().sum(-1, keepdim=True).expand(output.shape)
        cached = caches.get(getattr(layer, "name", layer))
        if cached is not None:
            keys, values = (rows.float().mean(1, keepdim=True) for rows in cached)
            total = total * keys.sum(-1, keepdim=True) + values.sum(-1, keepdim=True)
        return total.to(output.dtype)

    references.find("attention")  # loads them
    own = {"kv_cache_update": update, "attention": attend}
    replaced = mock.patch.dict(references._references, own)
    with reference_ops(), reference_world(world), replaced:
        yield


@contextmanager
def on(arch: str) -> Iterator[None]:
    """What `fp8` is, where no GPU says so."""
    with mock.patch.object(binding, "device_arch", return_value=arch):
        yield


# --- values --------------------------------------------------------------------------------------


def check_values(graph: fx.Graph) -> None:
    """`meta["val"]` of every call is what its operation gives for its arguments."""
    mode = next(
        value.fake_mode
        for node in graph.nodes
        if hasattr(value := node.meta.get("val"), "fake_mode")
    )
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if any(isinstance(arg, OpaqueOp) for arg in node.args):
            continue  # functionalised, and nothing known of it
        args, kwargs = fx.map_arg((node.args, node.kwargs), value_of)
        with mode:
            fresh = call(node.target, args, kwargs)
        same(fresh, node.meta["val"], node)


def value_of(node: fx.Node) -> Any:
    """What stands for a node in a call with fake values: an input without a value is a layer."""
    return node.meta.get("val", f"layer {node.name}")


def check_new(nodes: Sequence[fx.Node]) -> None:
    for node in nodes:
        assert "val" in node.meta, node
        assert "fusiondsl" in node.meta, node


def guards(graph: fx.Graph) -> Any:
    return snapshot(shape_env(graph))


# --- results -------------------------------------------------------------------------------------


def exactly(left: Any, right: Any) -> None:
    _each(left, right, _equal_bits)


def nearly(left: Any, right: Any) -> None:
    """Roundings moved: what is seen of a graph that was run in its own dtypes."""
    _each(left, right, _close)


def unrounded(left: Any, right: Any) -> None:
    """The same values but for the order of f64 operations, and the same codes."""
    _each(left, right, _equal_values)


def unrounded_rescaled(left: Any, right: Any) -> None:
    """As `unrounded`, where a spelling in the graph scales to 224 and an op to 240."""
    _each(left, right, _equal_but_for_the_largest_code)


def _each(left: Any, right: Any, compare: Callable[[Tensor, Tensor], None]) -> None:
    flat, _ = tree_flatten(left)
    others, _ = tree_flatten(right)
    assert len(flat) == len(others), (len(flat), len(others))
    for one, other in zip(flat, others, strict=True):
        if not isinstance(one, Tensor):
            assert one == other
            continue
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        compare(one, other)


def _bytes(value: Tensor) -> Tensor:
    return value.contiguous().view(torch.uint8)


def _equal_bits(one: Tensor, other: Tensor) -> None:
    assert torch.equal(_bytes(one), _bytes(other)), (one.float() - other.float()).abs().max()


# --- in f64 --------------------------------------------------------------------------------------

_F64 = 1e-8
"""The smallest effect that anything wrong has is that of 1e-6 beside a mean square of one."""


def _equal_values(one: Tensor, other: Tensor, factor: float = 1.0) -> None:
    if not isinstance(one, Wide) or not isinstance(other, Wide):
        _equal_bits(one, other)
        return
    torch.testing.assert_close(
        one.exact, factor * other.exact, rtol=_F64, atol=_absolute(other.exact, 1e-10),
        equal_nan=True,
    )  # fmt: skip


_FNUZ = (1.0, 240 / 224, 224 / 240)


def _equal_but_for_the_largest_code(one: Tensor, other: Tensor) -> None:
    if one.dtype == torch.float8_e4m3fnuz:
        fits = (_rescaled(one.double(), other.double(), factor) for factor in _FNUZ)
        assert any(fits), "no factor fits"
        return
    if not isinstance(one, Wide) or not isinstance(other, Wide) or one.dtype != torch.float32:
        _equal_values(one, other)
        return
    values = one.exact.flatten() / other.exact.flatten()
    ratio = float(values[values.isfinite()].nanmedian()) if values.numel() else 1.0
    _equal_values(one, other, min(_FNUZ, key=lambda factor: abs(factor - ratio)))


def _rescaled(one: Tensor, other: Tensor, factor: float) -> bool:
    """Both are rounded, each by half a step at most: 1/16 of a code, or of the smallest normal."""
    if factor == 1.0:
        return torch.equal(one, other)
    wanted = factor * other
    return bool(((one - wanted).abs() <= wanted.abs() / 8 + 2**-10).all())


# --- in the dtypes of the graph ------------------------------------------------------------------

_FLIPPED = 0.12
"""A value of bf16 is off by 2**-9 of itself and a code stands for 2**-4 of it: one in 16 or so is
on the other side of a boundary, and roundings may add up."""


def _close(one: Tensor, other: Tensor) -> None:
    if one.dtype in _CODES:
        _check_codes(one, other)
        return
    if one.dtype in (torch.uint8, _BLOCK_SCALE):
        flipped = int((_bytes(one) != _bytes(other)).sum())
        assert flipped <= max(2, _FLIPPED * one.numel()), flipped
        return
    torch.testing.assert_close(
        one.double(), other.double(), rtol=0.08, atol=_absolute(other.double(), 2**-5),
        equal_nan=True,
    )  # fmt: skip


def _check_codes(one: Tensor, other: Tensor) -> None:
    """Neighbouring codes, and few of those; all of them where the largest code is another."""
    left, right = one.double(), other.double()
    if one.dtype == torch.float8_e4m3fnuz and any(_beside(left, right, f) for f in _FNUZ[1:]):
        return
    assert torch.equal(left.isnan(), right.isnan())
    moved = ulp_distance(one, other)
    assert int((moved > 0).sum()) <= max(2, _FLIPPED * one.numel()), moved
    # A group of 32 codes has another power of two as its scale.
    assert int((moved > 1).sum()) <= max(32, _FLIPPED / 3 * one.numel()), moved


def _beside(one: Tensor, other: Tensor, factor: float) -> bool:
    wanted = factor * other
    return bool(((one - wanted).abs() <= wanted.abs() / 4 + 2**-9).all())


def _absolute(value: Tensor, share: float) -> float:
    finite = value[value.isfinite()]
    return share * float(finite.abs().max()) if finite.numel() else 0.0
