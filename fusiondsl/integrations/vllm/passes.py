"""The rules as a pass of vLLM: honours compile ranges, survives copying, pickling and hashing."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import fx
from vllm.compilation.passes import inductor_pass
from vllm.compilation.passes.vllm_inductor_pass import VllmPatternMatcherPass

from fusiondsl import ir
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.engine import settings as engine
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.graph_pass import FusionPass
from fusiondsl.integrations.vllm import reports
from fusiondsl.integrations.vllm.settings import Settings
from fusiondsl.target import Answer, Target

_PREFIX = "fusiondsl."
"""Of our rows in vLLM's match table."""


class VllmFusionPass(inductor_pass.InductorPass):  # type: ignore[misc]
    """Applies a rule set to every graph that vLLM compiles.

    Its ops are registered wherever it is unpickled: a compiled graph that comes from vLLM's cache
    calls them although no pass runs.
    """

    def __init__(
        self,
        program: ir.Program,
        target: Target,
        settings: Settings,
        *,
        from_environment: bool = False,
    ) -> None:
        self.program = program
        """With the rules that are off."""
        self.settings = settings
        self.from_environment = from_environment
        """Put here because of `FUSIONDSL_RULES`, not by the user's own configuration."""
        self.inner: inductor_pass.InductorPass | None = None
        """A pass that was in the slot before; it runs first."""
        # What is required is asked after the start: the target is not known before.
        asked = engine.Settings(off=settings.off, dry_run=settings.dry_run)
        self._fusion = FusionPass(program, target, settings=asked)

    @property
    def rules(self) -> CompiledRules:
        return self._fusion.rules

    @property
    def target(self) -> Target:
        return self._fusion.rules.target

    def __call__(self, graph: fx.Graph) -> None:
        if self.inner is not None:
            self.inner(graph)
        tokens = compile_range()
        start = time.process_time()
        self._fusion.tokens = tokens
        try:
            self._fusion(graph)
        finally:
            self._fusion.tokens = None  # no part of what the pass is
        seconds = time.process_time() - start
        report = self._fusion.reports.pop()
        reports.add(report, tokens, seconds)
        for rule, count in report.counts.items():
            VllmPatternMatcherPass.match_table[_PREFIX + rule] += count

    def uuid(self) -> str:
        """Of rules, declarations, facts, settings and versions; blind to paths and hash seeds."""
        own = self._fusion.identity().hex()
        if self.inner is None:
            return own
        return hashlib.sha256(f"{own} {self.inner.uuid()}".encode()).hexdigest()

    # --- what becomes of it on its way to the graphs ---------------------------------------------

    def with_target(self, target: Target) -> VllmFusionPass:
        """The same for another target."""
        other = copy.copy(self)
        other._fusion = self._fusion.with_target(target)
        return other

    def answer(self, answers: Iterable[Answer]) -> None:
        """Takes what layers say, once there are layers: before a graph is compiled."""
        target = replace(self.target, answers=tuple(answers))
        if target != self.target:
            self._fusion = self._fusion.with_target(target)

    def __deepcopy__(self, memo: dict[int, Any]) -> VllmFusionPass:
        # The rules are never changed, and a configuration is copied often.
        memo[id(self)] = copied = copy.copy(self)
        return copied

    def __copy__(self) -> VllmFusionPass:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __setstate__(self, state: dict[str, Any]) -> None:
        from fusiondsl.integrations.vllm.hooks import install

        self.__dict__.update(state)
        install()


def checked_inner(found: Any) -> inductor_pass.InductorPass | None:
    """A pass that is in the slot already, if the rules can go behind it."""
    if found is None:
        return None
    uuid = getattr(found, "uuid", None)
    if callable(uuid) and uuid() is not None and callable(found):
        return found
    diagnostics = Diagnostics()
    diagnostics.error(
        "FD723",
        f"the slot of the rules holds a `{type(found).__name__}` without a `uuid`",
        None,
        help="give it a `uuid`, or put the rules elsewhere with `FUSIONDSL_PLACE`",
    )
    raise FusionError(diagnostics)


def compile_range() -> range | None:
    """The token counts that the graph being compiled is for, where vLLM compiles it."""
    context = inductor_pass._pass_context
    if context is None:
        return None
    return range(context.compile_range.start, context.compile_range.end + 1)
