"""The interpreter of meanings: rounding, `~`, branches, calls of other ops, mutation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import decomposition

from fusiondsl.decl.primitives import PRIMITIVES as DECLARED
from fusiondsl.dims.expr import DType, Name
from fusiondsl.ir.program import Branch, Computed, Const, ListOf, OpDecl, Ref, Step, Unrounded
from fusiondsl.ops import axiom, primitives, reference
from fusiondsl.ops.context import Context
from fusiondsl.ops.errors import MissingKernelError
from tests.ops.build import F32, H, T, binary, call, fresh, op, param, program, result, tensor

X = param("x", tensor("D", T, H))
R = param("r", tensor("D", T, H))
Y = result("y", tensor("D", T, H))
EXACT = result("exact", tensor("f32", T, H))
D = Ref("D")


def run(decl: OpDecl, *args: Any, others: tuple[OpDecl, ...] = ()) -> dict[str, Any]:
    context = Context.of(program(decl, *others))
    return reference.run(decl, context, dict(zip((p.name for p in decl.params), args, strict=True)))


def values(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# --- `~` ---------------------------------------------------------------------------------------


def test_unrounded_is_the_value_before_the_cast() -> None:
    body: list[Step] = [
        call("prim.cast", "x", F32, to="xf"),
        call("prim.cast", "r", F32, to="rf"),
        call("prim.mul", "xf", "rf", to="p"),
        call("prim.cast", "p", D, to="y"),
        call("prim.cast", Unrounded("y"), F32, to="exact"),
    ]
    x, r = values(3, 8), values(3, 8, seed=1)
    out = run(op([X, R], [Y, EXACT], body), x, r)
    product = x.float() * r.float()
    assert torch.equal(out["exact"], product)
    assert torch.equal(out["y"], product.bfloat16())
    assert not torch.equal(out["exact"], out["y"].float())


def test_half_arithmetic_remembers_its_f32_result() -> None:
    body: list[Step] = [
        call("prim.mul", "x", "r", to="y"),
        call("prim.cast", Unrounded("y"), F32, to="exact"),
    ]
    x, r = values(3, 8), values(3, 8, seed=1)
    out = run(op([X, R], [Y, EXACT], body), x, r)
    assert torch.equal(out["y"], x * r)
    assert torch.equal(out["exact"], x.float() * r.float())


def test_views_keep_the_unrounded_value() -> None:
    body: list[Step] = [
        call("prim.mul", "x", 1.1, to="y"),
        call("prim.slice", "y", -1, None, 4, to="left"),
        call("prim.cat", ListOf((Ref("left"), Ref("left"))), -1, to="twice"),
        call("prim.slice", "twice", -1, 4, None, to="right"),
        call("prim.cast", Unrounded("left"), F32, to="a"),
        call("prim.cast", Unrounded("right"), F32, to="b"),
    ]
    results = [result("a", tensor("f32", "t", 4)), result("b", tensor("f32", "t", 4))]
    x = values(3, 8)
    out = run(op([X], results, body), x)
    assert torch.equal(out["a"], (x.float() * 1.1)[:, :4])
    assert torch.equal(out["b"], out["a"])


def test_a_widening_cast_has_no_rounding_to_skip() -> None:
    body: list[Step] = [
        call("prim.cast", "x", F32, to="wide"),
        call("prim.mul", Unrounded("wide"), 3.0, to="exact"),
    ]
    x = values(3, 8)
    assert torch.equal(run(op([X], [EXACT], body), x)["exact"], x.float() * 3.0)


def test_the_callee_of_an_unrounded_argument_still_rounds_its_own_results() -> None:
    """`D` is the dtype the types speak of, not the f32 of the unrounded value."""
    both = [Y, result("s", tensor("D", T, H))]
    inner = op(
        [X],
        both,
        [
            call("prim.cast", "x", F32, to="xf"),
            call("prim.mul", "xf", 3.0, to="m"),
            call("prim.cast", "m", D, to="y"),
            call("prim.cast", "x", D, to="s"),
        ],
    )
    body = [
        call("prim.mul", "x", "r", to="p"),
        call(inner.name, Unrounded("p"), to=("y", "s")),
    ]
    x, r = values(3, 8), values(3, 8, seed=1)
    out = run(op([X, R], both, [*body]), x, r, others=(inner,))
    product = x.float() * r.float()
    assert torch.equal(out["y"], (product * 3.0).bfloat16())
    assert torch.equal(out["s"], product.bfloat16())


def test_a_callees_results_carry_their_unrounded_value() -> None:
    inner = op([X], [Y], [call("prim.mul", "x", 1.1, to="y")])
    body: list[Step] = [
        call(inner.name, "x", to="m"),
        call("prim.cast", Unrounded("m"), F32, to="exact"),
    ]
    x = values(3, 8)
    out = run(op([X], [EXACT], body), x, others=(inner,))
    assert torch.equal(out["exact"], x.float() * 1.1)


def test_an_axiom_is_given_the_unrounded_value_and_rounds_to_its_declared_dtype() -> None:
    name = fresh("axiom")
    seen: list[torch.dtype] = []

    @axiom(name)
    def triple(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return x.float() * 3

    decl = op([X], [Y], name=name, axiom=True)
    body: list[Step] = [
        call("prim.mul", "x", 1.1, to="m"),
        call(name, Unrounded("m"), to="y"),
    ]
    x = values(3, 8)
    out = run(op([X], [Y], body), x, others=(decl,))
    assert seen == [torch.float32]
    assert torch.equal(out["y"], (x.float() * 1.1 * 3).bfloat16())


def test_an_axiom_without_reference_is_named() -> None:
    decl = op([X], [Y], axiom=True)
    with pytest.raises(MissingKernelError, match=decl.name):
        run(decl, values(3, 8))


# --- bodies ------------------------------------------------------------------------------------


def test_branches_scalars_and_dims() -> None:
    body: list[Step] = [
        Branch(
            Name("flag"),
            (call("prim.add", "x", "n", to="y"),),
            (call("prim.mul", "x", Computed(binary("//", H, 2)), to="y"),),
        )
    ]
    decl = op([X, param("n", "int", 5), param("flag", "bool", False)], [Y], body)
    x = torch.ones(2, 6)
    assert torch.equal(run(decl, x, 5, True)["y"], torch.full((2, 6), 6.0))
    assert torch.equal(run(decl, x, 5, False)["y"], torch.full((2, 6), 3.0))


def test_mutated_arguments_come_back_and_buffers_are_left_to_the_caller() -> None:
    acc = param("acc", tensor("D", T, H), kind="inout")
    decl = op([X, acc], [], [call("prim.add", "x", "acc", to="acc")])
    x, buffer = torch.ones(2, 3), torch.ones(2, 3)
    out = run(decl, x, buffer)
    assert torch.equal(out["acc"], torch.full((2, 3), 2.0))
    assert torch.equal(buffer, torch.ones(2, 3))


def test_sums_do_not_depend_on_the_order_of_addition() -> None:
    decl = op(
        [X],
        [result("m", tensor("f32", T)), result("s", tensor("f32", T))],
        [call("prim.mean", "x", -1, to="m"), call("prim.sum", "x", -1, to="s")],
    )
    x = values(4, 4096, dtype=torch.float32) * 100
    shuffled = x[:, torch.randperm(4096, generator=torch.Generator().manual_seed(3))]
    one, other = run(decl, x), run(decl, shuffled)
    assert torch.equal(one["m"], other["m"])
    assert torch.equal(one["s"], other["s"])


# --- primitives --------------------------------------------------------------------------------

PRIMITIVES: dict[str, tuple[tuple[Any, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "add": ((1.5,), lambda x: x + 1.5),
    "sub": ((1.5,), lambda x: x - 1.5),
    "mul": ((1.5,), lambda x: x * 1.5),
    "div": ((1.5,), lambda x: x / 1.5),
    "maximum": ((0.5,), lambda x: x.clamp(min=0.5)),
    "minimum": ((0.5,), lambda x: x.clamp(max=0.5)),
    "clamp_min": ((0.5,), lambda x: x.clamp(min=0.5)),
    "clamp_max": ((0.5,), lambda x: x.clamp(max=0.5)),
    "pow": ((2,), lambda x: x**2),
    "neg": ((), torch.neg),
    "abs": ((), torch.abs),
    "exp": ((), torch.exp),
    "exp2": ((), torch.exp2),
    "square": ((), torch.square),
    "sigmoid": ((), torch.sigmoid),
    "silu": ((), decomposition.silu),  # what a compiled graph computes
    "relu": ((), torch.relu),
    "tanh": ((), torch.tanh),
    "ceil": ((), torch.ceil),
    "floor": ((), torch.floor),
    "round_even": ((), torch.round),
    "reciprocal": ((), torch.reciprocal),
    "amax": ((-1,), lambda x: x.amax(-1)),
    "amin": ((-1,), lambda x: x.amin(-1)),
    "zeros_like": ((), torch.zeros_like),
    "pad": ((1, 2, 0.5), lambda x: torch.nn.functional.pad(x, (1, 2), value=0.5)),
    "view": ((ListOf((Const(2), Const(-1))),), lambda x: x.reshape(2, -1)),
    "slice": ((-2, 1, 3), lambda x: x[1:3]),
    "bitcast": ((Const(DType("u8")),), lambda x: x.view(torch.uint8)),
}


@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_primitives_are_torchs(name: str, dtype: torch.dtype) -> None:
    args, expected = PRIMITIVES[name]
    decl = op([X], [Y], [call(f"prim.{name}", "x", *args, to="y")])
    x = values(4, 6, dtype=dtype)
    out = run(decl, x)["y"]
    assert out.dtype == expected(x).dtype
    assert torch.equal(out, expected(x))


def test_every_primitive_has_an_implementation() -> None:
    known = {*primitives._ROUNDED, *primitives._MOVED, *primitives._OTHER}
    assert known == set(DECLARED)
