"""Printed graphs read back: nodes, arguments, values, and the same text when printed again."""

from __future__ import annotations

import json
import operator
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.graphs import OpaqueOp, ReadGraph, read
from fusiondsl.graphs.targets import name_of

CASES = Path(__file__).parent.parent / "cases" / "graphs"
INDEX: dict[str, dict[str, Any]] = json.loads((CASES / "index.json").read_text())


def graph(text: str, **options: Any) -> ReadGraph:
    (only,) = read(text, **options)
    only.gm.graph.lint()
    return only


def body(*lines: str, params: str = "", returned: str = "()") -> str:
    inner = "\n".join(f"        {line}" for line in (*lines, f"return {returned}"))
    comma = ", " if params else ""
    return f"class <lambda>(torch.nn.Module):\n    def forward(self{comma}{params}):\n{inner}\n"


def node(read_graph: ReadGraph, name: str) -> fx.Node:
    return next(n for n in read_graph.gm.graph.nodes if n.name == name)


def printed(gm: fx.GraphModule) -> str:
    text = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    return text.rstrip()


def called(node_: fx.Node) -> str:
    if node_.target is auto_functionalized:
        return f"AF({name_of(node_.args[0]).removeprefix('torch.ops.')})"
    return name_of(node_.target).removeprefix("torch.ops.")


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_real_graphs(stem: str) -> None:
    path = CASES / f"{stem}.txt"
    found = graph_of(path)
    assert all(note.startswith("inputs printed without a type") for note in found.uncertain)
    assert len(found.gm.graph.nodes) == INDEX[stem]["nodes"]
    calls = Counter(called(n) for n in found.gm.graph.nodes if n.op == "call_function")
    for name, count in INDEX[stem]["ops"].items():
        assert calls[name] == count, name
    assert not found.symbols.shape_env.guards
    assert printed(found.gm) == path.read_text().rstrip()


def graph_of(path: Path) -> ReadGraph:
    (only,) = read(path)
    only.gm.graph.lint()
    return only


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_reading_the_print_gives_the_same_graph(stem: str) -> None:
    first = graph_of(CASES / f"{stem}.txt").gm
    again = graph(first.print_readable(False, include_stride=True, include_device=True)).gm
    assert [signature(n) for n in first.graph.nodes] == [signature(n) for n in again.graph.nodes]


def signature(node_: fx.Node) -> tuple[object, ...]:
    return (
        node_.name,
        node_.op,
        str(node_.target),
        str(node_.args),
        str(node_.kwargs),
        form(node_.meta.get("val")),
        node_.meta.get("stack_trace"),
    )


