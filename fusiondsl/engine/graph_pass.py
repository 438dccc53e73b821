"""The rules as an Inductor `CustomGraphPass`: picklable, with a `uuid` made of its content."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from fusiondsl import __version__, ir
from fusiondsl.artifact import identity
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.report import Report
from fusiondsl.target import Target

WHY = "FUSIONDSL_WHY"
"""A file for what `why` says of every graph."""

log = logging.getLogger("fusiondsl")


class FusionPass(CustomGraphPass):
    """Applies a rule set to every graph Inductor compiles.

    `reports` collects one report a graph. `inner` is a pass that was in the slot before: it runs
    first, and its identity is part of this one's.
    """

    def __init__(
        self,
        program: ir.Program,
        target: Target,
        *,
        tokens: range | None = None,
        inner: Callable[[fx.Graph], Any] | None = None,
    ) -> None:
        self.rules = CompiledRules(program, target)
        self.tokens = tokens
        self.inner = inner
        self.reports: list[Report] = []
        self._uuid: bytes | None = None

    def __call__(self, graph: fx.Graph) -> None:
        if self.inner is not None:
            self.inner(graph)
        self._tell_why(graph)
        report = self.rules.apply(graph, tokens=self.tokens)
        self.reports.append(report)
        log.debug("%s", report)

    def _tell_why(self, graph: fx.Graph) -> None:
        """Adds to the file that `FUSIONDSL_WHY` names, if it does, what `why` says of the graph."""
        name = os.environ.get(WHY)
        if not name:
            return
        text = f"graph of {len(graph.nodes)} nodes\n{self.rules.why(graph, tokens=self.tokens)}\n\n"
        try:
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            log.warning("cannot write %s, which %s names: %s", name, WHY, error.strerror)

    def uuid(self) -> bytes | None:
        """Hash of rules, declarations, target facts, token range and versions.

        None where the pass before this one has no identity: then caching is off, as it was.
        """
        if self.inner is not None:
            before = getattr(self.inner, "uuid", lambda: None)()
            if before is None:
                return None
            return hashlib.sha256(self._content() + repr(before).encode()).digest()
        return self._content()

    def _content(self) -> bytes:
        if self._uuid is None:
            digest = hashlib.sha256(identity(self.rules.program, self.rules.target))
            digest.update(repr((self.tokens, torch.__version__, __version__)).encode())
            self._uuid = digest.digest()
        return self._uuid

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["reports"] = []
        return state
