"""The torch schema of a declaration, as a table."""

from __future__ import annotations

import pytest
import torch

from fusiondsl.dims.expr import DType
from fusiondsl.ir.program import OpDecl
from fusiondsl.ops.layers import SCHEMA_TYPE
from fusiondsl.ops.schema import schema_order, schema_text
from tests.ops.build import H, T, op, param, result, tensor

X = param("x", tensor("D", T, H))
Y = result("y", tensor("D", T, H))
MAYBE = tensor("D", H, optional=True)

TABLE = [
    ([X], [Y], "(Tensor x) -> Tensor"),
    ([X], [], "(Tensor x) -> ()"),
    ([X], [Y, result("s", tensor("f32", T, 1))], "(Tensor x) -> (Tensor, Tensor)"),
    ([X], [result("r", MAYBE)], "(Tensor x) -> Tensor?"),
    ([X, param("w", MAYBE)], [Y], "(Tensor x, Tensor? w) -> Tensor"),
    ([X, param("w", MAYBE, None)], [Y], "(Tensor x, Tensor? w=None) -> Tensor"),
    (
        [param("out", tensor("D", T, H), kind="out"), X, param("r", tensor("D", H), kind="inout")],
        [],
        "(Tensor(a0!) out, Tensor x, Tensor(a1!) r) -> ()",
    ),
    ([X, param("dummy", tensor("D", 1), kind="token")], [Y], "(Tensor x, Tensor dummy) -> Tensor"),
    ([X, param("n", "int", 3)], [Y], "(Tensor x, SymInt n=3) -> Tensor"),
    ([X, param("n", "int", -1)], [Y], "(Tensor x, SymInt n=-1) -> Tensor"),
    ([X, param("n", "int?", None)], [Y], "(Tensor x, SymInt? n=None) -> Tensor"),
    ([X, param("n", "int[]", [1, 2])], [Y], "(Tensor x, SymInt[] n=[1, 2]) -> Tensor"),
    ([X, param("n", "int[]?", None)], [Y], "(Tensor x, SymInt[]? n=None) -> Tensor"),
    ([X, param("e", "float", 1e-6)], [Y], "(Tensor x, float e=1e-06) -> Tensor"),
    ([X, param("b", "bool", True)], [Y], "(Tensor x, bool b=True) -> Tensor"),
    ([X, param("s", "str", "even")], [Y], '(Tensor x, str s="even") -> Tensor'),
    ([X, param("s", "str", 'a"b\\c')], [Y], '(Tensor x, str s="a\\"b\\\\c") -> Tensor'),
    ([X, param("l", "layer")], [Y], f"(Tensor x, {SCHEMA_TYPE} l) -> Tensor"),
    (
        [X, param("d", "dtype", DType("bf16"))],
        [Y],
        "(Tensor x, ScalarType d=bfloat16) -> Tensor",
    ),
    # An arch-dependent default is no constant; what stands before it becomes required as well.
    ([X, param("d", "dtype", DType("fp8"))], [Y], "(Tensor x, ScalarType d) -> Tensor"),
    (
        [X, param("g", "int", 128), param("d", "dtype", DType("fp8")), param("b", "bool", False)],
        [Y],
        "(Tensor x, SymInt g, ScalarType d, bool b=False) -> Tensor",
    ),
    (
        [X, param("g", "int", 128), param("d", "dtype", DType("fp8"), keyword_only=True)],
        [Y],
        "(Tensor x, SymInt g=128, *, ScalarType d) -> Tensor",
    ),
    # The schema language has no default for a list of strings or bools.
    ([X, param("s", "str[]", ["a"])], [Y], "(Tensor x, str[] s) -> Tensor"),
    ([X, param("e", "float", float("inf"))], [Y], "(Tensor x, float e) -> Tensor"),
]

_library = torch.library.Library("fusiondsl_schema_test", "FRAGMENT")


@pytest.mark.parametrize(("params", "results", "expected"), TABLE, ids=[row[2] for row in TABLE])
def test_schema_text(params: list, results: list, expected: str) -> None:
    decl = op(params, results)
    name = decl.torch_name.partition("::")[2]
    assert schema_text(decl) == name + expected


@pytest.mark.parametrize(("params", "results", "expected"), TABLE, ids=[row[2] for row in TABLE])
def test_torch_reads_the_schema(params: list, results: list, expected: str) -> None:
    decl = op(params, results)
    name = _library.define(schema_text(decl))
    schema = getattr(torch.ops.fusiondsl_schema_test, name).default._schema
    assert [a.name for a in schema.arguments] == [p.name for p in schema_order(decl)]
    written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    assert written == {p.name for p in decl.params if p.kind in ("out", "inout")}
    assert len(schema.returns) == len(decl.results)


def test_name_of_a_dotted_op() -> None:
    decl: OpDecl = op([X], [Y], name="aiter.some_op")
    assert schema_text(decl) == "aiter_some_op(Tensor x) -> Tensor"
