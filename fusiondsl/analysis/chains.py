"""Chains of rules: what one rule produces, another may match; that must not go in circles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from fusiondsl.analysis.source import Source, contains_calls
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.ir.program import Rule

PRIMITIVE = "prim."


def check_chains(sources: Iterable[Source], diagnostics: Diagnostics) -> None:
    """Reports rules that would go on rewriting what they made themselves."""
    rules = {}
    for source in sources:
        rules[source.rule.name] = source.rule
        if contains_calls(source.rule.replace, source.calls):
            _report([source.rule], diagnostics)
    graph = _graph(rules.values())
    for circle in _circles(graph):
        members = sorted(name for name in circle if name in rules)
        if len(members) > 1:
            _report([rules[name] for name in members], diagnostics)


def _graph(rules: Iterable[Rule]) -> dict[str, list[str]]:
    """Rules lead to the ops that they add, ops (as `op name`) to the rules that match them."""
    graph: dict[str, list[str]] = defaultdict(list)
    for rule in sorted(rules, key=lambda r: r.name):
        matched = Counter(call.op for call in rule.match)
        added = Counter(call.op for call in rule.replace) - matched
        graph[rule.name] = [f"op {op}" for op in sorted(added) if not op.startswith(PRIMITIVE)]
        for op in sorted(matched):
            if not op.startswith(PRIMITIVE):
                graph[f"op {op}"].append(rule.name)
    return graph


def _circles(graph: Mapping[str, list[str]]) -> list[set[str]]:
    """The strongly connected parts with more than one node (Kosaraju's method)."""
    order: list[str] = []
    seen: set[str] = set()
    for node in graph:
        _finish_order(node, graph, seen, order)
    backwards: dict[str, list[str]] = defaultdict(list)
    for node, targets in graph.items():
        for target in targets:
            backwards[target].append(node)
    found: list[set[str]] = []
    assigned: set[str] = set()
    for node in reversed(order):
        if node not in assigned:
            part = _reach(node, backwards, assigned)
            if len(part) > 1:
                found.append(part)
    return found


def _finish_order(
    start: str, graph: Mapping[str, list[str]], seen: set[str], order: list[str]
) -> None:
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(graph.get(start, ())))]
    while path:
        node, targets = path[-1]
        target = next((t for t in targets if t not in seen), None)
        if target is None:
            order.append(node)
            path.pop()
        else:
            seen.add(target)
            path.append((target, iter(graph.get(target, ()))))


def _reach(start: str, graph: Mapping[str, list[str]], assigned: set[str]) -> set[str]:
    assigned.add(start)
    part, pending = {start}, [start]
    while pending:
        for node in graph.get(pending.pop(), ()):
            if node not in assigned:
                assigned.add(node)
                part.add(node)
                pending.append(node)
    return part


def _report(rules: list[Rule], diagnostics: Diagnostics) -> None:
    names = ", ".join(f"`{rule.name}`" for rule in rules)
    message = (
        f"{names} would rewrite its own result again"
        if len(rules) == 1
        else f"{names} rewrite each other's results in a circle"
    )
    labels = [Label(rule.span, f"`{rule.name}`") for rule in rules[1:] if rule.span is not None]
    diagnostics.error("FD403", message, rules[0].span, labels=labels)
