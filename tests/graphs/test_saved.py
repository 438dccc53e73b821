"""Saved graphs: nothing is lost, the same graph gives the same bytes, damage is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.proxy_tensor import make_fx

from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.diagnostics.source import Source
from fusiondsl.graphs import load, read, save
from fusiondsl.graphs.saved import dumps, loads
from tests.graphs.test_reader import CASES, INDEX, body, signature


@pytest.fixture(scope="module")
def shift() -> Any:
    """`graphs_test::shift` writes `x + by` into `out`."""
    library = torch.library.Library("graphs_test", "FRAGMENT")
    library.define("shift(Tensor x, Tensor(a!) out, float by=1.0) -> ()")

    def kernel(x: torch.Tensor, out: torch.Tensor, by: float = 1.0) -> None:
        out.copy_(x + by)

    library.impl("shift", kernel, "CompositeExplicitAutograd")
    torch.library.register_fake("graphs_test::shift", lambda x, out, by=1.0: None, lib=library)
    yield torch.ops.graphs_test.shift
    library._destroy()


def same(first: fx.GraphModule, second: fx.GraphModule) -> None:
    assert [signature(n) for n in first.graph.nodes] == [signature(n) for n in second.graph.nodes]
    second.graph.lint()


def again(gm: fx.GraphModule) -> fx.GraphModule:
    text = dumps(gm)
    loaded, symbols = loads(Source("saved", text))
    assert dumps(loaded) == text
    assert not symbols.shape_env.guards
    assert not symbols.shape_env.replacements
    same(gm, loaded)
    return loaded


@pytest.mark.parametrize("stem", sorted(INDEX))
def test_read_graphs(stem: str, tmp_path: Path) -> None:
    gm = read(CASES / f"{stem}.txt")[0].gm
    path = tmp_path / "graph.json"
    save(gm, path)
    same(gm, load(path))
    assert dumps(load(path)) == path.read_text(encoding="utf-8")
    assert [g.gm.code for g in read(path)] == [gm.code]


class _Keep(CustomGraphPass):
    """Saves every graph Inductor hands to the pass, at that moment."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.graphs: list[list[tuple[object, ...]]] = []

    def __call__(self, graph: fx.Graph) -> None:
        module = graph.owning_module
        assert module is not None
        self.saved.append(dumps(fx.GraphModule(module, graph)))
        self.graphs.append([signature(n) for n in graph.nodes])

    def uuid(self) -> None:
        return None


@pytest.mark.parametrize("v2", [False, True])
def test_compiled_mutation_with_symbolic_sizes(shift: Any, v2: bool) -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.empty_like(x)
        shift(x, out, 2.0)
        y = out.view(-1, 4, 2)
        shift(out[:, :4], x[:, :4])
        return torch.nn.functional.silu(y * w), out

    keep = _Keep()
    options = {"enable_auto_functionalized_v2": v2, "post_grad_custom_pre_pass": keep}
    torch._dynamo.reset()
    with inductor.patch(fx_graph_cache=False, **options):
        x = torch.randn(6, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compile(model, fullgraph=True)(x, torch.randn(2))
    loaded, symbols = loads(Source("saved", keep.saved[0]))
    assert dumps(loaded) == keep.saved[0]
    assert [signature(n) for n in loaded.graph.nodes] == keep.graphs[0]
    assert not symbols.shape_env.guards
    hop = "auto_functionalized_v2" if v2 else "auto_functionalized"
    calls = [n for n in loaded.graph.nodes if str(n.target) == hop]
    assert len(calls) == 2
    assert all("eager_input_vals" in n.meta for n in calls)


def test_views_share_memory_again() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y[2:, 1:].t(), y

    gm = make_fx(model, tracing_mode="symbolic")(torch.randn(6, 8))
    loaded = again(gm)
    (pair,) = loaded.graph.output_node().args
    view, base = (n.meta["val"] for n in pair)  # type: ignore[union-attr]
    assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
    assert str(view.storage_offset()) in {"2*s77 + 1", str(view.storage_offset())}
    assert view.stride() == tuple(reversed(base.stride()))


def test_symbols_keep_range_and_hint() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] <= 512)
        return x.reshape(-1) * x.shape[0]

    gm = make_fx(model, tracing_mode="symbolic")(torch.randn(6, 8))
    header = json.loads(dumps(again(gm)))["symbols"]
    assert any(facts.get("upper") == 512 and facts["hint"] == 6 for facts in header.values())


def test_constants_and_inner_graphs() -> None:
    table = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a + table, lambda a: a - table, (x,))

    gm = make_fx(model)(torch.ones(2, 3, dtype=torch.bfloat16))
    loaded = again(gm)
    x = torch.randn(2, 3).bfloat16()
    assert torch.equal(loaded(x), model(x))


def test_what_cannot_be_saved_leaves_no_file(tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output(graph.call_function(_local, (graph.placeholder("x"),)))
    with pytest.raises(FusionError) as caught:
        save(fx.GraphModule({}, graph), tmp_path / "graph.json")
    assert caught.value.diagnostics[0].code == "FD622"
    assert not list(tmp_path.iterdir())


def _local(x: object) -> object:
    return x


def _saved() -> dict[str, Any]:
    text = body('y: "f32[s0][1]cpu" = torch.neg(x)', params='x: "f32[s0][1]cpu"', returned="(y,)")
    tree: dict[str, Any] = json.loads(dumps(read(text)[0].gm))
    return tree


def _node(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda tree: tree["nodes"][1].update(changes)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda tree: tree.update(version=99), "FD620"),
        (lambda tree: tree.pop("format"), "FD620"),
        (lambda tree: tree.pop("nodes"), "FD621"),
        (lambda tree: tree.update(symbols=[]), "FD621"),
        (_node(op="exec"), "FD621"),
        (_node(target="os.system"), "FD621"),
        (_node(target="torch.ops.load_library.__call__"), "FD621"),
        (_node(target="torch.ops.a.b();import os;c.d"), "FD621"),
        (_node(target="torch.ops.a.class.b"), "FD621"),
        (_node(name="x"), "FD621"),
        (_node(name="y; import os"), "FD621"),
        (_node(kwargs={"a=print(1), b": 1}), "FD621"),
        (_node(op="call_method", target="a.b()"), "FD621"),
        (_node(op="call_method", target="__reduce__"), "FD621"),
        (_node(op="get_attr", target="a;b"), "FD621"),
        (_node(args=[{"node": "later"}]), "FD621"),
        (_node(args=[{"surprise": 1}]), "FD621"),
        (_node(val={"sym": "s0 +"}), "FD621"),
        (_node(val={"sym": "__import__('os')"}), "FD621"),
        (lambda tree: tree["nodes"][0]["val"].update(stride=[1, 2]), "FD621"),
    ],
)
def test_damage(damage: Callable[[dict[str, Any]], object], code: str) -> None:
    tree = _saved()
    damage(tree)
    with pytest.raises(FusionError) as caught:
        loads(Source("saved", json.dumps(tree)))
    assert caught.value.diagnostics[0].code == code
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "[]", '"x"', "{}"])
def test_not_a_saved_graph(text: str) -> None:
    with pytest.raises(FusionError) as caught:
        loads(Source("saved", text))
    assert caught.value.diagnostics[0].code == "FD620"
