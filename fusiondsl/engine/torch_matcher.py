"""All that is used of Inductor's pattern matcher: the same names from torch 2.9 to 2.14."""

from __future__ import annotations

from torch import fx
from torch._dynamo.utils import counters
from torch._inductor import pattern_matcher
from torch._inductor.lowering import fallback_node_due_to_unsupported_type
from torch._inductor.pattern_matcher import (
    FailedMatch,
    Match,
    MatchContext,
    PatternExpr,
    PatternMatcherPass,
    register_graph_pattern,
)

__all__ = [
    "FailedMatch",
    "Match",
    "MatchContext",
    "PatternExpr",
    "PatternMatcherPass",
    "created",
    "register_graph_pattern",
    "rewrites",
    "skips",
]


def rewrites() -> int:
    """How many matches of any `PatternMatcherPass` have been applied so far."""
    return int(counters[getattr(pattern_matcher, "backend", "inductor")]["pattern_matcher_count"])


def created(graph: fx.Graph) -> int:
    """A number that grows with every node made, and never falls."""
    namespace = getattr(graph, "_graph_namespace", None)
    return len(getattr(namespace, "_used_names", ()))


def skips(node: fx.Node) -> bool:
    """A `PatternMatcherPass` offers this node to no pattern, for the tensors it reads or makes."""
    return bool(fallback_node_due_to_unsupported_type(node, allow_cpu_inputs=False))
