"""The rules as an Inductor `CustomGraphPass`: picklable, with a `uuid` made of its content."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from fusiondsl import __version__, ir
from fusiondsl.artifact import identity_for, program_identity
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.live import tell, tell_why
from fusiondsl.engine.report import Ineligible, Report
from fusiondsl.engine.required import check_required
from fusiondsl.engine.settings import Settings, chosen
from fusiondsl.ops.lookup import declared_overload
from fusiondsl.ops.registry import register
from fusiondsl.target import Target

WHY = "FUSIONDSL_WHY"
"""A file for what `why` says of every graph; its suffix says in which form."""
REPORT = "FUSIONDSL_REPORT"
"""A file for the report of every graph."""

log = logging.getLogger("fusiondsl")


class FusionPass(CustomGraphPass):
    """Applies a rule set to every graph Inductor compiles.

    `reports` collects one report a graph; copies in the same process share it. Making, copying or
    unpickling a pass registers its ops: a graph that comes from a cache calls them, and then no
    rule is ever compiled.
    """

    def __init__(
        self,
        program: ir.Program,
        target: Target,
        *,
        tokens: range | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        names = [rule.name for rule in program.rules]
        self.off = chosen(self.settings.off, names)
        self.required = chosen(self.settings.require, names)
        _check_settings(self.off, self.required)
        kept = tuple(rule for rule in program.rules if rule.name not in self.off)
        self.rules = CompiledRules(replace(program, rules=kept) if self.off else program, target)
        self.tokens = tokens
        self.reports: list[Report] = []
        self._content: bytes | None = None
        """What copies for other targets share of the identity, once somebody asks for it."""
        register(program)
        self._check_eligible()

    def __call__(self, graph: fx.Graph) -> None:
        title = self._title(graph)
        tell_why(WHY, title, self.rules, graph, self.tokens)
        report = self.rules.apply(graph, tokens=self.tokens, rewrite=not self.settings.dry_run)
        switched_off = tuple(Ineligible(rule, "it is switched off") for rule in self.off)
        report = replace(report, ineligible=(*report.ineligible, *switched_off))
        self.reports.append(report)
        tell(REPORT, lambda: f"{title}\n{report}\n\n")
        log.debug("%s", report)

    def _title(self, graph: fx.Graph) -> str:
        """Which graph it is, in a file about several."""
        nodes = f"graph of {len(graph.nodes)} nodes"
        if self.tokens is None:
            return nodes
        return f"{nodes}, {self.tokens.start} to {self.tokens.stop - 1} tokens"

    @property
    def last_report(self) -> Report | None:
        """Of the graph compiled last; None where none was, or where all came from a cache."""
        return self.reports[-1] if self.reports else None

    def check(self) -> None:
        """Raises `RequiredRuleError` where a required rule has fired in no graph so far."""
        check_required(self.required, self.reports)

    def uuid(self) -> bytes | None:
        """Hash of `identity` and of what this process has of the ops that rules write.

        None where the report is what the pass is for: Inductor then keeps nothing in its cache and
        takes nothing from it, so that the pass is run. Raises `RuntimeError` where Inductor would
        compile in another process.
        """
        check_in_process()
        if self.settings.dry_run or self.required:
            return None
        found = repr(tuple(self._written_schemas()))
        return hashlib.sha256(self.identity() + found.encode()).digest()

    def identity(self) -> bytes:
        """Hash of rules, declarations, target facts, token range, settings and versions."""
        if self._content is None:
            self._content = program_identity(self.rules.program)
        versions = (torch.__version__, __version__)
        asked = (self.tokens, self.settings.dry_run, versions)
        content = identity_for(self._content, self.rules.target)
        return hashlib.sha256(content + repr(asked).encode()).digest()

    def _written_schemas(self) -> Iterator[str]:
        """Of ops of others: a rule is left out where its op is missing or is another one."""
        program = self.rules.program
        for name in sorted({call.op for rule in program.rules for call in rule.replace}):
            decl = program.ops.get(name)
            if decl is not None and decl.extern:
                overload = declared_overload(decl)
                yield f"{name}: {overload._schema if overload is not None else None}"

    def _check_eligible(self) -> None:
        """A required rule that can never fire is an error before anything is compiled."""
        if self.required:
            ineligible = {item.rule for item in self.rules.compiled.ineligible}
            never = [rule for rule in self.required if rule in ineligible]
            check_required(never, [Report(ineligible=self.rules.compiled.ineligible)])

    # --- copies --------------------------------------------------------------------------------

    def with_target(self, target: Target) -> FusionPass:
        """The same rules for another target."""
        other = self.__copy__()
        other.rules = CompiledRules(self.rules.program, target)
        other._check_eligible()
        return other

    def __copy__(self) -> FusionPass:
        """Shares what never changes, and the list of reports."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> FusionPass:
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reports": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        register(self.rules.program)


def check_in_process() -> None:
    """Inductor hands no custom pass to another process, and would cache what it made without."""
    compile_fx = sys.modules.get("torch._inductor.compile_fx")
    mode = getattr(compile_fx, "fx_compile_mode", None)
    if getattr(mode, "name", None) == "SUBPROCESS":
        raise RuntimeError(
            "Inductor compiles in another process here (TORCHINDUCTOR_FX_COMPILE_MODE), and hands "
            "no custom pass to it: rules would be left out without a word. Unset the variable"
        )


def _check_settings(off: tuple[str, ...], required: tuple[str, ...]) -> None:
    both = sorted(set(off) & set(required))
    if both:
        raise ValueError(f"`{both[0]}` is both required and switched off")
