"""Torch ops of the engine tests, and helpers that apply rules and check every invariant."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch.utils._pytree import tree_flatten

import fusiondsl
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Refusal, RefusalKind, Report
from fusiondsl.rules import load_source
from tests.support.capture import Captured

CASES = Path(__file__).parents[1] / "cases" / "engine"
LAB = (CASES / "lab.fuse").read_text()
FN, FNUZ, E8M0 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e8m0fnu
F32, BF16 = torch.float32, torch.bfloat16
T, H, EPS = 7, 512, 1e-6

# --- what the ops compute ------------------------------------------------------------------------


def norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    f = x.contiguous().float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps) * w).to(x.dtype)


def add_norm(x: Tensor, r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = (x + r).contiguous()
    return norm(total, w, eps), total


def group_codes(
    x: Tensor, group: int, pow2: bool = False, by_column: bool = False, dtype: torch.dtype = FN
) -> tuple[Tensor, Tensor]:
    blocks = x.contiguous().float().unflatten(-1, (-1, group))
    scale = (blocks.abs().amax(-1) / torch.finfo(dtype).max).clamp_min(1e-10)
    if pow2:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    codes = (blocks / scale.unsqueeze(-1)).flatten(-2).to(dtype)
    return codes, (scale.t().contiguous().t() if by_column else scale)


def mx_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    codes, scale = group_codes(x, 32, pow2=True)
    return codes, scale.to(E8M0)


def reduce(x: Tensor, group: str) -> Tensor:
    return x.contiguous() * 2


def act(x: Tensor) -> Tensor:
    return x.contiguous().relu()


def other(x: Tensor) -> Tensor:
    return x.contiguous() * 3


def mix(
    x: Tensor,
    parts: list[int],
    bias: Tensor | None = None,
    gain: float = 1.0,
    exact: bool = False,
) -> Tensor:
    total = x.contiguous() * gain * sum(parts)
    return total.clone() if bias is None else total + bias


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.contiguous().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def norm_into(dest: Tensor, x: Tensor, w: Tensor, eps: float) -> None:
    dest.copy_(norm(x, w, eps))


def add_norm_into(x: Tensor, r: Tensor, w: Tensor, eps: float) -> None:
    y, total = add_norm(x, r, w, eps)
    x.copy_(y)
    r.copy_(total)


def bump(x: Tensor, by: float) -> None:
    x.add_(by)


def norm_codes_into(
    codes: Tensor, scale: Tensor, x: Tensor, w: Tensor, eps: float, group: int
) -> None:
    q, s = group_codes(norm(x, w, eps), group)
    codes.copy_(q)
    scale.copy_(s)


def act_bump(x: Tensor, by: float) -> None:
    x.relu_().add_(by)


def act_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return act(a), b.contiguous() + act(a)


def _codes_like(x: Tensor, group: int, dtype: torch.dtype = FN) -> tuple[Tensor, Tensor]:
    scale = x.new_empty(*x.shape[:-1], x.shape[-1] // group, dtype=F32)
    return x.new_empty(x.shape, dtype=dtype), scale


def _like(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _codes_fake(
    x: Tensor, group: int, pow2: bool = False, by_column: bool = False
) -> tuple[Tensor, Tensor]:
    codes, scale = _codes_like(x, group)
    if by_column:
        scale = x.new_empty(x.shape[1] // group, x.shape[0], dtype=F32).t()
    return codes, scale


def _mx_like(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=FN), x.new_empty(*x.shape[:-1], x.shape[-1] // 32, dtype=E8M0)


def _flat(x: Tensor, r: Tensor, w: Tensor, eps: float, group: int) -> tuple[Tensor, Tensor, Tensor]:
    assert x.dim() == r.dim() == 2
    y, total = add_norm(x, r, w, eps)
    return (*group_codes(y, group), total)


def _flat_fake(
    x: Tensor, r: Tensor, w: Tensor, eps: float, group: int
) -> tuple[Tensor, Tensor, Tensor]:
    assert x.dim() == r.dim() == 2
    return (*_codes_like(x, group), _like(x))


def _add_norm_codes(
    x: Tensor, r: Tensor, w: Tensor, eps: float, group: int
) -> tuple[Tensor, Tensor, Tensor]:
    y, total = add_norm(x, r, w, eps)
    return (*group_codes(y, group), total)


def _norm_codes_keep(x: Tensor, w: Tensor, eps: float, group: int) -> tuple[Tensor, Tensor, Tensor]:
    y = norm(x, w, eps)
    return (*group_codes(y, group), y)


def _group_max(x: Tensor, group: int) -> Tensor:
    return x.unflatten(-1, (-1, group)).float().abs().amax(-1)


def _nothing(*_: Any) -> None:
    return None


def sum_to(x: Tensor, r: Tensor, *, dest: Tensor) -> Tensor:
    return dest.copy_(x + r)


def pair_to(x: Tensor, *, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    return low.copy_(x.relu()), high.copy_((-x).relu())


Impl = Callable[..., Any]
OPS: list[tuple[str, Impl, Impl]] = [
    ("norm(Tensor x, Tensor w, float eps) -> Tensor", norm, _like),
    (
        "add_norm(Tensor x, Tensor r, Tensor w, float eps) -> (Tensor, Tensor)",
        add_norm,
        lambda x, r, w, eps: (_like(x), _like(x)),
    ),
    (
        (
            "group_codes(Tensor x, int group, bool pow2=False, bool by_column=False)"
            " -> (Tensor, Tensor)"
        ),
        group_codes,
        _codes_fake,
    ),
    ("mx_codes(Tensor x) -> (Tensor, Tensor)", mx_codes, _mx_like),
    ("reduce(Tensor x, str group) -> Tensor", reduce, _like),
    ("norm_into(Tensor(a!) dest, Tensor x, Tensor w, float eps) -> ()", norm_into, _nothing),
    (
        "add_norm_into(Tensor(a!) x, Tensor(b!) r, Tensor w, float eps) -> ()",
        add_norm_into,
        _nothing,
    ),
    ("bump(Tensor(a!) x, float by) -> ()", bump, _nothing),
    ("act(Tensor x) -> Tensor", act, _like),
    ("other(Tensor x) -> Tensor", other, _like),
    (
        (
            "mix(Tensor x, int[] parts, Tensor? bias=None, float gain=1.0, bool exact=False)"
            " -> Tensor"
        ),
        mix,
        lambda x, parts, bias=None, gain=1.0, exact=False: _like(x),
    ),
    ("turn(Tensor x, Tensor cos, Tensor sin) -> Tensor", turn, _like),
    (
        "norm_codes(Tensor x, Tensor w, float eps, int group) -> (Tensor, Tensor)",
        lambda x, w, eps, group: group_codes(norm(x, w, eps), group),
        lambda x, w, eps, group: _codes_like(x, group),
    ),
    (
        "norm_codes_z(Tensor x, Tensor w, float eps, int group) -> (Tensor, Tensor)",
        lambda x, w, eps, group: group_codes(norm(x, w, eps), group, dtype=FNUZ),
        lambda x, w, eps, group: _codes_like(x, group, FNUZ),
    ),
    (
        "gemma_codes(Tensor x, Tensor w, float eps, int group) -> (Tensor, Tensor)",
        lambda x, w, eps, group: group_codes(norm(x, w.float() + 1.0, eps), group),
        lambda x, w, eps, group: _codes_like(x, group),
    ),
    (
        "norm_codes_keep(Tensor x, Tensor w, float eps, int group) -> (Tensor, Tensor, Tensor)",
        _norm_codes_keep,
        lambda x, w, eps, group: (*_codes_like(x, group), _like(x)),
    ),
    (
        (
            "add_norm_codes(Tensor x, Tensor r, Tensor w, float eps, int group)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        _add_norm_codes,
        lambda x, r, w, eps, group: (*_codes_like(x, group), _like(x)),
    ),
    (
        (
            "flat_add_norm_codes(Tensor x, Tensor r, Tensor w, float eps, int group)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        _flat,
        _flat_fake,
    ),
    (
        "norm_mx(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)",
        lambda x, w, eps: mx_codes(norm(x, w, eps)),
        _mx_like,
    ),
    (
        "reduce_norm(Tensor x, Tensor w, float eps, str group) -> Tensor",
        lambda x, w, eps, group: norm(reduce(x, group), w, eps),
        _like,
    ),
    (
        "reduce_norm_codes(Tensor x, Tensor w, float eps, int by, str group) -> (Tensor, Tensor)",
        lambda x, w, eps, by, group: group_codes(norm(reduce(x, group), w, eps), by),
        lambda x, w, eps, by, group: _codes_like(x, by),
    ),
    (
        (
            "norm_codes_into(Tensor(a!) codes, Tensor(b!) scale, Tensor x, Tensor w, float eps,"
            " int group) -> ()"
        ),
        norm_codes_into,
        _nothing,
    ),
    ("act_sum(Tensor a, Tensor b) -> (Tensor, Tensor)", act_sum, lambda a, b: (_like(a), _like(b))),
    (
        "act_reduce(Tensor a, str group) -> (Tensor, Tensor)",
        lambda a, group: (act(a), reduce(act(a), group)),
        lambda a, group: (_like(a), _like(a)),
    ),
    ("act_bump(Tensor(a!) x, float by) -> ()", act_bump, _nothing),
    (
        "group_max(Tensor x, int group) -> Tensor",
        _group_max,
        lambda x, group: x.new_empty(x.shape[0], x.shape[1] // group, dtype=F32),
    ),
    ("twice(Tensor x) -> Tensor", lambda x: other(act(x)), _like),
    (
        "sum.to(Tensor x, Tensor r, *, Tensor(a!) dest) -> Tensor(a!)",
        sum_to,
        lambda x, r, *, dest: dest,
    ),
    (
        "pair.to(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))",
        pair_to,
        lambda x, *, low, high: (low, high),
    ),
    ("bump_(Tensor(a!) x, float by) -> Tensor(a!)", Tensor.add_, lambda x, by: x),
]

_library = torch.library.Library("lab", "FRAGMENT")


@cache
def _register() -> None:
    for schema, implementation, fake in OPS:
        name = schema.partition("(")[0]
        _library.define(schema, tags=(torch.Tag.needs_exact_strides, *_tags(name)))
        _library.impl(name, implementation, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lab::{name}", fake, lib=_library)


def _tags(name: str) -> Iterator[torch.Tag]:
    """What the newest torch wants to be told of ops that return what they write."""
    kind = "out" if name.endswith(".to") else "inplace" if name.endswith("_") else ""
    tag = getattr(torch.Tag, kind, None)
    if tag is not None:
        yield tag


_register()
L = torch.ops.lab


# --- rules ---------------------------------------------------------------------------------------


@cache
def rules(text: str, **target: Any) -> CompiledRules:
    """Rules over the lab's ops, compiled for a target that has what they need."""
    return load_source(LAB + text).compile(fusiondsl.Target(**target))


