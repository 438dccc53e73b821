"""An op refuses what its `where` refuses: before its kernel, in the reference, inside a meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import fusiondsl
from fusiondsl.ops import reference, reference_ops
from fusiondsl.ops.context import Context
from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.registry import register

TEXT = """
import "fusiondsl:ops/quant_fp8.fuse"

extern predicate answered(n: int)

dtypes half = (bf16, f16)
table widest(dtype, kind) {
  (half, "wide")   = 64
  (f32, _)         = 32
  (_, "narrow")    = 8
}

op conditions.even(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = neg(x) }
  where { even: H % 2 == 0 }
}
op conditions.outer(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = relu(conditions.even(x)) }
}
op conditions.quant(x: D[t.., H]) -> (q: f8e4m3fn[t.., H], s: f32[t.., H // 32]) {
  means { q, s = fp8_group_quant(x, 32, f8e4m3fn) }
}
op conditions.kernel(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = neg(x) }
  where { even: H % 2 == 0 }
  impl "refusing_kernels:neg"(x) -> y
}
op conditions.power(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = neg(x) }
  where { power: is_pow2(H) }
}
op conditions.table(x: D[t.., H], kind: str) -> (y: D[t.., H]) {
  means { y = neg(x) }
  where { width: H <= widest(D, kind) }
}
op conditions.asked(x: D[t.., H]) -> (y: D[t.., H]) {
  means { y = neg(x) }
  where { asked: answered(H); wide: H > 2 }
}
"""
PROGRAM = fusiondsl.load_source(TEXT).program


@pytest.fixture(autouse=True)
def _registered() -> None:
    register(PROGRAM)


def op(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(torch.ops.fusiondsl, f"conditions_{name}")
    return found


def rows(width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2, width, dtype=dtype)


def refused(call: Callable[[], Any]) -> str:
    with reference_ops(), pytest.raises(ArgumentError) as caught:
        call()
    return str(caught.value)


def test_the_reference_of_an_op() -> None:
    message = "fusiondsl::conditions_even: condition `even` (H % 2 == 0) does not hold"
    assert refused(lambda: op("even")(rows(3))) == message
    arguments = {"x": rows(3)}
    with pytest.raises(ArgumentError, match="does not hold"):
        reference.run(PROGRAM.ops["conditions.even"], Context.of(PROGRAM), arguments)


def test_an_op_inside_a_meaning() -> None:
    message = "fusiondsl::conditions_even: condition `even` (H % 2 == 0) does not hold"
    assert refused(lambda: op("outer")(rows(3))) == message
    with reference_ops():
        assert torch.equal(op("outer")(rows(4)), torch.zeros(2, 4))


def test_an_axiom_inside_a_meaning() -> None:
    assert refused(lambda: op("quant")(rows(33))) == (
        "fusiondsl::fp8_group_quant: condition `divides` (H % group_size == 0) does not hold"
    )


def test_the_kernel_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[torch.Size] = []
    module = ModuleType("refusing_kernels")
    module.neg = lambda x: called.append(x.shape) or -x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "refusing_kernels", module)
    assert "does not hold" in refused(lambda: op("kernel")(rows(3)))
    assert not called
    assert torch.equal(op("kernel")(rows(4)), -rows(4))
    assert called == [(2, 4)]


def test_functions_of_arguments_are_decided() -> None:
    assert "condition `power` (is_pow2(H)) does not hold" in refused(lambda: op("power")(rows(6)))
    with reference_ops():
        assert op("power")(rows(8)).shape == (2, 8)


@pytest.mark.parametrize(
    ("dtype", "kind", "widest"),
    [
        (torch.bfloat16, "wide", 64),
        (torch.bfloat16, "narrow", 8),
        (torch.float32, "narrow", 32),
        (torch.float64, "narrow", 8),
    ],
)
def test_tables_are_decided(dtype: torch.dtype, kind: str, widest: int) -> None:
    with reference_ops():
        assert op("table")(rows(widest, dtype), kind).shape == (2, widest)
    message = refused(lambda: op("table")(rows(widest + 1, dtype), kind))
    assert "condition `width` (H <= widest(D, kind)) does not hold" in message


def test_what_a_call_cannot_know_was_asked_when_the_rule_was_applied() -> None:
    with reference_ops():
        assert op("asked")(rows(4)).shape == (2, 4)
        assert op("table")(rows(4, torch.float64), "no row").shape == (2, 4)
    assert "condition `wide` (H > 2) does not hold" in refused(lambda: op("asked")(rows(2)))
