"""The demo's run: compile the shipped patterns, fuse the decoder, compare with eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import torch
from torch import Tensor, nn

import fusiondsl
from fusiondsl.demo.model import TP_GROUP, Decoder, ModelConfig, inputs
from fusiondsl.demo.recorder import Recorder
from fusiondsl.demo.sites import SiteComparison
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


@dataclass(frozen=True)
class Measured:
    """How the fused decoder's outputs compare with eager's at one number of tokens."""

    tokens: int
    quantised: PackedComparison
    """The decoder's output: fp8 codes and one f32 scale a token."""
    norm: Comparison
    """A norm in the middle that is read unquantised."""


@dataclass(frozen=True)
class Outcome:
    families: Mapping[str, str]
    """The pattern file each compiled rule comes from."""
    reports: Sequence[Report]
    """One a graph that Inductor compiled."""
    sites: Sequence[SiteComparison]
    """Each fused call on the inputs of the last run."""
    measured: Sequence[Measured]


def pattern_files() -> list[str]:
    """The shipped rule files."""
    root = patterns_root() / "rocm_aiter"
    return sorted(str(path) for path in root.iterdir() if path.suffix in (".fuse", ".yaml"))


def run(config: ModelConfig) -> Outcome:
    """The whole demo; references stand in for the GPU kernels."""
    rules = fusiondsl.load(*pattern_files()).compile(TARGET)
    register(rules.program)
    graph_pass = rules.graph_pass(tokens=range(1, config.max_tokens + 1))
    recorder = Recorder(graph_pass)
    with reference_ops(), reference_world(_two_ranks), torch.no_grad():
        model = Decoder(config)
        eager = {tokens: model(*inputs(config, tokens)) for tokens in TOKENS}
        fused = _compiled_outputs(model, config, recorder)
        sites = recorder.compare_sites()
    return Outcome(
        {rule.name: _family(rule) for rule in rules.program.rules},
        tuple(graph_pass.reports),
        sites,
        [_measure(tokens, fused[tokens], eager[tokens]) for tokens in TOKENS],
    )


def _family(rule: Rule) -> str:
    """Rules of one file are one family."""
    return PurePath(rule.span.source.name).stem if rule.span is not None else ""


def _two_ranks(x: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """This rank's partial sums and a stand-in for the other rank's."""
    return x, x.roll(1, -1)


def _compiled_outputs(
    model: nn.Module, config: ModelConfig, recorder: Recorder
) -> Mapping[int, Sequence[Tensor]]:
    compiled = torch.compile(model, backend=recorder.backend, fullgraph=True)
    outputs: dict[int, Sequence[Tensor]] = {}
    for tokens in TOKENS:
        hidden, positions = inputs(config, tokens)
        torch._dynamo.mark_dynamic(hidden, 0)
        torch._dynamo.mark_dynamic(positions, 0)
        outputs[tokens] = compiled(hidden, positions)
    return outputs


def _measure(tokens: int, fused: Sequence[Tensor], eager: Sequence[Tensor]) -> Measured:
    return Measured(
        tokens,
        quantised=compare_fp8((fused[0], fused[1]), (eager[0], eager[1])),
        norm=compare(fused[2], eager[2]),
    )
