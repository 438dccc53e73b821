"""Extern predicates, answered by an integration that knows the layers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, fx

import fusiondsl
from fusiondsl import Answer, CompiledRules, Report, Target, artifact
from fusiondsl.diagnostics.diagnostic import FusionError
from fusiondsl.engine.report import RefusalKind
from fusiondsl.ops.registry import register
from tests.support.capture import Captured, traced

TEXT = """
extern predicate has_kernel(l: layer, heads: int, kind: dtype)
extern predicate is_enabled()

op predicated.attend(x: D[t.., H], l: layer) -> (y: D[t.., H]) {
  means { y = relu(x) }
}
op predicated.double_attend(x: D[t.., H], l: layer) -> (y: D[t.., H]) {
  means { y = relu(2.0 * x) }
}

rule double_attend(x: D[t.., H], l: layer) {
  match   { y = predicated.attend(2.0 * x, l) }
  replace { y = predicated.double_attend(x, l) }
  where   { kernel: has_kernel(l, H, D) }
}

rule triple_attend(x: D[t.., H], l: layer) {
  match   { y = predicated.attend(3.0 * x, l) }
  replace { y = predicated.double_attend(1.5 * x, l) }
  where   { enabled: is_enabled() }
  allow   { assoc }
}

rule attend_any_width(x: D[t.., H], l: layer) {
  match   { y = predicated.attend(4.0 * x, l) }
  replace { y = predicated.double_attend(2.0 * x, l) }
  where   { tokens: has_kernel(l, t, D) }
  allow   { assoc }
}
"""
RULES = fusiondsl.load_source(TEXT)


@dataclass(frozen=True)
class Layer:
    """A layer of a model, as an inference engine would have it."""

    name: str
    heads: int
    has_kernel: bool


def answers(layers: Iterable[Layer]) -> tuple[Answer, ...]:
    """The test integration: it asks every layer, and says so for each."""
    return tuple(
        Answer(
            "has_kernel", layer.has_kernel, {"l": layer.name, "heads": layer.heads, "kind": "f32"}
        )
        for layer in layers
    )


def compiled(*given: Answer) -> CompiledRules:
    return RULES.compile(Target(answers=given))


def graph(factor: float, layer: str = "layers.0", width: int = 64) -> Captured:
    register(RULES.program)

    def source(x: Tensor) -> Tensor:
        attended: Tensor = torch.ops.fusiondsl.predicated_attend(x * factor, layer)
        return attended

    return traced(source, torch.ones(7, width))


def outcome(rules: CompiledRules, captured: Captured) -> tuple[dict[str, int], Report]:
    report = rules.apply(captured.gm)
    return dict(report.counts), report


def refusal(report: Report, rule: str) -> tuple[RefusalKind, str | None, str]:
    (only,) = report.refusals_of(rule)
    return only.kind, only.label, only.message


def test_all_layers_say_yes() -> None:
    layers = [Layer("layers.0", 64, True), Layer("layers.1", 64, True)]
    counts, _ = outcome(compiled(*answers(layers)), graph(2.0))
    assert counts == {"double_attend": 1}


def test_all_layers_say_no() -> None:
    layers = [Layer("layers.0", 64, False), Layer("layers.1", 64, False)]
    counts, report = outcome(compiled(*answers(layers)), graph(2.0))
    assert counts == {}
    assert refusal(report, "double_attend")[:2] == (RefusalKind.PREDICATE_FALSE, "kernel")


def test_layers_that_disagree_are_unknown_whichever_the_graph_names() -> None:
    """One compiled graph serves them all."""
    layers = [Layer("layers.0", 64, True), Layer("layers.1", 64, False)]
    for name in ("layers.0", "layers.1"):
        counts, report = outcome(compiled(*answers(layers)), graph(2.0, name))
        assert counts == {}
        kind, label, message = refusal(report, "double_attend")
        assert (kind, label) == (RefusalKind.PREDICATE_UNKNOWN, "kernel")
        assert message == (
            "has_kernel(heads = 64, kind = f32) is true for layers.0 and false for layers.1"
        )


def test_layers_of_another_geometry_do_not_count() -> None:
    layers = [Layer("layers.0", 64, True), Layer("layers.1", 32, False)]
    rules = compiled(*answers(layers))
    assert outcome(rules, graph(2.0))[0] == {"double_attend": 1}
    counts, report = outcome(rules, graph(2.0, width=32))
    assert counts == {}
    assert refusal(report, "double_attend")[0] is RefusalKind.PREDICATE_FALSE


def test_no_answer_is_unknown_and_reported() -> None:
    for rules in (compiled(), compiled(*answers([Layer("layers.0", 32, True)]))):
        counts, report = outcome(rules, graph(2.0))
        assert counts == {}
        kind, label, message = refusal(report, "double_attend")
        assert (kind, label) == (RefusalKind.PREDICATE_UNKNOWN, "kernel")
        assert message == "nobody answers has_kernel(heads = 64, kind = f32)"


def test_an_answer_to_whatever_is_asked() -> None:
    assert outcome(compiled(Answer("has_kernel", True)), graph(2.0))[0] == {"double_attend": 1}


def test_answers_are_type_strict() -> None:
    answer = Answer("has_kernel", True, {"l": "layers.0", "heads": True, "kind": "f32"})
    assert outcome(compiled(answer), graph(2.0, width=1))[0] == {}


def with_layer_input(captured: Captured, value: object, late: bool = False) -> fx.Node:
    """The layer as an input of the graph, as vLLM has it, or as an attribute right in front."""
    (call,) = [n for n in captured.gm.graph.nodes if "attend" in str(n.target)]
    first = next(iter(captured.gm.graph.nodes))
    with captured.gm.graph.inserting_before(call if late else first):
        if late:
            captured.gm.layer = value
            layer = captured.gm.graph.create_node("get_attr", "layer")
        else:
            layer = captured.gm.graph.placeholder("layer")
    layer.meta["val"] = value
    call.args = (call.args[0], layer)
    return layer


@pytest.mark.parametrize("late", [False, True])
def test_a_layer_that_is_a_value_of_the_graph_is_handed_on(late: bool) -> None:
    captured = graph(2.0)
    layer = with_layer_input(captured, object(), late)
    counts, _ = outcome(compiled(Answer("has_kernel", True)), captured)
    assert counts == {"double_attend": 1}
    (call,) = [n for n in captured.gm.graph.nodes if "attend" in str(n.target)]
    assert "double_attend" in str(call.target)
    assert call.args[1] is layer
    captured.gm.graph.lint()
    x = torch.randn(7, 64)
    given = [x] if late else ["layers.5", x]
    (y,) = Captured(captured.gm, tuple(range(len(given)))).run(given)
    torch.testing.assert_close(y, torch.relu(2 * x))


@pytest.mark.parametrize("value", [torch.ones(3), 7])
def test_a_tensor_or_a_number_is_no_layer(value: object) -> None:
    captured = graph(2.0)
    with_layer_input(captured, value)
    counts, report = outcome(compiled(Answer("has_kernel", True)), captured)
    assert counts == {}
    assert refusal(report, "double_attend")[0] is RefusalKind.CONSTANT


def test_a_range_is_no_single_question() -> None:
    layers = [Layer("layers.0", 7, True)]
    counts, report = outcome(compiled(*answers(layers)), graph(4.0))
    assert counts == {}
    kind, label, message = refusal(report, "attend_any_width")
    assert (kind, label) == (RefusalKind.PREDICATE_UNKNOWN, "tokens")
    assert "is asked of one number, not of a range" in message


def test_without_arguments_it_is_decided_when_compiled() -> None:
    assert outcome(compiled(Answer("is_enabled", True)), graph(3.0))[0] == {"triple_attend": 1}
    for rules in (compiled(), compiled(Answer("is_enabled", False))):
        counts, report = outcome(rules, graph(3.0))
        assert counts == {}
        assert "triple_attend" in {item.rule for item in report.ineligible}
    (item,) = [i for i in outcome(compiled(), graph(3.0))[1].ineligible if i.label == "enabled"]
    assert item.message == "nobody answers is_enabled()"


def test_answers_are_part_of_the_cache_key() -> None:
    yes, no = Answer("is_enabled", True), Answer("is_enabled", False)
    some = answers([Layer("layers.0", 64, True), Layer("layers.1", 64, True)])
    keys = {compiled(*given).graph_pass().uuid() for given in ((), (yes,), (no,), some)}
    assert len(keys) == 4
    assert compiled(*some).graph_pass().uuid() == compiled(*reversed(some)).graph_pass().uuid()


def test_an_artifact_keeps_answers() -> None:
    given = (*answers([Layer("layers.0", 64, True)]), Answer("is_enabled", False))
    data = artifact.dumps(RULES.program, Target(answers=given))
    loaded = artifact.loads(data)
    assert len(loaded.target.answers) == len(given)
    assert all(answer in given for answer in loaded.target.answers)
    assert loaded.program.predicates == RULES.program.predicates
    rules = CompiledRules(loaded.program, loaded.target)
    assert outcome(rules, graph(2.0))[0] == {"double_attend": 1}


@pytest.mark.parametrize(
    "answer",
    [
        {"predicate": "is_enabled", "value": 1, "args": None},
        {"predicate": "is_enabled", "value": True},
        {"predicate": "is_enabled", "value": True, "args": {"l": []}},
        {"predicate": 3, "value": True, "args": None},
        "is_enabled",
    ],
)
def test_damaged_answers_are_refused(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusiondsl.artifact import format as file_format

    monkeypatch.setattr(file_format, "_answer_data", lambda _: answer)
    data = artifact.dumps(RULES.program, Target(answers=(Answer("is_enabled", True),)))
    with pytest.raises(FusionError, match="FD642"):
        artifact.loads(data)


def test_an_answer_about_other_arguments_is_a_mistake() -> None:
    rules = compiled(Answer("has_kernel", True, {"heads": 64}))
    with pytest.raises(ValueError, match="has_kernel"):
        rules.apply(graph(2.0).gm)