def form(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        return (str(tuple(value.shape)), str(value.stride()), value.dtype, value.device)
    if isinstance(value, (tuple, list)):
        return type(value), tuple(form(item) for item in value)
    return type(value), str(value)


# --- values ------------------------------------------------------------------------------------


def test_tensor_annotation() -> None:
    found = graph(body(params='x: "f8e4m3fn[s77, 256][1, s77]cuda:0"', returned="x"))
    value = node(found, "x").meta["val"]
    assert value.dtype is torch.float8_e4m3fn
    assert value.device == torch.device("cuda:0")
    assert [str(size) for size in value.shape] == ["s77", "256"]
    assert [str(step) for step in value.stride()] == ["1", "s77"]


def test_equal_names_are_one_symbol_and_others_are_not() -> None:
    found = graph(body(params='s0: "Sym(s0)", x: "f32[s0]", y: "f32[s1]"', returned="x"))
    size = node(found, "s0").meta["val"]
    assert isinstance(size, torch.SymInt)
    assert size.node.expr == node(found, "x").meta["val"].shape[0].node.expr
    assert size.node.expr != node(found, "y").meta["val"].shape[0].node.expr


@pytest.mark.parametrize(
    "expression",
    [
        "s77",
        "s177",
        "2*s77 + 1",
        "(s77//2)",
        "-4*((s77//(-4)))",
        "128*(((s77 + 127)//128))",
        "Max(10, s77)",
        "Min(64, s77)",
        "Mod(s77, 4)",
        "8*(((s58 - 1)//4))**2",
        "s26*s77",
        "u0",
        "u7",
    ],
)
def test_size_expressions_print_as_written(expression: str) -> None:
    found = graph(body(params=f'n: "Sym({expression})"', returned="n"))
    value = node(found, "n").meta["val"]
    assert isinstance(value, torch.SymInt)
    assert str(value) == expression


def test_symbolic_comparison() -> None:
    found = graph(body(params='b: "Sym(u0 >= 0)", c: "Sym(Eq(Mod(u0, 4), 0))"', returned="b"))
    assert isinstance(node(found, "b").meta["val"], torch.SymBool)
    assert str(node(found, "c").meta["val"]) == "Eq(Mod(u0, 4), 0)"


def test_reading_adds_no_guard() -> None:
    sizes = "s0 + 3, (s1//4), Max(1, s0), Mod(s1, 8) + 1"
    found = graph(body(params=f'x: "bf16[{sizes}][s0, s1, 4, 1]cpu"', returned="x"))
    assert not found.symbols.shape_env.guards


def test_multi_output_nodes_get_values_from_their_items() -> None:
    text = body(
        "pair = torch.ops.aten.max.dim(x, 1);  x = None",
        'getitem_1: "i64[8][1]cpu" = pair[1];  pair = None',
        params='x: "f32[8, 4][4, 1]cpu"',
        returned="getitem_1",
    )
    value = node(graph(text), "pair").meta["val"]
    assert value[0] is None
    assert value[1] is node(graph(text), "pair").meta["val"][1] or value[1].dtype is torch.int64


def test_list_outputs_are_lists() -> None:
    text = body(
        "split = torch.ops.aten.split_with_sizes.default(x, [1, 3], 1);  x = None",
        'getitem: "f32[8, 1][4, 1]cpu" = split[0];  split = None',
        params='x: "f32[8, 4][4, 1]cpu"',
        returned="getitem",
    )
    assert isinstance(node(graph(text), "split").meta["val"], list)


AF_TEXT = """
def forward(self, x: "f32[8, 4][4, 1]cpu", b: "f32[8, 4][4, 1]cpu"):
    af = torch.ops.higher_order.{hop}(torch.ops.aten.copy_.default, {args});  b = None
    return (af,)
"""


def test_auto_functionalized_v1() -> None:
    text = AF_TEXT.format(hop="auto_functionalized", args="self = b, src = x").replace(
        "    return", '    getitem: "f32[8, 4][4, 1]cpu" = af[0]\n    return'
    )
    found = node(graph(text), "af")
    assert found.target is auto_functionalized
    assert found.args == (torch.ops.aten.copy_.default,)
    assert list(found.kwargs) == ["self", "src"]
    values = found.meta["val"]
    assert len(values) == 2
    assert values[1].shape == (8, 4), "the mutated buffer has a value though nobody reads it"


def test_auto_functionalized_v2() -> None:
    args = "src = x, _self_base_index = 0, _self_alias = True, _all_bases = [b]"
    found = node(graph(AF_TEXT.format(hop="auto_functionalized_v2", args=args)), "af")
    assert found.target is auto_functionalized_v2
    assert found.kwargs["_self_base_index"] == 0
    assert [str(base) for base in found.kwargs["_all_bases"]] == ["b"]  # type: ignore[union-attr]


# --- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-06", 1e-06),
        ("-1", -1),
        ("9223372036854775807", 9223372036854775807),
        ("inf", float("inf")),
        ("-inf", float("-inf")),
        ("'tp:0'", "tp:0"),
        ('"a\\"b;#]"', 'a"b;#]'),
        ("None", None),
        ("True", True),
        ("torch.bfloat16", torch.bfloat16),
        ("torch.strided", torch.strided),
        ("torch.contiguous_format", torch.contiguous_format),
        ("device(type='cuda', index=0)", torch.device("cuda:0")),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        ("(3,)", (3,)),
        ("{'a': 1}", {"a": 1}),
        ("slice(None, 4, None)", slice(None, 4, None)),
    ],
)
def test_literals(written: str, value: object) -> None:
    found = graph(body(f"f = torch.ops.nowhere.f.default({written})", returned="f"))
    (argument,) = node(found, "f").args
    assert argument == value
    assert type(argument) in (type(value), *type(argument).__mro__)


def test_nan() -> None:
    found = graph(body("f = torch.ops.nowhere.f.default(nan)", returned="f"))
    (argument,) = node(found, "f").args
    assert isinstance(argument, float)
    assert argument != argument


def test_unknown_op_stays_opaque_and_prints_its_name() -> None:
    text = body(
        'y: "f32[4][1]cpu" = torch.ops.nowhere.scale.default(x, factor = 2.0);  x = None',
        params='x: "f32[4][1]cpu"',
        returned="(y,)",
    )
    found = graph(text)
    target = node(found, "y").target
    assert isinstance(target, OpaqueOp)
    assert (target.torch_name, target.overload) == ("nowhere::scale", "default")
    assert "torch.ops.nowhere.scale.default(x, factor = 2.0)" in printed(found.gm)
    with pytest.raises(NotImplementedError, match=r"nowhere\.scale"):
        target(torch.zeros(4))
    assert pickle.loads(pickle.dumps(target)) == target


