"""From rule files and settings to a pass, and from a pass to one that knows its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fusiondsl import artifact, ir
from fusiondsl.engine.bounds import end_points
from fusiondsl.engine.prospects import without_prospects
from fusiondsl.facts import target_with
from fusiondsl.integrations.vllm.engine import engine_of
from fusiondsl.integrations.vllm.facts import facts_of
from fusiondsl.integrations.vllm.layers import foreseen_answers, not_asked_of_layers
from fusiondsl.integrations.vllm.outlook import surroundings_of
from fusiondsl.integrations.vllm.passes import VllmFusionPass
from fusiondsl.integrations.vllm.settings import Settings, check_rule_names
from fusiondsl.ir.strata import written_ops
from fusiondsl.target import Fact, Target

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def fusion_pass(
    *rules: str | Path,
    facts: Mapping[str, Fact] | None = None,
    off: Iterable[str] = (),
    require: Iterable[str] = (),
    strict: bool = False,
    dry_run: bool = False,
) -> VllmFusionPass:
    """A pass for `post_grad_custom_post_pass` of vLLM's `inductor_compile_config`.

    That is the place after vLLM's own passes; `post_grad_custom_pre_pass` is the one before. What
    the target is, and where compile ranges end, is filled in when vLLM builds its configuration;
    `facts` override what it says.
    """
    from fusiondsl.integrations.vllm.hooks import install

    install()
    settings = Settings(
        tuple(map(str, rules)), dict(facts or {}), tuple(off), tuple(require), strict, dry_run
    )
    return build_pass(settings)


def build_pass(settings: Settings, *, from_environment: bool = False) -> VllmFusionPass:
    """Reads and checks the rules; raises `FusionError` with all that is wrong with them."""
    program, compiled_for = _read(settings)
    own = replace(settings, facts={**compiled_for.known(), **settings.facts})
    target = replace(target_with(own.facts), answers=compiled_for.answers)
    check_rule_names(own, [rule.name for rule in program.rules])
    return VllmFusionPass(program, target, own, from_environment=from_environment)


def _read(settings: Settings) -> tuple[ir.Program, Target]:
    if len(settings.rules) == 1 and artifact.is_artifact(settings.rules[0]):
        loaded = artifact.load(settings.rules[0])
        return loaded.program, loaded.target
    from fusiondsl.kept import load_once  # reads and checks text, which an artifact has behind it

    return load_once(*settings.rules).program, Target()


def target_of(given: VllmFusionPass, config: VllmConfig) -> Target:
    """What vLLM says of the target, below what an artifact or the user says.

    Of answers to extern predicates those count that no layer of the model will give.
    """
    facts = {**facts_of(config), **given.settings.facts}
    return replace(target_with(facts), answers=not_asked_of_layers(given.target.answers))


def ends_for(
    ready: VllmFusionPass, config: VllmConfig, others: Iterable[VllmFusionPass] = ()
) -> dict[int, tuple[str, ...]]:
    """The end points of compile ranges that the rules ask for, with their names."""
    most = config.scheduler_config.max_num_batched_tokens
    if not most:
        return {}
    left_out = left_out_for(ready, config, others)
    ends = end_points(ready.rules.compiled, most, left_out=left_out)
    return {end: names for end, names in ends.items() if end > 1}


def left_out_for(
    ready: VllmFusionPass, config: VllmConfig, others: Iterable[VllmFusionPass] = ()
) -> dict[str, str]:
    """Rules that have a site in none of the engine's graphs, with why.

    `others` are further passes of the engine.
    """
    programs = [ready.rules.program, *(other.rules.program for other in others)]
    written = {op for program in programs for rule in program.rules for op in written_ops(rule)}
    engine = replace(
        engine_of(config),
        answers=foreseen_answers(ready.rules.program, config),
        written=frozenset(written),
    )
    return without_prospects(ready.rules.compiled, surroundings_of(engine))