def rule_file(name: str) -> str:
    return (CASES / name).read_text()


# --- applying, with every invariant checked ------------------------------------------------------


@dataclass(frozen=True)
class Applied:
    report: Report
    graph: fx.Graph

    @property
    def counts(self) -> dict[str, int]:
        return self.report.counts

    def refusal(self, rule: str) -> Refusal:
        """The refusal that came closest to firing."""
        found = self.report.refusals_of(rule)
        assert found, f"{rule} has no refusal: {self.report}"
        return max(found, key=lambda refusal: refusal.matched)

    def calls(self, name: str = "") -> list[str]:
        return [n for n in called(self.graph) if name in n]


def called(graph: fx.Graph) -> list[str]:
    """Names of lab ops the graph calls, functionalised ones included."""
    names = []
    for node in graph.nodes:
        targets = (node.target, *node.args[:1]) if node.op == "call_function" else ()
        for target in targets:
            if isinstance(target, torch._ops.OpOverload) and target.namespace == "lab":
                names.append(target._schema.name.partition("::")[2])
    return names


def apply(
    captured: Captured | fx.GraphModule, compiled: CompiledRules, tokens: range | None = None
) -> Applied:
    """Applies rules and checks what must hold after any `apply`."""
    gm = captured.gm if isinstance(captured, Captured) else captured
    before, old = snapshot(shape_env(gm.graph)), set(gm.graph.nodes)
    dry = compiled.apply(gm, tokens=tokens, rewrite=False)
    assert snapshot(shape_env(gm.graph)) == before
    assert old == set(gm.graph.nodes)
    applied = apply_once(gm, compiled, tokens)
    # A dry run does not see chains.
    assert dry.counts.keys() <= applied.counts.keys()
    check_values(gm.graph)
    again = str(gm.graph)
    assert not compiled.apply(gm, tokens=tokens).fired
    assert str(gm.graph) == again
    return applied