def test_operators_methods_and_attributes() -> None:
    text = body(
        'a: "Sym(s0 + 1)" = n + 1',
        "b = -a;  a = None",
        "c = x.to(torch.float32)",
        "d = x[(Ellipsis, slice(None, 4, None))]",
        "e = x.shape",
        "f = torch.nn.functional.silu(x);  x = None",
        params='n: "Sym(s0)", x: "f32[s0][1]cpu"',
        returned="(b, c, d, e, f)",
    )
    nodes = {n.name: n for n in graph(text).gm.graph.nodes}
    assert nodes["a"].target is operator.add
    assert nodes["b"].target is operator.neg
    assert (nodes["c"].op, nodes["c"].target) == ("call_method", "to")
    assert nodes["d"].args[1] == (..., slice(None, 4, None))
    assert nodes["e"].target is getattr
    assert nodes["f"].target is torch.nn.functional.silu


def test_in_place_operators_are_one_node() -> None:
    text = body(
        'x += y;  z: "f32[4][1]cpu" = x;  x = y = None',
        "z[0] = 1;  setitem = z;  setitem = None",
        params='x: "f32[4][1]cpu", y: "f32[4][1]cpu"',
        returned="z",
    )
    found = graph(text)
    assert node(found, "z").target is operator.iadd
    assert node(found, "setitem").target is operator.setitem
    assert len(found.gm.graph.nodes) == 5


def test_renamed_placeholder() -> None:
    text = body("l_x_ = L_x_", 'y: "f32[4]" = l_x_ + 1', params='L_x_: "f32[4]"', returned="(y,)")
    placeholder = node(graph(text), "l_x_")
    assert (placeholder.op, placeholder.target) == ("placeholder", "L_x_")


# --- layout of the text ------------------------------------------------------------------------


def test_comments_become_stack_traces() -> None:
    text = body(
        "# File: /m/model.py:12 in forward, code: a = b; c  # d",
        'y: "f32[4][1]cpu" = torch.ops.aten.neg.default(x);  x = None',
        params='x: "f32[4][1]cpu"',
        returned="(y,)",
    )
    found = graph(text)
    trace = node(found, "y").meta["stack_trace"]
    assert trace == '  File "/m/model.py", line 12, in forward\n    a = b; c  # d'
    assert "# File: /m/model.py:12 in forward, code: a = b; c  # d" in printed(found.gm)


def test_several_graphs_fences_and_prose() -> None:
    one = body(params='x: "f32[4][1]cpu"', returned="(x,)")
    text = f"Before the pass:\n\n```python\n{one}```\n\nand after it:\n\n{one}\nthat is all.\n"
    assert [g.name for g in read(text)] == ["<lambda>", "<lambda>"]


def test_nested_classes_are_linked() -> None:
    text = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4][1]cpu"):
        inner = self.inner
        y = torch.ops.higher_order.invoke_subgraph(inner, 'name', x);  inner = x = None
        return (y,)

    class inner(torch.nn.Module):
        def forward(self, a: "f32[4][1]cpu"):
            return (a,)
"""
    outer, inner = read(text)
    assert (outer.name, inner.name) == ("GraphModule", "GraphModule.inner")
    assert outer.gm.get_submodule("inner") is inner.gm


def test_multi_line_calls_crlf_and_bom() -> None:
    text = (
        '\ufeffdef forward(\n    self,\n    x: "f32[4][1]cpu",  # PlainAOTInput(idx=0)\n):\n'
        '    y: "f32[4][1]cpu" = torch.ops.aten.add.Tensor(\n        x,\n        1,\n    )\n'
        "    x = None\n    return (\n        y,\n    )\n"
    ).replace("\n", "\r\n")
    assert node(graph(text), "y").args[1] == 1


def test_what_is_not_printed_is_assumed_and_said() -> None:
    found = graph(body(params='x: "bf16[4, 8]"', returned="x"))
    assert node(found, "x").meta["val"].stride() == (8, 1)
    assert found.uncertain == (
        "strides are not printed: contiguous assumed",
        "devices are not printed: cpu assumed",
    )


def test_device_from_the_rest_of_the_text() -> None:
    text = body(
        "e = torch.ops.aten.empty.memory_format([4], device = device(type='cuda', index=0))",
        params='x: "bf16[4][1]"',
        returned="(x, e)",
    )
    assert node(graph(text), "x").meta["val"].device == torch.device("cuda:0")
    assert node(graph(text, device="cpu"), "x").meta["val"].device == torch.device("cpu")


def test_text_cut_before_return() -> None:
    text = body('y: "f32[4]" = x + 1;  x = None', params='x: "f32[4]"').replace("return ()", "")
    found = graph(text)
    assert any("without `return`" in note for note in found.uncertain)
    assert [str(n) for n in found.gm.graph.output_node().args[0]] == ["y"]  # type: ignore[union-attr]
