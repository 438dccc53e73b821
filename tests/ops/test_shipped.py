"""Every shipped op: `opcheck`, fake against reference, and AITER's numbers through its meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

import fusiondsl
from fusiondsl import ops
from fusiondsl.ir.program import OpDecl, TensorType
from fusiondsl.ops.context import Context
from fusiondsl.ops.references import find
from fusiondsl.verify.samples import Sample, sample_inputs

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "cases" / "numerics"

PROGRAM = fusiondsl.load(ROOT / "patterns").program
CONTEXT = Context.of(PROGRAM)
OWN = {name: decl for name, decl in PROGRAM.ops.items() if not decl.extern}

each_op = pytest.mark.parametrize("decl", OWN.values(), ids=OWN)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    ops.register(PROGRAM)


def function_of(decl: OpDecl) -> torch._ops.OpOverload:
    found = ops.overload(decl)
    assert found is not None
    return found


def rank_free(decl: OpDecl) -> list[str]:
    types = [p.type for p in decl.params if isinstance(p.type, TensorType)]
    return sorted({t.dims[0].name for t in types if t.rank_free})  # type: ignore[union-attr]


def samples(decl: OpDecl) -> list[Sample]:
    """Two dims everywhere, also one row and none; three dims where the type is rank-free."""
    made = [sample_inputs(decl, CONTEXT)]
    if "t" in rank_free(decl):
        made.append(sample_inputs(decl, CONTEXT, fixed={"t": (2, 5)}))
        made.extend(sample_inputs(decl, CONTEXT, fixed={"t": (rows,)}) for rows in (1, 0))
    elif "T" in made[0].values:
        made.extend(sample_inputs(decl, CONTEXT, fixed={"T": rows}) for rows in (1, 0))
    return made


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def describe(results: Any) -> list[Any]:
    return [(r.dtype, tuple(r.shape), r.stride()) for r in as_tuple(results)]


@each_op
def test_opcheck(decl: OpDecl) -> None:
    for sample in samples(decl):
        torch.library.opcheck(function_of(decl), sample.positional(decl))


@each_op
def test_the_fake_says_what_the_reference_returns(decl: OpDecl) -> None:
    function = function_of(decl)
    for sample in samples(decl):
        args = sample.positional(decl)
        real = describe(function(*args))
        with FakeTensorMode() as mode:
            fake_args = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
            assert describe(function(*fake_args)) == real


@each_op
def test_symbolic_sizes_hold_for_the_reference_and_add_no_guard(decl: OpDecl) -> None:
    function = function_of(decl)
    args = sample_inputs(decl, CONTEXT).positional(decl)
    real = describe(function(*args))
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    fakes = [symbolic(mode, f"a{i}", a) for i, a in enumerate(args)]
    with mode:
        results = as_tuple(function(*fakes))
    assert not env.guards
    assert not env.replacements
    assert not env.deferred_runtime_asserts
    hinted = [(r.dtype, tuple(map(hint, r.shape)), tuple(map(hint, r.stride()))) for r in results]
    assert hinted == real


def symbolic(mode: FakeTensorMode, name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * value.dim())
    return mode.from_tensor(value, symbolic_context=context, source=ConstantSource(name))


def hint(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size


@each_op
def test_axioms_have_a_reference(decl: OpDecl) -> None:
    assert not decl.axiom or find(decl.name) is not None
    assert decl.axiom or decl.means is not None


@each_op
def test_a_reference_ignores_the_layout_of_its_inputs(decl: OpDecl) -> None:
    function = function_of(decl)
    args = sample_inputs(decl, CONTEXT).positional(decl)
    spread_out = [strided(a) if isinstance(a, torch.Tensor) else a for a in args]
    for one, other in zip(as_tuple(function(*args)), as_tuple(function(*spread_out)), strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        assert one.stride() == other.stride()


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same values with every dimension's stride doubled."""
    buffer = torch.zeros([2 * size for size in x.shape], dtype=x.dtype)
    view = buffer[tuple(slice(None, None, 2) for _ in x.shape)]
    view.copy_(x)
    return view


# --- AITER's kernels ---------------------------------------------------------------------------


def case(path: Path) -> dict[str, torch.Tensor]:
    with np.load(path) as data:
        return {name: torch.from_numpy(np.asarray(data[name])) for name in data}


@pytest.mark.parametrize("path", sorted(CASES.glob("silu_mul_*.npz")), ids=lambda p: p.stem)
def test_silu_mul_mxfp4_quant_is_aiters(path: Path) -> None:
    data = case(path)
    function = function_of(OWN["aiter.silu_mul_mxfp4_quant"])
    codes, scales = function(data["x"].half())
    assert torch.equal(codes, data["codes"])
    assert torch.equal(scales, data["scales"])


@pytest.mark.parametrize("path", sorted(CASES.glob("add_rms_norm_*.npz")), ids=lambda p: p.stem)
def test_add_rms_norm_mxfp4_quant_is_aiters(path: Path) -> None:
    data = case(path)
    decl = OWN["aiter.add_rms_norm_mxfp4_quant"]
    x, residual, weight = (data[name].half() for name in ("x", "residual", "weight"))
    results = function_of(decl)(x, residual, weight, float(data["eps"]))
    named = dict(zip((r.name for r in decl.results), results, strict=True))
    assert torch.equal(named["codes"], data["codes"])
    assert torch.equal(named["scales"], data["scales"])
    assert torch.equal(named["residual_out"].float(), data["residual_out"])


@pytest.mark.parametrize("path", sorted(CASES.glob("add_rms_norm_*.npz")), ids=lambda p: p.stem)
def test_the_rounded_norm_is_aiters(path: Path) -> None:
    """`normed` is no result of the op, so it is read from the run of its meaning."""
    data = case(path)
    decl = OWN["aiter.add_rms_norm_mxfp4_quant"]
    x, residual, weight = (data[name].half() for name in ("x", "residual", "weight"))
    arguments = {"x": x, "residual": residual, "weight": weight, "eps": float(data["eps"])}
    values = ops.reference.values(decl, CONTEXT, arguments)
    assert torch.equal(values["normed"].float(), data["normed"])
