"""Rules in `torch.compile`: slots and what is in them, settings, dynamic sizes."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._inductor import compile_fx, config
from torch._inductor.custom_graph_pass import CustomGraphPass, CustomInferenceAwareGraphPass
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import fusiondsl
from fusiondsl import artifact
from fusiondsl.engine.graph_pass import REPORT
from fusiondsl.integrations import torch_compile
from fusiondsl.integrations.chain import fusions, with_pass
from fusiondsl.integrations.torch_compile import RequiredRuleError, install, installed, uninstall
from fusiondsl.rules import load_source

GLU = Path(__file__).with_name("glu.fuse").read_text()
POST, PRE = "post_grad_custom_post_pass", "post_grad_custom_pre_pass"


@pytest.fixture
def rules(tmp_path: Path) -> fusiondsl.CompiledRules:
    (tmp_path / "glu.fuse").write_text(GLU)
    return fusiondsl.load(tmp_path / "glu.fuse").compile()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing compiled, no graph cached, nothing in the slots: before and after.

    What g++ has made of a kernel stays: only the text of the kernel decides about it.
    """
    torch._dynamo.reset()
    with config.patch({POST: None, PRE: None, "fx_graph_cache": False}), torch.no_grad():
        yield
        assert getattr(config, POST) is None
        assert getattr(config, PRE) is None


