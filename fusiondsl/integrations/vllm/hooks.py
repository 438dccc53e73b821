"""Where vLLM is listened to: when its configuration is complete, and when a worker starts.

Nothing that decides what is compiled is changed behind vLLM's back: rules and end points go into
its configuration, of which its cache keys are made.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from torch import distributed

from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.render import render_all
from fusiondsl.integrations.vllm import reports
from fusiondsl.integrations.vllm.build import build_pass, ends_for, left_out_for, target_of
from fusiondsl.integrations.vllm.device import CU_COUNT, units_of_this_rank
from fusiondsl.integrations.vllm.layers import answers_of
from fusiondsl.integrations.vllm.log import log
from fusiondsl.integrations.vllm.passes import VllmFusionPass, checked_inner
from fusiondsl.integrations.vllm.plugin import RULES
from fusiondsl.integrations.vllm.settings import AFTER, BEFORE, settings_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

SLOTS = {AFTER: "post_grad_custom_post_pass", BEFORE: "post_grad_custom_pre_pass"}
"""Of `inductor_compile_config`, by place among vLLM's own passes."""

_Item = TypeVar("_Item")

_installed = False


class RulesRefused(RuntimeError):
    """vLLM is not started with these rules; the text is that of the diagnostics, with places."""

    def __init__(self, error: FusionError) -> None:
        super().__init__("\n" + render_all(error.diagnostics))
        self.diagnostics = error.diagnostics


def install() -> bool:
    """Once a process; False where it was done before."""
    global _installed
    if _installed:
        return False
    from vllm.config import VllmConfig
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    _check(VllmConfig, "_set_compile_ranges")
    _check(WorkerWrapperBase, "init_device")
    VllmConfig._set_compile_ranges = _before(_configure, VllmConfig._set_compile_ranges)
    WorkerWrapperBase.init_device = _after(WorkerWrapperBase.init_device, _started)
    _installed = True
    return True


def _check(owner: type, method: str) -> None:
    if hasattr(owner, method):
        return
    from vllm import __version__

    diagnostics = Diagnostics()
    diagnostics.error(
        "FD725",
        f"vLLM {__version__} has no `{owner.__name__}.{method}`, from where rules are put in",
        None,
        help="use vLLM 0.32, or a version of fusiondsl that knows this one",
    )
    raise RulesRefused(FusionError(diagnostics, 4))


def _refused(function: Callable[..., None]) -> Callable[..., None]:
    """Diagnostics as vLLM's log shows them: whole."""

    @wraps(function)
    def told(*args: Any) -> None:
        try:
            function(*args)
        except FusionError as error:
            raise RulesRefused(error) from None

    return told


