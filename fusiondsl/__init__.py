"""fusiondsl: rules that fuse operations in FX graphs, written as data.

Importing this imports no torch; what needs it is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusiondsl.lazy import on_first_use

if TYPE_CHECKING:
    from fusiondsl.diagnostics.diagnostic import FusionError
    from fusiondsl.engine import CompiledRules, Report
    from fusiondsl.rules import RuleSet, load, load_source
    from fusiondsl.target import Answer, Target

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "CompiledRules",
    "FusionError",
    "Report",
    "RuleSet",
    "Target",
    "__version__",
    "load",
    "load_source",
]

_HOMES = {
    "Answer": "target",
    "CompiledRules": "engine",
    "FusionError": "diagnostics.diagnostic",
    "Report": "engine",
    "RuleSet": "rules",
    "Target": "target",
    "load": "rules",
    "load_source": "rules",
}

__getattr__ = on_first_use(__name__, _HOMES)
