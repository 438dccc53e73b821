"""Graphs in logs, traces, files of tools and pasted issues: all of them found, and read right.

`tests/cases/dumps` has two kinds of files. Line 1 of `pub_*` says what a right reading is.
`counted.json` has the graphs of each `gen_*` file, in order: how many inputs, and how often each op
is called. It was counted on the text, by looking for the lines of signatures and by one regular
expression a kind of statement; nothing of it comes from the reader.
"""

from __future__ import annotations

import json
import operator
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusiondsl.diagnostics.diagnostic import Diagnostic, FusionError
from fusiondsl.graphs import Kind, OpaqueOp, ReadGraph, read
from fusiondsl.graphs.targets import name_of

CASES = Path(__file__).parent.parent / "cases" / "dumps"
PUBLIC = sorted(CASES.glob("pub_*.txt"))
COUNTED: dict[str, list[dict[str, Any]]] = json.loads((CASES / "counted.json").read_text())
WRAPPERS = {auto_functionalized: "hop1", auto_functionalized_v2: "hop2"}


def reading(path: Path) -> dict[str, Any]:
    first = path.read_text().partition("\n")[0]
    return dict(json.loads(first.removeprefix("# READING ")))


def called(node: fx.Node) -> str:
    """As the first lines of the files write it."""
    if node.op == "call_method":
        return f"method:{node.target}"
    if node.op != "call_function":
        return f"{node.op}:{node.target}"
    if node.target is operator.getitem:
        return "getitem"
    name = name_of(node.target).removeprefix("torch.ops.")
    if node.target in WRAPPERS:
        return f"{WRAPPERS[node.target]}:{name_of(node.args[0]).removeprefix('torch.ops.')}"
    if name.startswith("higher_order."):
        return f"hop:{name.removeprefix('higher_order.')}"
    return name.replace("_operator.", "op:")


def inputs_of(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "placeholder"]


def calls_of(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]


def refusal(source: str | Path) -> Diagnostic:
    with pytest.raises(FusionError) as caught:
        read(source)
    assert caught.value.exit_code == 2
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


# --- the files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_read_as_line_1_says(path: Path) -> None:
    wanted = reading(path)
    if not wanted["graphs"]:
        diagnostic = refusal(path)
        assert diagnostic.code == "FD617"
        assert diagnostic.span is not None
        assert diagnostic.span.line > 1
        return
    graphs = read(path)
    if wanted["graphs"] != ["(single)"]:
        assert [graph.name for graph in graphs] == wanted["graphs"]
        graphs = [graph for graph in graphs if graph.name == wanted["of_graph"]]
    (graph,) = graphs
    graph.gm.graph.lint()
    assert inputs_of(graph.gm) == wanted["inputs"]
    assert [called(node) for node in calls_of(graph.gm)] == wanted["calls"]
    assert [node.name for node in graph.gm.graph.output_node().all_input_nodes] == wanted["outputs"]
    copies = [n.args[0] for n in calls_of(graph.gm) if n.target is torch.ops.aten.copy_.default]
    assert [str(node) for node in copies] == wanted["mutates"]


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_graphs_inputs_and_ops_are_those_counted(name: str) -> None:
    wanted = COUNTED[name]
    if not wanted:
        assert refusal(CASES / name).code == "FD617"
        return
    graphs = read(CASES / name)
    assert [len(inputs_of(graph.gm)) for graph in graphs] == [one["inputs"] for one in wanted]
    assert [Counter(map(plain, calls_of(graph.gm))) for graph in graphs] == [
        Counter({public(op): count for op, count in one["ops"].items()}) for one in wanted
    ]
    for graph in graphs:
        graph.gm.graph.lint()
        assert graph.complete


def public(op: str) -> str:
    """Some functions of `torch.nn.functional` are those of this module."""
    return op.replace("torch._C._nn.", "torch.nn.functional.")


_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "pow": "**",
    "and_": "&",
    "matmul": "@",
    "gt": ">",
    "ge": ">=",
    "le": "<=",
    "ne": "!=",
    "invert": "~",
    "neg": "-",
}


