"""Chains of rules: what one rule produces, another may match; that must not go in circles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from fusiondsl.analysis.side import side_of
from fusiondsl.analysis.source import Source, contains_calls
from fusiondsl.analysis.spelled import spellings
from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.ir.program import OpDecl, Rule
from fusiondsl.ir.strata import PRIMITIVE, read_ops


def check_chains(
    sources: Iterable[Source], ops: Mapping[str, OpDecl], diagnostics: Diagnostics
) -> None:
    """Reports rules that would go on rewriting what they made themselves."""
    rules = {source.rule.name: source.rule for source in sources}
    for rule in rules.values():
        if _makes_own_source(rule, ops):
            _report_one(rule, diagnostics)
    graph = _graph(rules, ops)
    for circle in _circles(graph):
        if sum(name in rules for name in circle) > 1:
            _report(_shortest(circle, graph, rules), rules, ops, diagnostics)


def _makes_own_source(rule: Rule, ops: Mapping[str, OpDecl]) -> bool:
    """The new calls hold the whole source again, as it is written or with an op written out."""
    side = side_of(rule)
    if contains_calls(rule.replace, side.calls):
        return True
    written = Counter(call.op for call in rule.replace)
    for spelling in spellings(side, ops):
        if all(op in written for op in spelling.ops):
            spelled = spelling.side_of()
            if spelled is not None and contains_calls(rule.replace, spelled.calls):
                return True
    return False


def _graph(rules: Mapping[str, Rule], ops: Mapping[str, OpDecl]) -> dict[str, list[str]]:
    """Rules lead to the ops that they add, ops (as `op name`) to the rules that match them.

    A rule of primitives alone is led to by rules that make its whole source.
    """
    graph: dict[str, list[str]] = defaultdict(list)
    spelled: dict[int, tuple[str, ...]] = {}
    makers: dict[str, list[Rule]] = defaultdict(list)
    for name in sorted(rules):
        rule = rules[name]
        matched = Counter(call.op for call in rule.match)
        added = Counter(call.op for call in rule.replace) - matched
        graph[name] = [f"op {op}" for op in sorted(added) if not op.startswith(PRIMITIVE)]
        for op in sorted(read_ops(rule, ops, spelled)):
            graph[f"op {op}"].append(name)
        for op in sorted({call.op for call in rule.replace}):
            makers[op].append(rule)
    for name in sorted(rules):
        if all(call.op.startswith(PRIMITIVE) for call in rules[name].match):
            for maker in _makers_of(rules[name], makers):
                graph[maker].append(name)
    return graph


def _makers_of(rule: Rule, makers: Mapping[str, list[Rule]]) -> Iterator[str]:
    source = side_of(rule).calls
    rarest = min((makers.get(call.op, []) for call in source), key=len)
    for maker in rarest:
        if maker.name != rule.name and contains_calls(maker.replace, source):
            yield maker.name


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


def _shortest(
    circle: set[str], graph: Mapping[str, list[str]], rules: Mapping[str, Rule]
) -> list[str]:
    """A way from the first rule of a circle back to it, ops included, the start not repeated."""
    start = min(name for name in circle if name in rules)
    came: dict[str, str] = {}
    pending = [start]
    for node in pending:
        for target in graph.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if target in circle and target not in came:
                came[target] = node
                pending.append(target)
    return [start]


def _report_one(rule: Rule, diagnostics: Diagnostics) -> None:
    diagnostics.error("FD403", f"`{rule.name}` would rewrite its own result again", rule.span)


def _report(
    path: list[str], rules: Mapping[str, Rule], ops: Mapping[str, OpDecl], diagnostics: Diagnostics
) -> None:
    members = [rules[name] for name in path if name in rules]
    names = ", ".join(f"`{rule.name}`" for rule in members)
    labels = [Label(r.span, f"`{r.name}`") for r in members[1:] if r.span is not None]
    diagnostics.error(
        "FD403",
        f"{names} rewrite each other's results in a circle",
        members[0].span,
        labels=labels,
        notes=list(_steps([*path, path[0]], rules, ops)),
    )


def _steps(path: list[str], rules: Mapping[str, Rule], ops: Mapping[str, OpDecl]) -> Iterator[str]:
    for index, name in enumerate(path[:-1]):
        if name not in rules:
            continue
        following = path[index + 1]
        if following in rules:
            yield f"`{name}` makes the whole source of `{following}`"
            continue
        op, reader = following.removeprefix("op "), path[index + 2]
        stands_for = read_ops(rules[reader], ops, {})[op]
        as_form = "" if stands_for == op else f" as a form of `{stands_for}`"
        yield f"`{name}` makes `{op}`, which `{reader}` matches{as_form}"
