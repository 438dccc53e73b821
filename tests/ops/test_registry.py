"""Registration: once a process, conflicts refused, ops found by declaration or name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusiondsl import ops
from fusiondsl.diagnostics.codes import CODES
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.ir.program import OpDecl
from fusiondsl.ops.dispatch import SWITCH
from fusiondsl.ops.registry import declaration
from tests.ops.build import H, T, call, impl, op, param, program, result, tensor


def double(name: str | None = None) -> OpDecl:
    return op(
        [param("x", tensor("D", T, H))],
        [result("y", tensor("D", T, H))],
        [call("prim.mul", "x", 2.0, to="y")],
        name=name,
    )


def test_a_registered_op_is_found_and_runs() -> None:
    decl = double()
    assert ops.overload(decl) is None
    ops.register(program(decl))
    found = ops.overload(decl)
    assert found is ops.overload(decl.name)
    assert found is not None
    assert torch.equal(found(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert declaration(decl.name) is not None


def test_registering_an_equal_declaration_again_changes_nothing() -> None:
    decl = double()
    ops.register(program(decl))
    before = ops.overload(decl)
    ops.register(program(double(decl.name)))
    ops.register(program(replace(decl, doc="another text, another place in the file")))
    assert ops.overload(decl) is before


def test_another_declaration_of_the_name_is_refused_and_nothing_registered() -> None:
    decl, other = double(), double()
    ops.register(program(decl))
    changed = replace(decl, means=(call("prim.mul", "x", 3.0, to="y"),))
    with pytest.raises(FusionError) as caught:
        ops.register(program(other, changed))
    assert [d.code for d in caught.value.diagnostics] == ["FD501"]
    assert "FD501" in CODES
    assert ops.overload(other) is None


def test_two_names_of_one_torch_op_are_refused() -> None:
    dotted = double()
    flat = replace(dotted, name=dotted.name.replace(".", "_"), means=None, axiom=True)
    assert flat.torch_name == dotted.torch_name
    with pytest.raises(FusionError, match="FD501"):
        ops.register(program(dotted, flat))
    assert ops.overload(dotted) is None


def test_extern_ops_are_looked_up_not_registered() -> None:
    extern = replace(double("aten.add"), extern=True, overload="Tensor")
    ops.register(program(extern))
    assert ops.overload(extern) is torch.ops.aten.add.Tensor
    assert ops.overload("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert ops.overload("aten.relu") is torch.ops.aten.relu.default
    assert ops.overload("no_such_library.op") is None
    assert ops.overload("no_such_op") is None


def test_without_kernel_and_switch_a_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    decl = double()
    lacking = impl("no_such_package.kernels:double", "x")
    decl = replace(decl, impls=(lacking, replace(lacking, location="torch:nobody::double")))
    ops.register(program(decl))
    function = ops.overload(decl)
    assert function is not None
    monkeypatch.delenv(SWITCH, raising=False)
    with pytest.raises(ops.MissingKernelError) as caught:
        function(torch.ones(2, 3))
    message = str(caught.value)
    for part in (decl.name, "no_such_package", "nobody::double", SWITCH, "reference_ops()"):
        assert part in message
    with ops.reference_ops():
        assert torch.equal(function(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    with pytest.raises(ops.MissingKernelError):
        function(torch.ones(2, 3))
    monkeypatch.setenv(SWITCH, "1")
    assert torch.equal(function(torch.ones(2, 3)), torch.full((2, 3), 2.0))


def test_a_compiled_program_calls_the_op_opaquely() -> None:
    decl = double()
    ops.register(program(decl))
    function = ops.overload(decl)
    assert function is not None
    compiled = torch.compile(lambda x: function(x + 1) * 3, dynamic=True, fullgraph=True)
    for rows in (7, 128):
        x = torch.randn(rows, 8)
        assert torch.equal(compiled(x), (x + 1) * 2 * 3)