def plain(node: fx.Node) -> str:
    """As `counted.json` writes it."""
    if node.op in ("call_method", "call_module"):
        return f"method {node.target}" if node.op == "call_method" else "module"
    if node.op == "get_attr":
        return "get_attr"
    name = name_of(node.target).removeprefix("torch.ops.")
    operator_ = name.removeprefix("_operator.")
    if operator_ in ("getitem", "setitem"):
        return operator_
    if operator_ in ("iadd", "imul"):
        return "in place"
    return name if operator_ == name else f"operator {_SIGNS[operator_]}"


def test_every_file_is_tested() -> None:
    files = {path.name for path in CASES.glob("*.txt")}
    assert files == {path.name for path in PUBLIC} | COUNTED.keys()


def test_the_same_graph_as_log_with_colours_and_as_file() -> None:
    """Prefixes and colours change nothing: two prints of one graph, one static and one not."""
    log, file = (
        read(CASES / name)[0].gm
        for name in (
            "gen_01_post_grad_graphs_log.txt",
            "gen_04b_tlparse_inductor_post_grad_graph.txt",
        )
    )
    assert str(log.graph) == str(file.graph)
    assert (
        log.print_readable(False, True, True).split("\n", 1)[1]
        == (file.print_readable(False, True, True).split("\n", 1)[1])
    )


# --- where graphs stand --------------------------------------------------------------------------

RANK = "[rank{rank}]:V0708 05:04:37.375000 {thread} torch/_inductor/compile_fx.py:1382] [!0/3/0_1] "
BODY = """\
TRACED GRAPH
 ===== AFTER POST GRAD =====
 /x y/_lazy_graph_module.py class <lambda>(torch.nn.Module):
    def forward(self, a: "bf16[{size}, 32][32, 1]hpu:0", b: "bf16[32][1]hpu:0"):
        # File: /m.py:3 in f, code: return a * b
        mul: "bf16[{size}, 32][32, 1]hpu:0" = torch.ops.aten.mul.Tensor(a, b);  a = b = None

        return (mul,)
"""


def interleaved() -> str:
    logs = [
        [
            RANK.format(rank=rank, thread=100 + rank) + "[__post_grad_graphs] " + line
            for line in BODY.format(size=4 + rank).splitlines()
        ]
        for rank in range(2)
    ]
    mixed = [line for pair in zip(*logs, strict=True) for line in pair]
    mixed.insert(5, "INFO 07-08 12:00:00 [backends.py:12] compiling")
    mixed.insert(8, "some other library: class x = 3")
    mixed.insert(11, "  warnings.warn(")
    return "\n".join(mixed) + "\n"


def test_interleaved_ranks() -> None:
    first, second = read(interleaved())
    assert (first.rank, second.rank) == ("0", "1")
    assert [g.gm.graph.output_node().args[0][0].meta["val"].shape[0] for g in (first, second)] == [
        4,
        5,
    ]
    value = first.gm.graph.output_node().args[0][0].meta["val"]
    assert value.device == torch.device("hpu:0")
    assert first.stage == "after post-grad passes"


def test_records_of_a_trace_have_their_names() -> None:
    graphs = read(CASES / "gen_04e_torch_trace_raw_excerpt.txt")
    assert [(graph.record, graph.stage) for graph in graphs] == [
        ("aot_inference_graph", "before post-grad passes"),
        ("before_post_grad_graph", "before post-grad passes"),
        ("inductor_post_grad_graph", "after post-grad passes"),
    ]


def test_diagnostics_are_located_in_the_log() -> None:
    text = interleaved().replace("torch.ops.aten.mul.Tensor(a, b)", "os.system(a)", 1)
    good, bad = sorted(read(text), key=lambda graph: graph.rank == "0")
    assert len(calls_of(good.gm)) == 1
    with pytest.raises(FusionError) as caught:
        bad.gm.graph.lint()
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "FD612"
    span = diagnostic.span
    assert span is not None
    line, column = span.source.position(span.start)
    assert text.split("\n")[line - 1][column - 1 :].startswith("os.system(a)")


def test_a_column_behind_colours() -> None:
    text = 'def forward(self, x: "\x1b[31mf32\x1b[0m[4]"):\n'
    text += "    \x1b[2my\x1b[0m = nowhere(x)\n    return y\n"
    with pytest.raises(FusionError) as caught:
        read(text)[0].gm.graph.lint()
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.span is not None
    line, column = diagnostic.span.source.position(diagnostic.span.start)
    assert text.split("\n")[line - 1][column - 1 :].startswith("nowhere(x)")


