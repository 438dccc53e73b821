"""A picture as plain data, which the page's script draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusiondsl.diagnostics.render import snippet
from fusiondsl.diagnostics.source import Span
from fusiondsl.engine.why import Cause, RuleAnswer, SiteAnswer
from fusiondsl.engine.why.answer import groups_of
from fusiondsl.pictures.nodes import Look, Shown
from fusiondsl.pictures.picture import Picture
from fusiondsl.pictures.regions import Region, Regions
from fusiondsl.pictures.texts import Texts

FIRES, FUSED, TAKEN, CLOSE = "fires", "already fused", "taken", "close"


def picture_data(picture: Picture, texts: Texts) -> dict[str, Any]:
    return _Data(picture, texts).all()


class _Data:
    def __init__(self, picture: Picture, texts: Texts) -> None:
        self._picture = picture
        self._texts = texts
        before, after = picture.before, picture.after
        new = [name for name in after.nodes if not _stays(name, before, after)]
        self._before = {name: i for i, name in enumerate(before.nodes)}
        self._after = {name: i for i, name in enumerate(new, len(before.nodes))}
        stay = [name for name in after.nodes if name not in self._after]
        self._after |= {name: self._before[name] for name in stay}
        matched = {
            (rule.rule, site.node): site.nodes
            for rule in picture.answer.rules
            for site in rule.fired
        }
        self._regions = Regions(before, after, picture.report.fired, matched)
        self._place = {(f.rule, f.node): i for i, f in enumerate(picture.report.fired)}

    def all(self) -> dict[str, Any]:
        before, after = self._picture.before.nodes, self._picture.after.nodes
        count = len(before)
        new = [after[name] for name, i in self._after.items() if i >= count]
        nodes = [self._node(node, self._before) for node in before.values()]
        nodes += [self._node(node, self._after) for node in new]
        return {
            "name": self._texts.line(self._picture.name),
            "target": [self._texts.line(part) for part in self._picture.target],
            "notes": [self._texts.line(note) for note in self._picture.notes],
            "nodes": nodes,
            "before": count,
            "after": [self._after[name] for name in after],
            "changed": list(self._changed()),
            "rules": list(self._rules()),
        }

    # --- nodes -----------------------------------------------------------------------------------

    def _node(self, node: Shown, ids: dict[str, int]) -> list[Any]:
        text = self._texts.line
        return [
            text(node.name),
            node.kind,
            text(node.op),
            text(node.arguments),
            [text(value) for value in node.values],
            text(node.line),
            [ids[name] for name in node.inputs],
        ]

    def _changed(self) -> Iterator[list[Any]]:
        """Nodes that stay, where something about them is another afterwards."""
        then = self._picture.before.nodes
        for name, now in self._picture.after.nodes.items():
            index = self._after[name]
            if index < len(self._before) and now != then[name]:
                yield [index, self._node(now, self._after)]

    # --- sites -----------------------------------------------------------------------------------

    def _rules(self) -> Iterator[dict[str, Any]]:
        """The rules asked about, then those that change the graph as well."""
        asked = self._picture.answer.rules
        left = dict.fromkeys(f.rule for f in self._picture.report.fired)
        for rule in asked:
            left.pop(rule.rule, None)
            yield self._rule(rule)
        for name in left:
            yield self._rule(RuleAnswer(name))

    def _rule(self, rule: RuleAnswer) -> dict[str, Any]:
        everything = self._picture.everything
        near = [s for s in rule.near if everything or s.is_near or s.is_fused]
        fired = [*rule.fired, *self._fired_elsewhere(rule)]
        sites = [self._site(rule, site, -1) for site in fired]
        for group, alike in enumerate(groups_of(near)):
            sites += [self._site(rule, site, group) for site in alike.sites]
        return {
            "name": self._texts.line(rule.rule),
            "place": self._span(rule.span),
            "proof": self._texts.line(self._picture.proofs.get(rule.rule)),
            "causes": [self._cause(cause) for cause in rule.causes],
            "sites": sites,
        }

    def _fired_elsewhere(self, rule: RuleAnswer) -> Iterator[SiteAnswer]:
        """Where a rule fires that was not asked about, or not there."""
        known = {site.node for site in rule.fired}
        for fired in self._picture.report.fired:
            if fired.rule == rule.rule and fired.node not in known:
                yield SiteAnswer(fired.node, True, 0, 0, nodes=(fired.node,))

    def _site(self, rule: RuleAnswer, site: SiteAnswer, group: int) -> dict[str, Any]:
        text = self._texts.line
        place = self._place.get((rule.rule, site.node)) if site.fired else None
        forms: tuple[str, ...] = ()
        if place is not None:
            region = self._regions.fired(place)
            forms = self._picture.report.fired[place].forms
        else:
            region = self._regions.standing(site.nodes or (site.node,))
        return {
            "node": text(site.node),
            "verdict": _verdict(site),
            "group": group,
            "matched": site.matched,
            "calls": site.calls,
            "line": text(site.source),
            "forms": [text(form) for form in forms],
            "causes": [self._cause(cause) for cause in site.causes],
            "edits": [[text(edit.text), self._span(edit.span)] for edit in site.edits],
            **self._region(region),
        }

    def _region(self, region: Region) -> dict[str, Any]:
        return {
            "before": [self._before[name] for name in region.before],
            "after": [self._after[name] for name in region.after],
        }

    def _cause(self, cause: Cause) -> dict[str, Any]:
        text = self._texts.line
        span = cause.span
        # Without where it stands, which is said beside it, and the empty line below that.
        lines = [] if span is None else snippet(span)[2:]
        return {
            "code": cause.code,
            "label": text(cause.label),
            "message": text(cause.message),
            "node": text(cause.node),
            "ids": self._ids(cause.node),
            "line": text(cause.source),
            "place": self._span(span),
            "snippet": self._texts.lines(lines),
            "because": [self._cause(inner) for inner in cause.because],
        }

    def _ids(self, name: str | None) -> list[int]:
        """The node of this name, before and after."""
        if name is None:
            return []
        found = [ids[name] for ids in (self._before, self._after) if name in ids]
        return list(dict.fromkeys(found))

    def _span(self, span: Span | None) -> int | None:
        return None if span is None else self._texts.line(str(span))


def _stays(name: str, before: Look, after: Look) -> bool:
    return name in before.nodes and after.has(name, before)


def _verdict(site: SiteAnswer) -> str:
    if site.fired:
        return FIRES
    if site.is_fused:
        return FUSED
    return TAKEN if site.causes and site.causes[0].code == "lost-to-rule" else CLOSE
