"""Where in compilation a graph was printed, from the names people see."""

from __future__ import annotations

import re
from pathlib import PurePath

_STAGES = (
    (r"before[_ ]post[_ ]grad", "before post-grad passes"),
    (r"post[_ ]grad\.\d+\.[\w.]+\.before|post_grad\.[\w.]+", "post-grad, at a pass"),
    (r"post[_ ]grad|fx_graph_transformed", "after post-grad passes"),
    (r"pre[_ ]grad", "before pre-grad passes"),
    (r"joint", "joint"),
    (r"backward", "backward"),
    (r"forward", "forward"),
    (r"inference|fx_graph_runnable|fx_graph_readable", "before post-grad passes"),
    (r"__graph_code|dynamo_output_graph|__compiled_fn_|Captured Graph", "dynamo"),
)
_TABLE = tuple((re.compile(pattern, re.IGNORECASE), stage) for pattern, stage in _STAGES)


def stage_of(banner: str, record: str, file: str) -> str | None:
    """The stage that a banner, the name of a record or the name of the file tells of."""
    for name in (banner, record, PurePath(file).name):
        for pattern, stage in _TABLE:
            if name and pattern.search(name):
                return stage
    return None