OLD = "[2023-11-20 15:52:39,416] {frame}torch._inductor.compile_fx.__post_grad_graphs: [INFO] "


@pytest.mark.parametrize("frame", ["", "[0/0] ", "[0/0_1] "])
def test_logs_of_older_versions_and_bare_annotations(frame: str) -> None:
    lines = (
        " ===== AFTER POST GRAD =====",
        " <eval_with_key>.13 class GraphModule(torch.nn.Module):",
        "    def forward(self, a : f32[], b: Sym(i4), c: i64[i4, 8], d : torch.Tensor):",
        "        check = torch.ops.aten._assert_async.msg(a, 'in [0, inf].');  a = None",
        "        p: f32[i4, 8] = torch.ops.aten.pow.Tensor_Scalar(c, 2);  c = None",
        "        return (p, d)",
    )
    text = "".join(f"{OLD.format(frame=frame)}{line}\n" for line in lines)
    (graph,) = read(text)
    assert inputs_of(graph.gm) == ["a", "b", "c", "d"]
    assert [len(node.args) for node in calls_of(graph.gm)] == [2, 2]
    assert "types without sizes: sizes and dtypes unknown" in graph.uncertain


ONE = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[8, 4]"):
        neg: "f32[8, 4]" = torch.ops.aten.neg.default(x);  x = None
        return (neg,)
"""


@pytest.mark.parametrize(
    "prefix",
    [
        "> ",
        "(EngineCore_0 pid=312) ",
        "[rank3]: ",
        "2025-01-31T08:00:00.1234567Z ",
        "\t",
        "        ",
        "2025-01-31T08:00:00.1234567Z (VllmWorker rank=1 pid=7) ",
    ],
)
def test_prefixes_of_others(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in ONE.splitlines())
    (graph,) = read(f"```\n{text}```\n")
    assert [node.name for node in calls_of(graph.gm)] == ["neg"]
    assert graph.lines == (3, 5)
    assert graph.complete


def test_a_printed_module_with_its_hint() -> None:
    text = (
        "GraphModule(\n  (lin): Linear()\n)\n\n\n\ndef forward(self, x):\n"
        "    weight = self.lin.weight\n    lin = self.lin(x);  x = None\n"
        '    block = getattr(getattr(self.blocks, "0"), "1")(lin);  lin = None\n'
        "    add = block + weight;  block = weight = None\n    return add\n    \n"
        "# To see more debug info, please use `graph_module.print_readable()`\n"
    )
    (graph,) = read(text)
    assert [node.op for node in calls_of(graph.gm)] == [
        "get_attr",
        "call_module",
        "call_module",
        "call_function",
    ]
    assert graph.uncertain == ("no types are printed: sizes and dtypes are unknown",)


def test_a_graph_in_the_string_of_a_test() -> None:
    text = (
        '        self.assertExpectedInline(\n            graphs,\n            """\\\n'
        'def forward(self, a: "f32[3][1]cpu"):\n'
        "        foo = torch.ops.mylib.foo.default(a);  a = foo = None\n"
        '        return ()""",\n            ignore_comments=True,\n        )\n'
    )
    (graph,) = read(text)
    assert graph.complete
    assert [called(node) for node in calls_of(graph.gm)] == ["mylib.foo.default"]
    assert graph.opaque == ("torch.ops.mylib.foo.default",)


def test_a_text_that_a_terminal_broke() -> None:
    wide = 'class G(torch.nn.Module):\n    def forward(self, layers_1___2___norm1: "f32[8, 4]"):\n'
    wide += (
        '        neg: "f32[8, 4]" = torch.ops.aten.neg.default(layers_1___2___norm1);  '
        "layers_1___2___norm1 = None\n        return (neg,)\n"
    )
    broken = "\n".join(
        line[start : start + 64] for line in wide.split("\n") for start in range(0, len(line), 64)
    )
    (graph,) = read(broken + "\n\nthat is all\n")
    assert inputs_of(graph.gm) == ["layers_1___2___norm1"]
    assert [node.name for node in calls_of(graph.gm)] == ["neg"]


# --- fragments -----------------------------------------------------------------------------------


