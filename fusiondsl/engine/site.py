"""A complete structural match as a site: its nodes, its legality, and what it leaves behind."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fusiondsl.decl.primitives import CHEAP
from fusiondsl.engine import aten
from fusiondsl.engine.compile import CompiledRule
from fusiondsl.engine.mutation import BETWEEN, Version, is_effectful, is_mutating
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import Call, View


@dataclass(slots=True, eq=False)
class Site:
    """One place where a rule may be applied."""

    rule: CompiledRule
    calls: tuple[Recognised, ...]
    slots: tuple[Any, ...]
    own: dict[fx.Node, int]
    """Every matched node, with the place of its call (-1: transparent, in between)."""
    results: dict[tuple[int, int], list[Any]]
    """Values of (place, result), duplicates included. The lists are those of the calls."""
    staying: set[fx.Node]
    """Own nodes that stay: kept calls, and preparation that somebody else uses too."""
    inputs: list[tuple[str, Any]]
    """Bound tensor parameters."""
    outputs: list[tuple[str, str, list[Any]]] = field(default_factory=list)
    """(match name, replace name, values) of every output the graph uses."""
    kept: list[tuple[str, Any]] = field(default_factory=list)
    """Matched values that the new code reads."""
    twins: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """Nodes outside the matched calls that repeat a matched primitive, with that one."""

    @property
    def anchor(self) -> fx.Node:
        return self.calls[0].node

    def layers(self) -> list[fx.Node]:
        """Nodes that stand for layers: new calls are given them as they are."""
        nodes = (self.slots[slot] for slot in self.rule.layer_slots)
        return [node for node in nodes if isinstance(node, fx.Node)]

    def claimed(self) -> set[fx.Node]:
        """Nodes this site rewrites or erases."""
        return self.own.keys() - self.staying


def assemble(
    view: View, rule: CompiledRule, slots: tuple[Any, ...], calls: tuple[Recognised, ...]
) -> Site | Problem:
    """The site of a structural match, or why its values cannot be replaced."""
    site = draft(view, rule, slots, calls)
    problem = next(problems(view, site), None)
    if problem is not None:
        return problem
    find_ends(site)
    return site


def draft(
    view: View, rule: CompiledRule, slots: tuple[Any, ...], calls: tuple[Recognised, ...]
) -> Site:
    """A structural match with its nodes, not yet checked."""
    site = Site(
        rule,
        calls,
        slots,
        {},
        {(p, r): nodes for p, call in enumerate(calls) for r, nodes in call.results.items()},
        set(),
        [(n, slots[s]) for n, _, s in rule.tensors if s is not None and slots[s] is not None],
    )
    _collect(view, site)
    return site


def problems(view: View, site: Site) -> Iterator[Problem]:
    """All that keeps a draft from being a site, found as far as it is asked for.

    Only where there is nothing is the draft a site.
    """
    problem = _distinct(view, site)
    if problem is not None:
        yield problem
    if view.halved:
        yield from _inside(site)
    yield from _check_users(view, site)


def find_ends(site: Site) -> None:
    rule, results = site.rule, site.results
    for matched, written, place, result in rule.outputs:
        values = results.get((place, result))
        if values:
            site.outputs.append((matched, written, values))
    for name, place, result in rule.kept:
        values = results.get((place, result))
        if values:
            site.kept.append((name, values[0]))


def _distinct(view: View, site: Site) -> Problem | None:
    """Two names of the rule never stand for one value, and an input is no output."""
    own = site.own
    values = {value for _, value in site.inputs}
    if len(values) == len(site.inputs) and not view.mutations.any and own.keys().isdisjoint(values):
        return None
    seen: dict[Any, str] = {}
    for name, value in site.inputs:
        other = seen.setdefault(value, name)
        if other is not name:
            message = f"{other} and {name} are the same value, {value.name}"
            return Problem("structure", message, about=name, node=value.name)
        if (value in own or isinstance(value, Version)) and _is_made(site, value):
            message = f"{name} would be {value.name}, a value the rule replaces"
            return Problem("structure", message, about=name, node=value.name)
    return None


def _inside(site: Site) -> Iterator[Problem]:
    """What the new code would read, or be read for, is a value that only an operation knows."""
    named = [*site.inputs]
    ends = ((name, place, result) for name, _, place, result in site.rule.outputs)
    for name, place, result in (*ends, *site.rule.kept):
        named += [(name, value) for value in site.results.get((place, result), ())]
    for name, value in named:
        if isinstance(value, Version) and value.index == BETWEEN:
            at = value.writer.name
            message = f"{name} would be a value inside of {at}, which the graph does not have"
            yield Problem("structure", message, about=name, node=at)


def _is_made(site: Site, value: Any) -> bool:
    place = site.own.get(value, -1)
    if place < 0 or place in site.rule.free_calls:
        return isinstance(value, Version) and any(value in v for v in site.results.values())
    return any(value in nodes for (p, _), nodes in site.results.items() if p == place)


# --- nodes --------------------------------------------------------------------------------------


def _collect(view: View, site: Site) -> None:
    own, no_ops = site.own, view.no_ops
    for place, call in enumerate(site.calls):
        for node in call.nodes:
            own[node] = place
        for values in call.results.values():
            for value in values:
                if value not in own and isinstance(value, fx.Node):
                    own[value] = place
    if not no_ops:
        return
    for call in site.calls:
        for node in call.nodes:
            for arg in filter(no_ops.__contains__, node.all_input_nodes):
                _collect_between(view, site, arg)


def _collect_between(view: View, site: Site, arg: fx.Node) -> None:
    """A transparent node and those behind it, up to a matched call, belong to the site."""
    if arg in site.own:
        return
    behind = view.strip(arg, regroup=True)
    if behind not in site.own or site.own[behind] < 0:
        return
    node: Any = arg
    while isinstance(node, fx.Node) and node is not behind and node not in site.own:
        if node.target not in aten.NO_OPS:
            break
        site.own[node] = -1
        node = aten.first_argument(node)


# --- users --------------------------------------------------------------------------------------


def _check_users(view: View, site: Site) -> Iterator[Problem]:
    """Values that disappear must have no user outside the site."""
    rule = site.rule
    own = site.own
    visible = _visible(site)
    if rule.kept_calls:
        site.staying.update(n for n, place in site.own.items() if place in rule.kept_calls)
    versions = list(_versions(site)) if view.mutations.any else []
    pending: list[Any] = [*site.own, *versions]
    while pending:
        node = pending.pop()
        if node in visible or node in site.staying:
            continue
        for user in _users(node, versions) if versions else node.users:
            if user in own:
                continue
            if _sizes_buffers(site, user):
                site.own[user] = -1
                continue
            duplicate = _duplicate(view, site, user) or _twins(site, user)
            if duplicate:
                visible = _visible(site)
                pending.extend(duplicate)
                continue
            if isinstance(node, fx.Node) and _may_stay(site, node, visible):
                site.staying.add(node)
                break
            message = _extra_user(site, node, user)
            yield Problem("extra user", message, about=user.name, node=node.name)
    _release(site, visible)
    for value in versions:
        again = value.next_writer
        if value.observable or (again is not None and again not in site.own):
            name = value.node.name
            message = f"{name} is written in place and seen elsewhere"
            yield Problem("effect", message, about=name, node=value.writer.name)


def _release(site: Site, visible: set[Any]) -> None:
    """Preparation that stays and follows from an output reads the new value like anybody else."""
    released: set[Any] = set()
    for node in sorted(site.staying):
        if site.own[node] in site.rule.kept_calls:
            continue
        if any(source in visible or source in released for source in node.all_input_nodes):
            released.add(node)
    for node in released:
        site.staying.remove(node)
        del site.own[node]


def _versions(site: Site) -> Iterator[Version]:
    """What raw mutation leaves in buffers and the rule removes or replaces."""
    for (place, _), values in site.results.items():
        if place not in site.rule.kept_calls:
            yield from (value for value in values if isinstance(value, Version))


def _visible(site: Site) -> set[Any]:
    """Values that get a replacement, so that anybody may read them."""
    return {
        value
        for _, _, place, result in site.rule.outputs
        for value in site.results.get((place, result), ())
    }


def _users(value: Any, versions: list[Version]) -> Iterator[fx.Node]:
    """Who reads a value; readers of a later version of the same buffer do not."""
    later = {user for v in versions if v.node is value for user in v.users}
    return (user for user in value.users if user not in later)


def _sizes_buffers(site: Site, user: fx.Node) -> bool:
    """A size that is read for nothing but the site itself and its buffers goes with them."""
    if user.target is not torch.ops.aten.sym_size.int:
        return False
    buffers = {buffer for call in site.calls for buffer in call.buffers}
    return all(reader in site.own or reader in buffers for reader in user.users)


def _may_stay(site: Site, node: fx.Node, visible: set[Any]) -> bool:
    """A pure preparation whose own inputs survive can simply be kept."""
    place = site.own[node]
    cheap = node.target in aten.NO_OPS or (
        aten.READERS.get(node.target) is not None and _is_cheap(node)
    )
    if not (place in site.rule.free_calls or cheap or _is_split(node)):
        return False
    if is_mutating(node.target) or is_effectful(node.target):
        return False
    for source in node.all_input_nodes:
        if source not in site.own or source in visible or source in site.staying:
            continue
        if not _may_stay(site, source, visible):
            return False
        site.staying.add(source)
    return True


def _is_cheap(node: fx.Node) -> bool:
    primitive = aten.read(node)
    return primitive is not None and primitive.op in CHEAP


def _is_split(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        parent = node.args[0]
        return isinstance(parent, fx.Node) and parent.target in aten.ITEM_READERS
    return node.target in aten.ITEM_READERS


def _duplicate(view: View, site: Site, user: fx.Node) -> list[fx.Node] | None:
    """`user` repeats a matched call on the same values: then it is the same value twice."""
    call = view.call(user)
    if call is None or is_mutating(user.target) or is_effectful(user.target):
        return None
    if call.binding is not None and call.binding.decl.effects:
        return None
    for place, matched in enumerate(site.calls):
        if matched.nodes != (matched.node,) or place in site.rule.kept_calls:
            continue
        original = view.call(matched.node)
        if original is None or original.op != call.op or not _equal_args(view, original, call):
            continue
        return _merge(site, place, matched, call)
    return None


def _merge(site: Site, place: int, matched: Recognised, call: Call) -> list[fx.Node]:
    """Adds a repeated call to the site; returns its nodes."""
    added = [call.node]
    for index, spelled in enumerate(matched.spelled):
        nodes = call.results.get(spelled, ()) if spelled is not None else ()
        if nodes:
            site.results[(place, index)] = [*site.results.get((place, index), ()), *nodes]
            added.extend(n for n in nodes if isinstance(n, fx.Node))
    for node in added:
        site.own.setdefault(node, place)
    return list(dict.fromkeys(added))


def _twins(site: Site, user: fx.Node) -> list[fx.Node]:
    """`user` and what follows from it, as far as they repeat primitives of the site."""
    added: list[fx.Node] = []
    waiting = [user]
    while waiting:
        waiting.sort(reverse=True)  # in graph order, so that operands come first
        node = waiting.pop()
        original = None if node in site.own else _original(site, node)
        if original is None:
            continue
        site.twins[node] = original
        site.own[node] = site.own[original]
        for key, values in site.results.items():
            if original in values:
                site.results[key] = [*values, node]
        added.append(node)
        waiting.extend(node.users)
    return added


def _original(site: Site, node: fx.Node) -> fx.Node | None:
    pure = node.target in aten.READERS or node.target in aten.VIEWS
    if not (pure or _is_split(node)):
        return None
    read = [site.twins.get(source, source) for source in node.all_input_nodes]
    candidates = (
        n for n in (read[0].users if read else ()) if n in site.own and n.target is node.target
    )
    return next((n for n in candidates if _same_call(site, n, node)), None)


def _same_call(site: Site, left: fx.Node, right: fx.Node) -> bool:
    twins = site.twins

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, fx.Node) or isinstance(b, fx.Node):
            return twins.get(a, a) is twins.get(b, b)
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
        return type(a) is type(b) and a == b

    if left.kwargs.keys() != right.kwargs.keys() or not same(left.args, right.args):
        return False
    return all(same(left.kwargs[key], right.kwargs[key]) for key in left.kwargs)


def _equal_args(view: View, left: Call, right: Call) -> bool:
    if len(left.args) != len(right.args):
        return False
    return all(_equal_arg(view, a, b) for a, b in zip(left.args, right.args, strict=True))


def _equal_arg(view: View, a: Any, b: Any) -> bool:
    if isinstance(a, (fx.Node, Version)) and isinstance(b, (fx.Node, Version)):
        return a is b or view.strip(a) is view.strip(b)
    if isinstance(a, (fx.Node, Version)) or isinstance(b, (fx.Node, Version)):
        return False
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_equal_arg(view, x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def _extra_user(site: Site, node: fx.Node, user: fx.Node) -> str:
    name = _value_name(site, node)
    what = f"{name} ({node.name})" if name else node.name
    reader = "graph output" if user.op == "output" else str(user.target)
    return f"{what} is also used by {user.name} ({reader})"


def _value_name(site: Site, node: fx.Node) -> str | None:
    for name, place, result in site.rule.values:
        if node in site.results.get((place, result), ()):
            return None if name.startswith("%") else name
    return None


def tensor_of(value: Any) -> torch.Tensor | None:
    found = value.meta.get("val")
    return found if isinstance(found, torch.Tensor) else None


def form_names(site: Site) -> tuple[str, ...]:
    """How each semantic op of the source is spelled here."""
    spelled = []
    for call in site.calls:
        if not call.op.startswith("prim."):
            spelled.append(f"{call.op}:{call.form.name}" if call.form else call.op)
    return tuple(spelled)
