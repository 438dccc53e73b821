"""`load`: rule files to a `RuleSet`, which compiles for a target.

What checks rules is imported late: rules that were checked before need none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusiondsl.diagnostics.diagnostic import Diagnostic, Diagnostics, FusionError, Severity
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Program
from fusiondsl.pause import collection_paused
from fusiondsl.resources import SHIPPED, patterns_root
from fusiondsl.syntax import is_unreadable
from fusiondsl.target import Target

if TYPE_CHECKING:
    from fusiondsl.analysis.modules import Loader
    from fusiondsl.engine import CompiledRules

INPUT, COMPILE = 2, 3
"""Exit codes: input that cannot be read, rules that do not compile."""


@dataclass(frozen=True)
class RuleSet:
    """Checked rules, not yet bound to a target."""

    program: Program
    warnings: tuple[Diagnostic, ...] = ()

    def compile(self, target: Target | None = None) -> CompiledRules:
        """The rules as a match program; what depends on the target only is decided now."""
        from fusiondsl.engine import CompiledRules  # imports torch

        return CompiledRules(self.program, target)


def load(*paths: str | Path) -> RuleSet:
    """Reads and checks rule files, or all rule files of directories.

    `fusiondsl:` stands for the shipped patterns (`fusiondsl:ops/norms.fuse`). Raises `FusionError`
    with every error found.
    """
    return load_by(_loader(Diagnostics()), paths)


def load_by(loader: Loader, paths: Iterable[str | Path]) -> RuleSet:
    """`load` with a loader that has read nothing yet."""
    return _finish(_read(loader, paths), loader.diagnostics)


def load_source(text: str, name: str = "<string>.fuse") -> RuleSet:
    """Checks a text; its imports are relative to the working directory."""
    diagnostics = Diagnostics()
    loader = _loader(diagnostics)
    loader.add_source(Source(name, text))
    return _finish(analyse_loaded(loader, diagnostics), diagnostics)


def check(paths: Iterable[str | Path], diagnostics: Diagnostics) -> Program:
    """Reads and checks, contracts too; what is wrong is found in `diagnostics`."""
    from fusiondsl.analysis.contracts import check_graphs

    program = _read(_loader(diagnostics), paths)
    check_graphs(program.expects, diagnostics)
    return program


def _loader(diagnostics: Diagnostics) -> Loader:
    from fusiondsl.analysis.modules import Loader

    return Loader(diagnostics)


def _read(loader: Loader, paths: Iterable[str | Path]) -> Program:
    with collection_paused():
        for path in paths:
            loader.add(_located(path))
        return analyse_loaded(loader, loader.diagnostics)


def _located(path: str | Path) -> Path:
    text = str(path)
    if text.startswith(SHIPPED):
        return patterns_root() / text.removeprefix(SHIPPED)
    return Path(path)


_ABSENT = frozenset({"FD110", "FD112", "FD114", "FD117", "FD118"})
"""What is said about names that are not known."""


def analyse_loaded(loader: Loader, diagnostics: Diagnostics) -> Program:
    from fusiondsl.analysis import analyse
    from fusiondsl.proof.check import check_proofs

    modules = loader.finish()
    if not diagnostics.has_errors:
        program = analyse(modules, diagnostics)
        if not diagnostics.has_errors:
            check_proofs(program, diagnostics)
        return program
    # Items that could not be read may define what seems to be missing.
    further = Diagnostics()
    program = analyse(modules, further)
    diagnostics.extend(item for item in further if item.code not in _ABSENT)
    return program


def _finish(program: Program, diagnostics: Diagnostics) -> RuleSet:
    if diagnostics.has_errors:
        raise FusionError(in_text_order(diagnostics), exit_code_of(diagnostics))
    return RuleSet(program, in_text_order(diagnostics))


def in_text_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By file and position, what belongs to no text first."""

    def place(item: Diagnostic) -> tuple[str, int]:
        return ("", -1) if item.span is None else (item.span.source.name, item.span.start)

    return tuple(sorted(diagnostics, key=place))


def exit_code_of(diagnostics: Diagnostics) -> int:
    """What the command line returns for these diagnostics."""
    if is_unreadable(diagnostics):
        return INPUT
    errors = any(d.severity is Severity.ERROR for d in diagnostics)
    return COMPILE if errors else 0
