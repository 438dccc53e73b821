"""The demo's run: compile the shipped patterns, fuse a decoder, compare with eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeAlias

import torch
from torch import Tensor

import fusiondsl
from fusiondsl.demo.config import TP_GROUP, ModelConfig
from fusiondsl.demo.model import Decoder, inputs
from fusiondsl.demo.recorder import Recorder, compile_graph
from fusiondsl.demo.sites import SiteComparison
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Report
from fusiondsl.ir.program import Rule
from fusiondsl.ops import reference_ops, register
from fusiondsl.ops.references.collectives import reference_world
from fusiondsl.resources import patterns_root
from fusiondsl.verify.numerics import Comparison, PackedComparison, compare, compare_fp8

TARGET = fusiondsl.Target(
    arch="gfx950",
    tp_size=2,
    tp_group=TP_GROUP,
    facts={"env.aiter_dynamic_hidden": True, "env.aiter_allreduce_group_quant": True},
)
TOKENS = (7, 128)
"""One compiled graph, with a dynamic token dimension, serves both."""

Outputs: TypeAlias = Mapping[int, Sequence[Tensor]]
"""A decoder's by number of tokens."""


@dataclass(frozen=True)
class Measured:
    """How a decoder's outputs compare with eager's."""

    output: Comparison | PackedComparison
    """Codes and scales if the output is quantised."""
    norm: Comparison
    """A norm in the middle that is read unquantised."""

    @property
    def equal(self) -> bool:
        return self.output.equal and self.norm.equal


@dataclass(frozen=True)
class Outcome:
    config: ModelConfig
    reports: Sequence[Report]
    """One a graph that Inductor compiled."""
    sites: Mapping[int, Sequence[SiteComparison]]
    """Each fused call, by number of tokens."""
    fused: Mapping[int, Measured]
    control: Mapping[int, Measured]
    """Compiled in the same way, without rules."""
    nudge: Mapping[int, Comparison]
    """Inputs of which each is moved by one ulp, against the inputs."""
    nudged: Mapping[int, Measured]
    """What eager makes of that least difference."""


def shipped_rules() -> CompiledRules:
    """Compiled, their ops registered."""
    root = patterns_root() / "rocm_aiter"
    files = sorted(str(path) for path in root.iterdir() if path.suffix in (".fuse", ".yaml"))
    rules = fusiondsl.load(*files).compile(TARGET)
    register(rules.program)
    return rules


def families(rules: CompiledRules) -> Mapping[str, str]:
    """The family of each rule: rules of one file are one."""
    return {rule.name: _file(rule) for rule in rules.program.rules}


def _file(rule: Rule) -> str:
    return PurePath(rule.span.source.name).stem if rule.span is not None else ""


def run(config: ModelConfig, rules: CompiledRules) -> Outcome:
    """One decoder; references stand in for the GPU kernels."""
    graph_pass = rules.graph_pass(tokens=range(1, config.max_tokens + 1))
    recorder = Recorder(graph_pass)
    given = {tokens: inputs(config, tokens) for tokens in TOKENS}
    moved = {tokens: (_nudged(hidden), at) for tokens, (hidden, at) in given.items()}
    sites: dict[int, Sequence[SiteComparison]] = {}
    with reference_ops(), reference_world(_two_ranks), torch.no_grad():
        model = Decoder(config)
        eager = _outputs(model, given)
        nudged = _outputs(model, moved)
        compiled = torch.compile(model, backend=recorder.backend, fullgraph=True)
        fused: dict[int, Sequence[Tensor]] = {}
        for tokens in TOKENS:
            fused[tokens] = compiled(*given[tokens])
            sites[tokens] = recorder.compare_sites()
        control = _outputs(torch.compile(model, backend=compile_graph, fullgraph=True), given)
    return Outcome(
        config,
        tuple(graph_pass.reports),
        sites,
        _measured(config, fused, eager),
        _measured(config, control, eager),
        {tokens: compare(moved[tokens][0], given[tokens][0]) for tokens in TOKENS},
        _measured(config, nudged, eager),
    )


def _two_ranks(x: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """This rank's partial sums and a stand-in for the other rank's."""
    return x, x.roll(1, -1)


def _nudged(x: Tensor) -> Tensor:
    bits = x.view(torch.int16 if x.dtype.itemsize == 2 else torch.int32)
    return (bits ^ 1).view(x.dtype)


def _outputs(model: Callable[..., Any], given: Mapping[int, tuple[Tensor, Tensor]]) -> Outputs:
    return {tokens: model(*arguments) for tokens, arguments in given.items()}


def _measured(config: ModelConfig, outputs: Outputs, eager: Outputs) -> Mapping[int, Measured]:
    return {tokens: _measure(config, outputs[tokens], eager[tokens]) for tokens in TOKENS}


def _measure(config: ModelConfig, outputs: Sequence[Tensor], eager: Sequence[Tensor]) -> Measured:
    norm = compare(outputs[-1], eager[-1])
    if config.output == "none":
        return Measured(compare(outputs[0], eager[0]), norm)
    codes = compare_fp8((outputs[0], outputs[1]), (eager[0], eager[1]))
    return Measured(codes, norm)