def apply_once(gm: fx.GraphModule, compiled: CompiledRules, tokens: range | None = None) -> Applied:
    """Applies rules; the checks that cost little."""
    env = shape_env(gm.graph)
    before, old = snapshot(env), set(gm.graph.nodes)
    report = compiled.apply(gm, tokens=tokens)
    assert snapshot(env) == before, "the ShapeEnv has changed"
    gm.graph.lint()
    check_metadata([n for n in gm.graph.nodes if n not in old])
    return Applied(report, gm.graph)


def shape_env(graph: fx.Graph) -> Any:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and hasattr(value, "fake_mode"):
            return value.fake_mode.shape_env
    return None


def snapshot(env: Any) -> Any:
    """All a `ShapeEnv` has decided so far."""
    if env is None:
        return None
    return (
        [str(guard.expr) for guard in env.guards],
        {str(k): str(v) for k, v in env.var_to_range.items()},
        {str(k): str(v) for k, v in env.replacements.items()},
        {str(k): [str(a) for a in v] for k, v in env.deferred_runtime_asserts.items()},
        len(env.divisible),
    )


def check_values(graph: fx.Graph) -> None:
    """`meta["val"]` of every node is what its operation gives for its arguments."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        if value is None:
            assert not node.target._schema.returns, f"{node} has no value"
            continue
        if node.target is auto_functionalized or "auto_functionalized" in str(node.target):
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        if node.target is operator.getitem:
            same(args[0][args[1]], value, node)
            continue
        mode = _mode(graph)
        env = mode.shape_env
        known = snapshot(env)
        with mode:
            fresh = node.target(*args, **kwargs)
        assert snapshot(env) == known
        same(fresh, value, node)


def _mode(graph: fx.Graph) -> Any:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and hasattr(value, "fake_mode"):
            return value.fake_mode
    raise AssertionError("no fake value")


def same(fresh: Any, value: Any, node: fx.Node) -> None:
    if isinstance(value, (tuple, list)):
        assert isinstance(fresh, (tuple, list)), node
        assert len(fresh) == len(value), node
        for a, b in zip(fresh, value, strict=True):
            same(a, b, node)
    elif isinstance(value, Tensor):
        assert isinstance(fresh, Tensor), node
        assert fresh.dtype == value.dtype, node
        assert str(fresh.shape) == str(value.shape), node
        assert str(fresh.stride()) == str(value.stride()), node
        assert fresh.device == value.device, node


def check_metadata(new: Sequence[fx.Node]) -> None:
    for node in new:
        assert "val" in node.meta, node
        assert "fusiondsl" in node.meta, node
        target = node.args[0] if node.target is auto_functionalized else node.target
        if isinstance(target, torch._ops.OpOverload) and target.namespace == "lab":
            check_eager_inputs(node)


def check_eager_inputs(node: fx.Node) -> None:
    """`eager_input_vals` are the values of the node's own arguments."""
    args, kwargs = node.meta["eager_input_vals"]
    given = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    assert _leaves((args, kwargs)) == _leaves(given), node


