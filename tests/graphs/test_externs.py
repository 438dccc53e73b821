"""Ops that are declared but not installed: defined on request, and only those."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from fusiondsl.dims.expr import Binary, Literal, Name, Spread
from fusiondsl.graphs import read
from fusiondsl.graphs.externs import define_missing
from fusiondsl.ir.program import OpDecl, Param, Program, Result, TensorType
from tests.graphs.test_reader import body, node

ROWS = TensorType("D", (Spread("t"), Name("N")))
WIDE = TensorType("D", (Spread("t"), Binary("*", Literal(2), Name("N"))))


def extern(name: str, overload: str, params: tuple[Param, ...], *results: Result) -> OpDecl:
    empty: tuple[()] = ()
    return OpDecl(
        name, True, overload, params, results, None, False, *(empty, empty, empty, empty, empty), ()
    )


def program(*ops: OpDecl) -> Program:
    return Program({f"{op.name}.{op.overload}": op for op in ops}, (), {}, {}, {})


HALVE = extern("graphs_extern.halve", "gpu", (Param("x", WIDE),), Result("y", ROWS))
FILL = extern("graphs_extern.fill", "default", (Param("out", ROWS, "out"), Param("x", ROWS)))
NEG = extern("aten.neg", "default", (Param("self", ROWS),), Result("y", WIDE))
OURS = extern("aten.never_was", "default", (Param("self", ROWS),), Result("y", ROWS))


def test_defined_once_with_a_fake() -> None:
    assert define_missing(program(HALVE, FILL)) == (
        "graphs_extern::halve.gpu",
        "graphs_extern::fill",
    )
    assert define_missing(program(HALVE, FILL)) == ()
    schema = str(torch.ops.graphs_extern.fill.default._schema)
    assert schema == "graphs_extern::fill(Tensor(a0!) out, Tensor x) -> ()"
    with torch.device("meta"):
        assert torch.ops.graphs_extern.halve.gpu(torch.empty(3, 8)).shape == (3, 4)


def test_existing_ops_and_torchs_own_are_never_touched() -> None:
    assert define_missing(program(NEG, OURS)) == ()
    assert torch.ops.aten.neg(torch.ones(2)).tolist() == [-1.0, -1.0]


def test_read_with_declarations() -> None:
    text = body(
        'y: "f32[s0, 4][4, 1]cpu" = torch.ops.graphs_extern.halve.gpu(x);  x = None',
        params='x: "f32[s0, 8][8, 1]cpu"',
        returned="(y,)",
    )
    (found,) = read(text, program=program(HALVE))
    assert isinstance(node(found, "y").target, OpOverload)
