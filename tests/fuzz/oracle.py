"""What must hold of a rewritten graph: its values, its results, and all that it must not touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_flatten

from tests.engine.lab import same, shape_env, snapshot

SIZE = 7
"""What every symbol is when a graph runs."""
_CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
_BLOCK_SCALE = torch.float8_e8m0fnu

Compare = Callable[[Any, Any], None]


class CannotRun(Exception):
    """An operation of the graph refuses its arguments, or makes something else than its fake."""


def inputs(gm: fx.GraphModule) -> list[Any]:
    """Arguments for the placeholders, the same for the same graph."""
    generator = torch.Generator().manual_seed(3)
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return [_input(node.meta.get("val"), generator) for node in nodes]


def _input(value: Any, generator: torch.Generator) -> Any:
    if value is None:
        raise CannotRun("an input without a value, such as the name of a layer")
    if not isinstance(value, Tensor):
        return _size(value)
    shape = [_size(size) for size in value.shape]
    stride = [_size(step) for step in value.stride()]
    if value.dtype == torch.bool:
        made = torch.randint(0, 2, shape, generator=generator).bool()
    elif value.dtype.is_floating_point:
        made = torch.randn(shape, generator=generator).to(value.dtype)
        if made.numel() == 1:  # a scale
            made = (made.float().abs() + 0.5).to(value.dtype)
    else:
        made = torch.randint(0, 3, shape, generator=generator).to(value.dtype)
    return torch.empty_strided(shape, stride, dtype=value.dtype).copy_(made)


def _size(value: Any) -> int:
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr.subs(dict.fromkeys(expr.free_symbols, SIZE)))
    return int(value)


class _Recorder(fx.Interpreter):
    """Runs a graph and remembers what was sent to other ranks, in order."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.sent: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.op == "call_function" and "val" in n.meta:
            _check_form(made, n.meta["val"], n)
        return made

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent = _SENT.get(str(target))
        if sent is not None:
            self.sent.append(sent(*args).clone())
        made = super().call_function(target, args, kwargs)
        if str(target).startswith(_FRESH):
            made.copy_(torch.ones(made.shape).to(made.dtype))  # else it is anything
        return made


_FRESH = ("aten.empty", "aten.new_empty")


def _check_form(made: Any, value: Any, node: fx.Node) -> None:
    if isinstance(made, tuple | list):
        for one, fake in zip(made, value, strict=True):
            _check_form(one, fake, node)
    elif isinstance(made, Tensor):
        wanted = value.dtype, [*map(_size, value.shape)], [*map(_size, value.stride())]
        assert (made.dtype, list(made.shape), list(made.stride())) == wanted, (node, wanted)


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


def run(gm: fx.GraphModule) -> tuple[Any, ...]:
    """Results, what is left of the inputs, and what was sent."""
    given = inputs(gm)
    recorder = _Recorder(gm)
    try:
        with torch.no_grad():
            result = recorder.run(*given)
    except Exception as error:
        raise CannotRun(str(error)) from error
    return result, given, recorder.sent


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
        if any("val" not in source.meta for source in node.all_input_nodes):
            continue  # the name of a layer
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with mode:
            fresh = node.target(*args, **kwargs)
        same(fresh, node.meta["val"], node)


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
    """A rounding moved, or a code fell on the other side of a boundary; no other value."""
    _each(left, right, _close)


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


def _equal_bits(one: Tensor, other: Tensor) -> None:
    left, right = (value.contiguous().view(torch.uint8) for value in (one, other))
    assert torch.equal(left, right), (one.float() - other.float()).abs().max()


def _close(one: Tensor, other: Tensor) -> None:
    if one.dtype in _CODES:
        _check_codes(one.double(), other.double())
        return
    if one.dtype in (torch.uint8, _BLOCK_SCALE):
        left, right = (value.contiguous().view(torch.uint8) for value in (one, other))
        flipped = int((left != right).sum())
        assert flipped <= max(2, _FLIPPED * left.numel()), flipped
        return
    torch.testing.assert_close(
        one.double(), other.double(), rtol=0.08, atol=_absolute(other), equal_nan=True
    )


def _check_codes(one: Tensor, other: Tensor) -> None:
    """The same up to the largest code the scale was made for, and neighbouring codes."""
    known = one.isfinite() & other.isfinite()
    left, right = one[known], other[known]
    assert known.double().mean() > 1 - _FLIPPED or torch.equal(one.isnan(), other.isnan())
    if not right.any():
        assert not left.any()
        return
    fit = float((left * right).sum() / (right * right).sum())
    assert 0.85 < fit < 1.18, fit
    wrong = (left - fit * right).abs() > 0.14 * right.abs() + 2**-6
    assert int(wrong.sum()) <= max(2, _FLIPPED * left.numel()), int(wrong.sum())


_FLIPPED = 0.12


def _absolute(value: Tensor) -> float:
    finite = value.double()[value.double().isfinite()]
    return 2**-5 * float(finite.abs().max()) if finite.numel() else 0.0