def test_two_fragments_without_torch_ops() -> None:
    text = """\
Before:
    rms_norm   = vllm_ir.rms_norm.default(x, w, 1e-06, None)      # layernorm.py:120
    view_1     = rms_norm.view(-1, 4096)                          # quant.py:4
    quantised  = torch.ops.vllm.group_quant.default(view_1, 128)
    scale      = quantised[1]
After:
    fused      = vllm_ir.rms_norm_quant.default(x, w, 1e-06, 128)
    scale      = fused[1]
"""
    before, after = read(text)
    assert before.kind is Kind.FRAGMENT
    assert not before.complete
    assert inputs_of(before.gm) == inputs_of(after.gm) == ["x", "w"]
    assert [called(node) for node in calls_of(before.gm)] == [
        "vllm_ir.rms_norm.default",
        "method:view",
        "vllm.group_quant.default",
        "getitem",
    ]
    assert "`torch.ops.` is left out before names of ops" in before.uncertain
    assert [node.name for node in after.gm.graph.output_node().all_input_nodes] == ["scale"]


def test_a_name_that_comes_again_begins_another_fragment() -> None:
    one = '    y: "f32[4]" = torch.ops.aten.neg.default(x)\n'
    assert [len(calls_of(graph.gm)) for graph in read(one + "\n" + one)] == [1, 1]


@pytest.mark.parametrize(
    ("end", "calls"),
    [
        ("", 3),
        ("...\n", 3),
        ("        ...\n", 3),
        ("        mul", 3),
        ('        mul: "f32[8', 3),
        ("        mul = torch.ops.aten.mul.Tensor(add, ", 3),
        ("        mul = torch.ops.aten.mul.Tensor(add, 2);  ad", 4),
        ("        mul = torch.ops.aten.mul.Tensor(add, 2);  add = No", 4),
        ("        mul = torch.ops.aten.mul.Tensor(add, 2);  add = None", 4),
        ("        mul = add", 3),
        ("        return (add", 3),
    ],
)
def test_cut_ends(end: str, calls: int) -> None:
    text = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[8, 4]"):
        neg: "f32[8, 4]" = torch.ops.aten.neg.default(x);  x = None
        abs_1: "f32[8, 4]" = torch.ops.aten.abs.default(neg)
        add: "f32[8, 4]" = torch.ops.aten.add.Tensor(abs_1, 1);  abs_1 = None
"""
    (graph,) = read(text + end)
    assert not graph.complete
    assert len(calls_of(graph.gm)) == calls
    assert any("without `return`" in note for note in graph.uncertain)
    outputs = [node.name for node in graph.gm.graph.output_node().all_input_nodes]
    assert outputs[0] == "neg", "never freed, so used where the text does not go"


def test_a_signature_that_is_cut() -> None:
    (graph,) = read('class G(torch.nn.Module):\n    def forward(self, x: "f32[4]", y: "f3')
    assert inputs_of(graph.gm) == ["x"]


def test_what_is_left_out_in_the_middle() -> None:
    text = """\
def forward(self, x: "f32[4]"):
    neg: "f32[4]" = torch.ops.aten.neg.default(x);  x = None
    ...
    add: "f32[4]" = torch.ops.aten.add.Tensor(neg, exp_3);  neg = exp_3 = None
    return (add,)
"""
    (graph,) = read(text)
    assert inputs_of(graph.gm) == ["x", "exp_3"]
    assert graph.uncertain[0] == "line 3 stands for statements that are left out"


# --- one line a node -----------------------------------------------------------------------------


def test_strings_without_quotes_and_links_that_a_site_made() -> None:
    text = """\
