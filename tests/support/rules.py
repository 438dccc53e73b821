"""Rules without the names their authors chose, to compare what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from fusiondsl.dims.expr import Name, Spread
from fusiondsl.ir.program import Rule


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """`node` with other names in every place where a name can stand."""
    if isinstance(node, str):
        return names.get(node, node)
    if isinstance(node, tuple):
        return tuple(_renamed(part, names) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    changed = {f.name: _renamed(getattr(node, f.name), names) for f in fields(node)
               if f.name not in ("span", "func_span", "label", "because", "doc", "op")}  # fmt: skip
    return replace(node, **changed)


def canonical(rule: Rule) -> Rule:
    """Names by where they first stand, in the parameters and then in the calls."""
    names: dict[str, str] = {}

    def visit(node: Any) -> None:
        if isinstance(node, str) and node not in ("read", "float", "str", "none", "tokens"):
            names.setdefault(node, f"n{len(names)}")
        elif isinstance(node, Name):
            visit(node.id)
        elif isinstance(node, Spread):
            visit(node.name)

    for param in rule.params:
        visit(param.name)
        for dim in getattr(param.type, "dims", ()):
            visit(dim)
    for call in (*rule.match, *rule.replace):
        for name in call.results:
            if name is not None:
                visit(name)
    renamed: Rule = replace(_renamed(rule, names), order=0)
    return replace(
        renamed,
        name=rule.name,
        outputs=tuple(sorted(renamed.outputs)),
        types=tuple(sorted(renamed.types)),
        before=rule.before,
        after=rule.after,
    )
