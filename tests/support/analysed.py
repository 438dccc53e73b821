"""Programs of rules that need not compute what they replace, for tests of what comes before."""

from __future__ import annotations

from fusiondsl.analysis import analyse
from fusiondsl.analysis.modules import Loader
from fusiondsl.diagnostics.diagnostic import Diagnostics, FusionError
from fusiondsl.diagnostics.source import Source
from fusiondsl.ir.program import Program


def analysed(text: str) -> Program:
    """Checked but for proofs. Raises `FusionError` with every error found."""
    diagnostics = Diagnostics()
    loader = Loader(diagnostics)
    loader.add_source(Source("<string>.fuse", text))
    program = analyse(loader.finish(), diagnostics)
    if diagnostics.has_errors:
        raise FusionError(tuple(diagnostics))
    return program
