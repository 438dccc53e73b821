"""`CompiledRules`: the rules of one program for one target, ready for graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from torch import fx

from fusiondsl import artifact, ir
from fusiondsl.engine.apply import Plan, apply, build_plan
from fusiondsl.engine.compile import Compiled, PlanRow, compile_program
from fusiondsl.engine.plan import plan_rows
from fusiondsl.engine.report import Report
from fusiondsl.target import Target

if TYPE_CHECKING:
    from torch._inductor.pattern_matcher import PatternMatcherPass

    from fusiondsl.engine.graph_pass import FusionPass
    from fusiondsl.engine.registration import Registration
    from fusiondsl.engine.why import Answer, Audit
    from fusiondsl.proof import Prover, Verdict


class CompiledRules:
    """Immutable once built; applying changes only the graph it is given."""

    def __init__(self, program: ir.Program, target: Target | None = None) -> None:
        self.program = program
        self.target = target if target is not None else Target()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CompiledRules:
        """The rules of an artifact, for the target they were compiled for."""
        loaded = artifact.load(path)
        return cls(loaded.program, loaded.target)

    @cached_property
    def compiled(self) -> Compiled:
        return compile_program(self.program, self.target)

    @cached_property
    def plan(self) -> Plan:
        return build_plan(self.compiled)

    @cached_property
    def prover(self) -> Prover:
        from fusiondsl.proof import Prover  # with all that checks rules, which no graph needs

        return Prover(self.program)

    def proof(self, name: str) -> Verdict:
        """What is proved about the rule `name`."""
        return self.prover.rule(next(r for r in self.program.rules if r.name == name))

    def rows(self) -> list[PlanRow]:
        """The plan: every rule with its admitted forms, order, eligibility and token range."""
        return plan_rows(self.compiled)

    def apply(
        self,
        graph: fx.GraphModule | fx.Graph,
        *,
        tokens: range | None = None,
        rewrite: bool = True,
    ) -> Report:
        """Rewrites the graph in place and reports every site.

        `tokens` is the range of token counts the graph will run with; conditions on `tokens` are
        decided for all of it or not at all. With `rewrite` False nothing is changed. Raises
        `ValueError` where `tokens` is empty.
        """
        _check(tokens)
        inner = graph.graph if isinstance(graph, fx.GraphModule) else graph
        report = apply(self.compiled, self.plan, inner, tokens=tokens, rewrite=rewrite)
        if isinstance(graph, fx.GraphModule) and report.fired and rewrite:
            graph.recompile()
        return report

    def why(
        self,
        graph: fx.GraphModule | fx.Graph,
        *,
        tokens: range | None = None,
        rules: Iterable[str] | None = None,
        site: str | None = None,
        top: int = 3,
    ) -> Answer:
        """Every site where a rule fires or comes close, and all that keeps it from firing.

        The graph is left as it is. `rules` are the names asked about, by default all; `site` is the
        name of a node: only what concerns it is answered. Rules that the target rules out are
        matched as well. Edits are tried for the first `top` kinds of near miss of a rule.
        """
        _check(tokens)
        from fusiondsl.engine.why import why

        inner = graph.graph if isinstance(graph, fx.GraphModule) else graph
        return why(self.compiled, self.plan, inner, tokens=tokens, rules=rules, site=site, top=top)

    def audit(
        self,
        graph: fx.GraphModule | fx.Graph,
        *,
        tokens: range | None = None,
        rules: Iterable[str] | None = None,
    ) -> Audit:
        """What the graph has fused, what the rules fuse, and what they do not, with the reason.

        The graph is left as it is. `rules` are the names asked about, by default all.
        """
        from fusiondsl.engine.why import audit_of

        return audit_of(self.why(graph, tokens=tokens, rules=rules, top=0))

    def graph_pass(
        self,
        *,
        tokens: range | None = None,
        off: Iterable[str] | str = (),
        require: Iterable[str] | str = (),
        dry_run: bool = False,
    ) -> FusionPass:
        """A pass for Inductor's custom pass slots, with a content-based `uuid`.

        `off` and `require` name rules, or patterns of names: `off` leaves them out, and of those in
        `require` `check()` of the pass says which fired nowhere, and why. With `dry_run` graphs are
        left as they are and the pass only reports.
        """
        _check(tokens)
        from fusiondsl.engine.graph_pass import FusionPass  # imports Inductor
        from fusiondsl.engine.settings import Settings

        settings = Settings.of(off, require, dry_run)
        return FusionPass(self.program, self.target, tokens=tokens, settings=settings)

    def register(
        self,
        patterns: PatternMatcherPass,
        *,
        tokens: range | None = None,
        prepend: bool = False,
    ) -> Registration:
        """Registers the rules in a pass of Inductor, beside whatever patterns it has.

        `prepend` puts them before the patterns registered so far, else they come after. What the
        pass cannot do is reported as needing the graph pass.
        """
        _check(tokens)
        from fusiondsl.engine.registration import Registration  # imports Inductor

        registration = Registration(self.compiled, self.plan, tokens)
        registration.add_to(patterns, prepend=prepend)
        return registration

    def __reduce__(self) -> tuple[type[CompiledRules], tuple[ir.Program, Target]]:
        return CompiledRules, (self.program, self.target)


def _check(tokens: range | None) -> None:
    if tokens is not None and not tokens:
        raise ValueError(f"{tokens} has no token count; range(1, 257) has 1 to 256")