def _leaves(item: Any) -> list[Any]:
    leaves, _ = tree_flatten(item)
    return [
        (str(v.shape), str(v.stride()), v.dtype, str(v.device)) if isinstance(v, Tensor) else str(v)
        for v in leaves
    ]


# --- comparing -----------------------------------------------------------------------------------


def equal(left: Any, right: Any) -> bool:
    """Bit for bit the same, strides included."""
    flat, _ = tree_flatten(left)
    others, _ = tree_flatten(right)
    return bool(len(flat) == len(others)) and all(map(_equal, flat, others))


def _equal(left: Any, right: Any) -> bool:
    if not isinstance(left, Tensor):
        return bool(left == right)
    if left.dtype != right.dtype or left.shape != right.shape or left.stride() != right.stride():
        return False
    if left.dtype in (FN, FNUZ, E8M0):
        left, right = left.view(torch.uint8), right.view(torch.uint8)
    return torch.equal(left, right)


def rewritten(
    captured: Captured,
    compiled: CompiledRules,
    args: Sequence[Tensor],
    tokens: range | None = None,
    *,
    given: int | None = None,
) -> Applied:
    """Applies, and runs the graph before and after on the same arguments."""
    expected = captured.run([a.clone() for a in args], given)
    applied = apply(captured, compiled, tokens)
    assert equal(captured.run([a.clone() for a in args], given), expected)
    return applied


def refused(applied: Applied, rule: str, kind: RefusalKind, *words: str) -> Refusal:
    """The rule did not fire, for this reason, and says who is to blame."""
    assert rule not in applied.counts
    refusal = applied.refusal(rule)
    assert refusal.kind is kind, str(refusal)
    for word in words:
        assert word in refusal.message, str(refusal)
    return refusal


def rows(tokens: int = T, width: int = H, salt: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * salt + tokens)
    return torch.randn(tokens, width, generator=generator).to(dtype)


def vector(width: int = H, salt: int = 99, dtype: torch.dtype = BF16) -> Tensor:
    return rows(1, width, salt).flatten().to(dtype)