def gate(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x[..., :half] * torch.sigmoid(x[..., half:])


def compiled(**settings: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(gate, fullgraph=True, **settings)


X = torch.randn(7, 128)


# --- slots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["pre", "post"])
def test_one_call_installs(rules: fusiondsl.CompiledRules, slot: Any) -> None:
    fusion = install(rules, slot=slot)
    torch.testing.assert_close(compiled()(X), gate(X))
    assert fusion.last_report is not None
    assert fusion.last_report.counts == {"gated": 1}
    uninstall(fusion)
    compiled()(X)
    assert len(fusion.reports) == 1


def test_installing_the_same_again_changes_nothing(rules: fusiondsl.CompiledRules) -> None:
    fusion = install(rules)
    assert install(rules) is fusion
    assert install(fusion) is fusion
    other = install(rules, off="gated")
    assert other is not fusion
    uninstall(fusion)
    assert getattr(config, POST) is other
    uninstall(other)
    with pytest.raises(LookupError, match="not installed"):
        uninstall(fusion)


def test_a_block_restores_exactly(rules: fusiondsl.CompiledRules) -> None:
    counted = Counted(b"one")
    for before in (None, counted, [counted], []):
        setattr(config, POST, before)
        with installed(rules) as outer, installed(rules, off="gated"):
            assert outer in fusions(getattr(config, POST))
        assert getattr(config, POST) is before
    setattr(config, POST, None)


def test_a_block_that_fails_restores_too(rules: fusiondsl.CompiledRules) -> None:
    with pytest.raises(ZeroDivisionError), installed(rules, require="gated"):
        raise ZeroDivisionError
    assert getattr(config, POST) is None


def test_blocks_may_end_in_any_order(rules: fusiondsl.CompiledRules) -> None:
    before = Counted(b"one")
    setattr(config, POST, before)
    one, other = installed(rules), installed(rules, off="gated")
    first, second = one.__enter__(), other.__enter__()
    one.__exit__(None, None, None)
    assert fusions(getattr(config, POST)) == (second,)
    assert first is not second
    other.__exit__(None, None, None)
    assert getattr(config, POST) is before
    setattr(config, POST, None)


def test_a_slot_that_the_block_has_set_is_left(
    rules: fusiondsl.CompiledRules, caplog: pytest.LogCaptureFixture
) -> None:
    other = Counted(b"one")
    with installed(rules):
        setattr(config, POST, other)
    assert getattr(config, POST) is other
    assert f"{POST} was set inside the block, and is left as it is" in caplog.messages
    setattr(config, POST, None)


def test_a_pass_is_in_one_block_at_a_time(rules: fusiondsl.CompiledRules) -> None:
    with (
        installed(rules) as fusion,
        pytest.raises(ValueError, match="installed already"),
        installed(fusion),
    ):
        pass
    with pytest.raises(ValueError, match="there are `pre` and `post`"):
        install(rules, slot="middle")  # type: ignore[arg-type]


def test_options_are_for_one_function(rules: fusiondsl.CompiledRules) -> None:
    fusion = torch_compile.make_pass(rules)
    one = compiled(options=torch_compile.options(fusion))
    other = torch.compile(lambda x: gate(x) + 1, fullgraph=True)
    torch.testing.assert_close(one(X) + 1, other(X))
    assert [report.counts for report in fusion.reports] == [{"gated": 1}]


def test_options_keep_what_is_installed(rules: fusiondsl.CompiledRules) -> None:
    before = Counted(b"one")
    with config.patch({POST: before}):
        function = compiled(options=torch_compile.options(rules))
    function(X)
    assert before.graphs == 1


def test_what_rules_may_be(rules: fusiondsl.CompiledRules, tmp_path: Path) -> None:
    dump = tmp_path / "glu.fused"
    artifact.save(dump, rules.program, rules.target)
    ways: tuple[Any, ...] = (
        rules,
        fusiondsl.load(tmp_path / "glu.fuse"),
        str(tmp_path / "glu.fuse"),
        tmp_path,
        dump,
    )
    passes = [torch_compile.make_pass(way) for way in ways]
    assert len({each.identity() for each in passes}) == 1
    with pytest.raises(TypeError, match="has its settings already"):
        torch_compile.make_pass(passes[0], off="gated")
    with pytest.raises(fusiondsl.FusionError):
        torch_compile.make_pass(tmp_path / "nothing.fuse")


# --- chaining ------------------------------------------------------------------------------------


class Counted(CustomGraphPass):
    """A pass that was in the slot before."""

    def __init__(self, name: bytes | None) -> None:
        self.name = name
        self.graphs = 0

    def __call__(self, graph: fx.Graph) -> None:
        assert not called(graph, torch.ops.aten.glu.default), "it runs after ours"
        self.graphs += 1

    def uuid(self) -> bytes | None:
        return self.name


class Told(CustomInferenceAwareGraphPass):
    """Another one, that is told whether the graph is one of inference."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def __call__(self, graph: fx.Graph, is_inference: bool = False) -> None:
        self.told.append(is_inference)

    def uuid(self) -> bytes | None:
        return b"told"


def called(graph: fx.Graph, target: Any) -> list[fx.Node]:
    return list(graph.find_nodes(op="call_function", target=target))


def test_a_pass_that_was_there_runs_first(rules: fusiondsl.CompiledRules) -> None:
    counted, told, seen = Counted(b"one"), Told(), list[int]()
    before = [counted, told, lambda graph: seen.append(len(graph.nodes))]
    with config.patch({POST: before}), installed(rules) as fusion:
        torch.testing.assert_close(compiled()(X), gate(X))
    assert (counted.graphs, told.told, len(seen)) == (1, [True], 1)
    assert fusion.reports[0].counts == {"gated": 1}


def test_a_pass_that_was_there_is_part_of_the_key(rules: fusiondsl.CompiledRules) -> None:
    fusion = rules.graph_pass()

    def uuid(before: Any) -> bytes | None:
        found: bytes | None = with_pass(before, fusion).uuid()
        return found

    one, two = Counted(b"one"), Counted(b"two")
    keys = [uuid(None), uuid(one), uuid(two), uuid([one, two]), uuid(Told())]
    assert len({*keys}) == len(keys)
    assert None not in keys
    assert uuid(one) == uuid(Counted(b"one")) == uuid([one])
    assert uuid(Counted(None)) is None
    assert uuid(lambda graph: None) is None
    assert with_pass(with_pass(one, fusion), rules.graph_pass(off="gated")).uuid() not in keys


# --- settings ------------------------------------------------------------------------------------


def test_a_dry_run_reports_and_leaves_the_graph(rules: fusiondsl.CompiledRules) -> None:
    seen: list[fx.Graph] = []

    def spy(graph: fx.Graph) -> None:
        fusion(graph)
        seen.append(copy.deepcopy(graph))

    with installed(rules, dry_run=True) as fusion, config.patch({POST: spy}):
        compiled()(X)
    assert fusion.reports[0].counts == {"gated": 1}
    assert not called(seen[0], torch.ops.aten.glu.default)
    assert fusion.uuid() is None
    assert fusion.identity() != rules.graph_pass().identity()


def test_rules_can_be_switched_off(rules: fusiondsl.CompiledRules) -> None:
    with installed(rules, off="ga*") as fusion:
        compiled()(X)
    assert not fusion.reports[0].counts
    assert "ineligible  gated: it is switched off" in str(fusion.reports[0])
    assert fusion.uuid() != rules.graph_pass().uuid()


def test_a_required_rule_that_fires(rules: fusiondsl.CompiledRules) -> None:
    with installed(rules, require="gated") as fusion:
        compiled()(X)
    fusion.check()
    assert fusion.uuid() is None
    assert fusion.identity() == rules.graph_pass().identity()


def test_a_required_rule_that_does_not_fire_says_why(rules: fusiondsl.CompiledRules) -> None:
    with pytest.raises(RequiredRuleError) as raised, installed(rules, require=["*"]):
        compiled()(torch.randn(7, 120))
    assert str(raised.value) == (
        "required, but fired in none of 1 graphs:\n"
        "  gated: at mul: predicate false: N % 8 is 4, not 0\n"
        "  doubled: nothing like its source stands in a graph"
    )


def test_a_required_rule_of_which_no_graph_was_compiled(rules: fusiondsl.CompiledRules) -> None:
    with pytest.raises(RequiredRuleError) as raised, installed(rules, require=["gated"]):
        pass
    assert str(raised.value) == "required, but no graph was compiled:\n  gated: nothing ran it"


def test_a_required_rule_that_cannot_fire_is_an_error_at_once() -> None:
    rules = load_source(GLU.replace("{ vectors: ", '{ env.arch == "gfx950"; vectors: '))
    for target in (None, fusiondsl.Target(arch="gfx942")):
        with pytest.raises(RequiredRuleError, match=r"gated: .*env\.arch"):
            rules.compile(target).graph_pass(require="gated")
    rules.compile(fusiondsl.Target(arch="gfx950")).graph_pass(require="gated")


def test_settings_of_the_environment(
    rules: fusiondsl.CompiledRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSIONDSL_OFF", "gated, ")
    monkeypatch.setenv("FUSIONDSL_REQUIRE", "dou*")
    monkeypatch.setenv("FUSIONDSL_DRY_RUN", "1")
    fusion = torch_compile.make_pass(rules)
    assert (fusion.off, fusion.required) == (("gated",), ("doubled",))
    assert fusion.settings.dry_run
    assert not rules.graph_pass().off
    monkeypatch.setenv("FUSIONDSL_DRY_RUN", "perhaps")
    with pytest.raises(ValueError, match="FUSIONDSL_DRY_RUN is `perhaps`, which is neither 1 nor"):
        torch_compile.make_pass(rules)


def test_names_that_fit_no_rule(rules: fusiondsl.CompiledRules) -> None:
    with pytest.raises(ValueError, match="no rule is called `gate`; did you mean `gated`"):
        rules.graph_pass(off=["gate"])
    with pytest.raises(ValueError, match="`gated` is both required and switched off"):
        rules.graph_pass(off=["gated"], require=["*"])


def test_reports_go_to_a_file(
    rules: fusiondsl.CompiledRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORT, str(tmp_path / "report.txt"))
    with installed(rules):
        compiled()(X)
    text = (tmp_path / "report.txt").read_text()
    assert text.startswith("graph of 6 nodes\nnodes: 6 -> 3\nfired    1  gated\n")


# --- graphs --------------------------------------------------------------------------------------


def test_sizes_that_are_backed(rules: fusiondsl.CompiledRules) -> None:
    with installed(rules) as fusion:
        function = compiled()
        for tokens in (7, 33, 128):
            x = torch.randn(tokens, 128)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(function(x), gate(x))
    assert [report.counts for report in fusion.reports] == [{"gated": 1}], "one graph for all sizes"


def test_sizes_that_are_not(rules: fusiondsl.CompiledRules) -> None:
    """How many rows are left is known when the graph runs."""

    def function(x: Tensor) -> Tensor:
        return gate(x[x[:, 0] > 0]) * 2

    with (
        installed(rules) as fusion,
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
    ):
        made = torch.compile(function, fullgraph=True)
        for seed in range(3):
            x = torch.randn(50, 128, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(made(x), function(x))
    assert [report.counts for report in fusion.reports] == [{"gated": 1}]


def test_several_graphs_and_one_of_them_with_the_source(rules: fusiondsl.CompiledRules) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.relu()
        torch._dynamo.graph_break()
        return gate(y)

    torch._dynamo.reset()
    with installed(rules, require="gated") as fusion:
        torch.testing.assert_close(torch.compile(function)(X), function(X))
    assert [report.counts for report in fusion.reports] == [{}, {"gated": 1}]


def test_training_compiles_two_graphs(rules: fusiondsl.CompiledRules) -> None:
    x = torch.randn(7, 128, requires_grad=True)
    with torch.enable_grad(), installed(rules) as fusion:
        compiled()(x).sum().backward()
    other = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        gate(other).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert [report.counts for report in fusion.reports] == [{"gated": 1}, {}]


def test_a_value_that_is_kept_for_the_backward_graph(rules: fusiondsl.CompiledRules) -> None:
    """It is computed from the rule's input, and so may stay beside what the rule writes."""

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_kept = op is torch.ops.aten.sigmoid.default
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)

    def keeping(x: Tensor) -> Tensor:
        kept: Tensor = checkpoint(gate, x, use_reentrant=False, context_fn=contexts)
        return kept

    def gradient(function: Any) -> Tensor:
        x = X.clone().requires_grad_()
        with torch.enable_grad():
            function(x).sum().backward()
        assert x.grad is not None
        return x.grad

    with installed(rules) as fusion:
        torch.testing.assert_close(gradient(torch.compile(keeping)), gradient(gate))
    forward = fusion.reports[0]
    assert (forward.counts, forward.nodes_before - forward.nodes_after) == ({"gated": 1}, 1)


@pytest.mark.parametrize("positive", [True, False])
def test_both_sides_of_a_branch(rules: fusiondsl.CompiledRules, positive: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda v: gate(v), lambda v: gate(v * 2), (x,))

    x = X.abs() if positive else -X.abs()
    with installed(rules) as fusion:
        torch.testing.assert_close(torch.compile(function, fullgraph=True)(x), function(x))
    assert [report.counts for report in fusion.reports] == [{"gated": 1}, {"gated": 1}, {}]


def test_a_region_is_compiled_once(rules: fusiondsl.CompiledRules) -> None:
    region = torch.compiler.nested_compile_region(gate)

    def function(x: Tensor) -> Tensor:
        return region(x).sum() + region(x * 2).sum()

    with installed(rules) as fusion:
        torch.testing.assert_close(torch.compile(function, fullgraph=True)(X), function(X))
    assert [report.counts for report in fusion.reports] == [{"gated": 1}, {}]


def test_an_input_that_is_changed_afterwards(rules: fusiondsl.CompiledRules) -> None:
    def function(x: Tensor) -> Tensor:
        y = gate(x)
        x.add_(1)
        return y

    given, expected = X.clone(), X.clone()
    with installed(rules, require="gated"):
        torch.testing.assert_close(torch.compile(function)(given), function(expected))
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("options", [{"freezing": True}, {"cpp_wrapper": True}])
def test_weights_that_are_frozen_and_wrappers_in_another_language(
    rules: fusiondsl.CompiledRules, options: dict[str, bool]
) -> None:
    module = torch.nn.Linear(128, 128)
    made = torch.compile(lambda x: gate(module(x)))
    with config.patch(options), installed(rules, require="gated"):
        torch.testing.assert_close(made(X), gate(module(X)))


# --- elsewhere -----------------------------------------------------------------------------------


def test_the_graph_may_be_pickled_on_the_way(
    rules: fusiondsl.CompiledRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_fx, "fx_compile_mode", compile_fx.FxCompileMode.SERIALIZE)
    with installed(rules) as fusion:
        torch.testing.assert_close(compiled()(X), gate(X))
    assert fusion.reports[0].counts == {"gated": 1}


def test_inductor_in_another_process_is_refused(
    rules: fusiondsl.CompiledRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion = rules.graph_pass()
    monkeypatch.setattr(compile_fx, "fx_compile_mode", compile_fx.FxCompileMode.SUBPROCESS)
    for use in (install, torch_compile.options):
        with pytest.raises(RuntimeError, match="hands no custom pass to it"):
            use(rules)
    with pytest.raises(RuntimeError, match="hands no custom pass to it"), installed(rules):
        pass
    cached = config.patch({POST: fusion, "fx_graph_cache": True})
    with cached, pytest.raises(Exception, match="hands no custom pass to it"):
        compiled()(X)


def test_what_is_compiled_needs_no_pass(rules: fusiondsl.CompiledRules) -> None:
    """Ops stay as they are when the pass and the rules it came from are gone."""
    with installed(rules) as fusion:
        function = compiled()
        function(X)
    gone = weakref.ref(fusion)
    del fusion
    gc.collect()
    assert gone() is None
    torch.testing.assert_close(function(X), gate(X))


def test_copies_share_reports_and_pickles_do_not(rules: fusiondsl.CompiledRules) -> None:
    chain = with_pass(Counted(b"one"), rules.graph_pass(off="doubled"))
    copied, unpickled = copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))
    for other in (copied, unpickled):
        assert other.uuid() == chain.uuid()
        assert other.added[0].off == ("doubled",)
    copied.added[0].reports.append(fusiondsl.Report())
    assert len(chain.added[0].reports) == 1
    assert not unpickled.added[0].reports
