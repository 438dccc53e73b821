"""Answers for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from fusiondsl.diagnostics.render import snippet
from fusiondsl.diagnostics.source import Span
from fusiondsl.engine.why.answer import Answer, Cause, Group, RuleAnswer, SiteAnswer, groups_of
from fusiondsl.engine.why.show import several

Paint: TypeAlias = Callable[[str, str], str]
TOP = 3


def _plain(style: str, text: str) -> str:
    return text


def lines(
    answer: Answer, *, top: int = TOP, everything: bool = False, paint: Paint = _plain
) -> Iterator[str]:
    """Every rule with its sites, alike sites once; `top` kinds of near miss a rule.

    Without `everything`, a place with half of a source or less is no near miss, and rules that are
    near nowhere are listed by name alone.
    """
    far: list[RuleAnswer] = []
    for rule in answer.rules:
        near = [site for site in rule.near if everything or site.is_near]
        if not near and not rule.fired and not everything:
            far.append(rule)
            continue
        yield from _rule(rule, groups_of(near), top, paint)
    if far:
        yield f"near nowhere: {', '.join(rule.rule for rule in far)}"
        # What stands in the graph and no rule sees is the same for many of them.
        seen = dict.fromkeys(c.message for rule in far for c in rule.causes if c.node)
        yield from (f"  {message}" for message in list(seen)[:top])


def _rule(rule: RuleAnswer, groups: tuple[Group, ...], top: int, paint: Paint) -> Iterator[str]:
    near = sum(len(group.sites) for group in groups)
    yield f"{paint('bold', rule.rule)}: {_summary(rule, near, paint)}"
    if rule.fired:
        yield f"  fires at {several(_fired(site) for site in rule.fired)}"
    for cause in rule.causes:
        yield from _cause(cause, "  ", paint, set())
    for group in groups[:top]:
        yield from _group(group, rule, paint)
    if len(groups) > top:
        left = sum(len(group.sites) for group in groups[top:])
        yield f"  {left} more near miss{'es' if left > 1 else ''}, of {len(groups) - top} kinds"
    yield ""


def _fired(site: SiteAnswer) -> str:
    return f"{site.node} (differs by {', '.join(site.differs)})" if site.differs else site.node


def _summary(rule: RuleAnswer, near: int, paint: Paint) -> str:
    fired = len(rule.fired)
    if fired:
        text = paint("good", f"fires at {_count(fired, 'site')}")
    else:
        text = paint("bad", "does not fire")
    return f"{text}, comes close at {_count(near, 'site')}" if near else text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _group(group: Group, rule: RuleAnswer, paint: Paint) -> Iterator[str]:
    first = group.first
    where = f"at {first.node}"
    if len(group.sites) > 1:
        where += f" and {_count(len(group.sites) - 1, 'more site')} alike"
    line = f", {first.source}" if first.source else ""
    yield f"  {where} ({first.matched} of {_count(first.calls, 'op')}){line}"
    shown: set[Span] = set()
    own = [cause for cause in first.causes if cause not in rule.causes]
    for cause in own:
        yield from _cause(cause, "    ", paint, shown)
    if not own:
        yield "    nothing else is in the way here"
    yield from _edits(first, paint)


def _edits(site: SiteAnswer, paint: Paint) -> Iterator[str]:
    if site.edits:
        parts = [f"{e.text} ({e.span})" if e.span is not None else e.text for e in site.edits]
        yield f"    {paint('good', 'fires with')} {' and '.join(parts)}"


def in_short(site: SiteAnswer) -> str:
    """The first cause of a site, and how many more there are."""
    cause, *others = site.causes
    label = f" [{cause.label}]" if cause.label else ""
    more = f" (and {_count(len(others), 'more cause')})" if others else ""
    return f"{cause.code}{label}: {cause.message}{more}"


def _cause(cause: Cause, indent: str, paint: Paint, shown: set[Span]) -> Iterator[str]:
    label = f" [{cause.label}]" if cause.label else ""
    yield f"{indent}{paint('bad', cause.code)}{label}: {cause.message}"
    if cause.source and cause.node:
        yield f"{indent}  {cause.node} is from {cause.source}"
    if cause.span is not None and cause.span not in shown:
        shown.add(cause.span)
        yield from (f"{indent}  {line}" for line in snippet(cause.span))
    for inner in cause.because:
        yield from _cause(inner, f"{indent}  ", paint, shown)
