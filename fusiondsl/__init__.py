"""fusiondsl: rules that fuse operations in FX graphs, written as data.

Importing this imports no torch; what needs it is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "Answer": "fusiondsl.target",
    "CompiledRules": "fusiondsl.engine",
    "FusionError": "fusiondsl.diagnostics.diagnostic",
    "Report": "fusiondsl.engine",
    "RuleSet": "fusiondsl.rules",
    "Target": "fusiondsl.target",
    "load": "fusiondsl.rules",
    "load_source": "fusiondsl.rules",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
