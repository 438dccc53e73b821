"""Printed graphs wherever they stand: logs, traces, files of debuggers, issues."""

from fusiondsl.graphs.dumps.excerpt import Excerpt
from fusiondsl.graphs.dumps.index import Progress, index
from fusiondsl.graphs.dumps.otherwise import what_else
from fusiondsl.graphs.dumps.parse import parse
from fusiondsl.graphs.dumps.stages import stage_of
from fusiondsl.graphs.dumps.unit import Entry, Kind, Unit

__all__ = [
    "Entry",
    "Excerpt",
    "Kind",
    "Progress",
    "Unit",
    "index",
    "parse",
    "stage_of",
    "what_else",
]