def _before(ours: Callable[[Any], None], theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def both(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours(self)
        return theirs(self, *args, **kwargs)

    return both


def _after(theirs: Callable[..., Any], ours: Callable[[Any], None]) -> Callable[..., Any]:
    @wraps(theirs)
    def both(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = theirs(self, *args, **kwargs)
        ours(self)
        return result

    return both


# --- the configuration ---------------------------------------------------------------------------


@_refused
def _configure(config: VllmConfig) -> None:
    """Fills the pass slot and adds end points, before vLLM cuts its compile ranges."""
    compilation = config.compilation_config
    slots = compilation.inductor_compile_config
    present = pass_of(config)
    if present is None and os.environ.get(RULES):
        _add(slots)
    elif present is not None and not present.from_environment and os.environ.get(RULES):
        log().warning("%s is ignored: the configuration has rules of its own", RULES)
    for slot in _slots():
        found = slots.get(slot)
        if isinstance(found, VllmFusionPass):
            slots[slot] = _ready(found, config)
    _set_end_points(config)


def _set_end_points(config: VllmConfig) -> None:
    """Those of all passes beside the user's own."""
    ends = _ends(config)
    if log().isEnabledFor(logging.DEBUG):
        for one in _passes(config):
            for rule, reason in left_out_for(one, config, _passes(config)).items():
                log().debug("%s ends no range: %s", rule, reason)
    if ends:
        own = config.compilation_config.compile_ranges_endpoints or []
        config.compilation_config.compile_ranges_endpoints = sorted({*own, *ends})


def _ends(config: VllmConfig) -> set[int]:
    passes = _passes(config)
    return {end for one in passes for end in ends_for(one, config, passes)}


def _add(slots: dict[str, Any]) -> None:
    """The rules that the environment names, behind what is in the slot."""
    settings = settings_of()
    slot = SLOTS[settings.place]
    inner = checked_inner(slots.get(slot))
    slots[slot] = build_pass(settings, from_environment=True)
    slots[slot].inner = inner


def _slots() -> tuple[str, ...]:
    return tuple(SLOTS.values())


def _ready(given: VllmFusionPass, config: VllmConfig) -> VllmFusionPass:
    """The pass for the target that the configuration describes."""
    from vllm.config import CompilationMode

    ready = given.with_target(target_of(given, config))
    passed_over = {answer.predicate for answer in given.target.answers} - {
        answer.predicate for answer in ready.target.answers
    }
    if passed_over:
        names = ", ".join(sorted(passed_over))
        log().info("fusiondsl: answers to %s are those of layers, not of the artifact", names)
    compilation = config.compilation_config
    for item in ready.rules.compiled.ineligible:
        log().debug("%s cannot fire: %s", item.rule, item.message)
    if compilation.mode != CompilationMode.VLLM_COMPILE:
        log().warning("fusiondsl: the rules need compilation mode 3, not %s", compilation.mode)
    return ready


# --- a worker ------------------------------------------------------------------------------------


def pass_of(config: VllmConfig) -> VllmFusionPass | None:
    return next(iter(_passes(config)), None)


def _passes(config: VllmConfig) -> list[VllmFusionPass]:
    slots = config.compilation_config.inductor_compile_config
    return [found for found in map(slots.get, _slots()) if isinstance(found, VllmFusionPass)]


def _started(wrapper: Any) -> None:
    """The process groups are there; the model is not loaded yet."""
    config: VllmConfig = wrapper.vllm_config
    reports.begin(_rank())
    ready = pass_of(config)
    if ready is None:
        return
    worker = wrapper.worker
    _check_device(ready)
    _agree(ready, config)
    _check_end_points(config)
    worker.load_model = _after_call(worker.load_model, lambda: _answer(config))
    worker.compile_or_warm_up_model = _after_call(
        worker.compile_or_warm_up_model, lambda: _finish(config)
    )


def _check_end_points(config: VllmConfig) -> None:
    """What was left out when the configuration was made is to be left out still."""
    most = config.scheduler_config.max_num_batched_tokens
    lacking = sorted(_ends(config) - {*(config.compilation_config.compile_ranges_endpoints or ())})
    if lacking:
        log().warning(
            "fusiondsl: the configuration has changed since its compile ranges were made: rules "
            "would end some at %s, of %d tokens",
            lacking,
            most,
        )


def _after_call(theirs: Callable[..., Any], ours: Callable[[], None]) -> Callable[..., Any]:
    @wraps(theirs)
    def both(*args: Any, **kwargs: Any) -> Any:
        result = theirs(*args, **kwargs)
        ours()
        return result

    return both


def _answer(config: VllmConfig) -> None:
    """The layers of the model are there, and no graph has been compiled."""
    for slot in _slots():
        found = config.compilation_config.inductor_compile_config.get(slot)
        if isinstance(found, VllmFusionPass):
            found.answer(answers_of(found.program, found.target.answers, config))
            reports.keep(found, config)


@_refused
def _finish(config: VllmConfig) -> None:
    ready = pass_of(config)
    if ready is None:
        return
    reports.finish(ready, config)
    # Ranks of a pipeline have different graphs.
    fired = [rule for counts in _of_all_ranks(reports.last_start().counts) for rule in counts]
    asked = ready.settings.strict or ready.settings.require
    reports.require(ready, fired, left_out_for(ready, config, _passes(config)) if asked else {})


def _rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def _of_all_ranks(own: _Item) -> list[_Item]:
    """What every rank says, in their order; all of them must ask."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return [own]
    from vllm.distributed import get_world_group

    found = [own] * distributed.get_world_size()
    distributed.all_gather_object(found, own, group=get_world_group().cpu_group)
    return found


@_refused
def _check_device(ready: VllmFusionPass) -> None:
    """The device of this rank is what the driver said, before anything was compiled for it."""
    said, found = ready.target.known().get(CU_COUNT), units_of_this_rank()
    if found in (None, said) or said is None or CU_COUNT in ready.settings.facts:
        return
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD722",
        f"the device of rank {_rank()} has {found} compute units, where its driver says {said}",
        None,
        help=f"say what holds for all ranks: `FUSIONDSL_FACTS={CU_COUNT}={found}`",
    )
    raise FusionError(diagnostics)


@_refused
def _agree(ready: VllmFusionPass, config: VllmConfig) -> None:
    """All ranks have the same rules, and see the same facts."""
    digests = _of_all_ranks(digest_of(ready, config))
    other = [str(rank) for rank, digest in enumerate(digests) if digest != digests[0]]
    if not other:
        return
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD722",
        f"rules or facts of rank {', '.join(other)} are not those of rank 0",
        None,
        help="install the same versions everywhere, and give every node the same variables",
    )
    raise FusionError(diagnostics)


def digest_of(ready: VllmFusionPass, config: VllmConfig) -> str:
    """Of the rules as this rank has them, and of the target as it sees it."""
    seen = target_of(ready, config).known()
    ends = sorted(_ends(config))
    return hashlib.sha256(f"{ready.uuid()} {sorted(seen.items())} {ends}".encode()).hexdigest()