graph():
    %a : [num_users=2] = placeholder[target=a](default=2.0)
    %ge : [num_users=1] = call_function[[target=operator.ge](http://target=operator.ge/)](args = (%a, 0), kwargs = {})
    %check : [#users=0] = call_function[target=torch.ops.aten._assert_async.msg](args = (%ge, Invalid, expected one of [0, inf].), kwargs = {})
    %af : [num_users=1] = call_function[target=torch.ops.higher_order.auto_functionalized](args = (vllm_ir.nowhere.default,), kwargs = {result: %a, name: model.layers.attn, group: tp:0, device: cuda:0, sizes: [1, -1]})
    %item : [num_users=1] = call_function[target=operator.getitem](args = (%af, 1), kwargs = {})
    return [item, None]
"""  # noqa: E501
    (graph,) = read(text)
    assert graph.kind is Kind.NODES
    ge, check, af, _ = calls_of(graph.gm)
    assert ge.target is operator.ge
    assert check.args[1] == "Invalid, expected one of [0, inf]."
    assert af.args == (OpaqueOp("torch.ops.vllm_ir.nowhere.default"),)
    assert af.kwargs["name"] == "model.layers.attn"
    assert af.kwargs["group"] == "tp:0"
    assert af.kwargs["device"] == torch.device("cuda:0")
    assert af.kwargs["sizes"] == [1, -1]


def test_a_graph_of_nodes_that_is_cut() -> None:
    text = "graph():\n    %a : [num_users=1] = placeholder[target=a]\n"
    text += "    %n : [num_users=1] = call_function[target=torch.neg](args = (%a,), kwargs = {})\n"
    (graph,) = read(text + "    %m : [num_users=1] = call_func")
    assert [node.name for node in calls_of(graph.gm)] == ["n"]
    assert not graph.complete


# --- no graph ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("    buf0 = ComputedBuffer(name='buf0', layout=FixedLayout('cpu', torch.float32))", "IR"),
        ("@triton.jit\ndef kernel(in_ptr0):\n    tmp0 = tl.load(in_ptr0)", "a Triton kernel"),
        ("cpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''", "code that Inductor"),
        ("graph(%x.1 : Tensor, %y : Tensor):\n  %3 : int = prim::Constant[value=1]()", "TorchScr"),
        ("module @m {\n  %0 = stablehlo.add %a, %b : tensor<4xf32>", "MLIR"),
        ("HloModule m\nENTRY %main (p: f32[4]) -> f32[4] {", "HLO"),
        ("import torch\ndef f(x):\n    y = torch.relu(x)\n    return y", "Python code"),
        ("class Net(nn.Module):\n    def forward(self, x):\n        return x + 1", "Python code"),
    ],
)
def test_what_is_no_graph_is_named(line: str, what: str) -> None:
    diagnostic = refusal(f"some words\n{line}\n")
    assert diagnostic.code == "FD617"
    assert what in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.span.line == 2
    assert diagnostic.help is not None


def test_a_faulty_graph_spoils_no_other() -> None:
    text = """\
class G(torch.nn.Module):
    def forward(self, x: "f32[4]"):
        inner = self.inner
        other = self.other
        y = torch.ops.higher_order.invoke_subgraph(inner, 'a', x)
        return (y,)

    class inner(torch.nn.Module):
        def forward(self, a: "f32[4]"):
            return (nowhere,)

    class other(torch.nn.Module):
        def forward(self, a: "f32[4]"):
            return (a,)
"""
    outer, inner, other = read(text)
    assert outer.uncertain[-1] == "`inner` has faults and is left out"
    assert outer.gm.get_submodule("other") is other.gm
    with pytest.raises(FusionError, match="FD611"):
        inner.gm.graph.lint()


def test_a_graph_is_built_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import fusiondsl.graphs.reader as reader

    built = []
    real = reader.GraphBuilder

    def counted(*args: Any) -> Any:
        built.append(args[0].path)
        return real(*args)

    monkeypatch.setattr(reader, "GraphBuilder", counted)
    graphs: list[ReadGraph] = read(CASES / "gen_07_training_joint_fw_bw_log.txt")
    assert not built
    assert graphs[2].gm is graphs[2].gm
    assert built == [("GraphModule",)]


# --- size ----------------------------------------------------------------------------------------


def test_reading_is_linear() -> None:
    """Four times the text takes about four times as long."""
    text = (CASES / "gen_07_training_joint_fw_bw_log.txt").read_text()
    seconds = []
    for count in (8, 32):
        many = text * count
        best = min(_seconds(many) for _ in range(3))
        seconds.append(best)
        assert len(read(many)) == 6 * count
    assert seconds[1] < 10 * seconds[0]
    megabytes = len(text) * 32 / 1e6
    assert seconds[1] / megabytes < 1.0, "20 MB in 20 s of CPU time"


def _seconds(text: str) -> float:
    start = time.process_time()
    read(text)
    return time.process_time() - start
