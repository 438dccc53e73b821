"""A near miss as a script that stands alone: a small graph, the rules, the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from fusiondsl import artifact
from fusiondsl.diagnostics.source import Source
from fusiondsl.engine.compiled import CompiledRules
from fusiondsl.engine.why.answer import Answer, Cause, SiteAnswer
from fusiondsl.engine.why.part import parts
from fusiondsl.graphs import saved
from fusiondsl.target import Answer as Reply
from fusiondsl.target import Target


@dataclass(frozen=True)
class Miss:
    """A rule, and a site where it does not fire."""

    rule: str
    site: SiteAnswer
    gm: fx.GraphModule

    @property
    def first(self) -> Cause:
        return self.site.causes[0]


def nearest(asked: Sequence[tuple[fx.GraphModule, Answer]]) -> Miss | None:
    """The site where most of a rule stands and least is in the way."""
    found = [
        Miss(rule.rule, site, gm)
        for gm, answer in asked
        for rule in answer.rules
        for site in rule.near
        if site.matched
    ]
    return min(found, key=_distance, default=None)


def _distance(miss: Miss) -> tuple[float, int]:
    site = miss.site
    return -site.matched / max(site.calls, 1), len(site.causes)


def script(
    miss: Miss, rules: CompiledRules, paths: Sequence[str], tokens: range | None
) -> str | None:
    """A Python script that asks `why` about the smallest part of the graph with that first cause.

    None where not even all of the graph, once saved, has it.
    """
    for part in parts(miss.gm, miss.site):
        text = saved.dumps(part)
        if _same(_first(rules, text, miss, tokens), miss.first):
            return _SCRIPT.format(
                title=_title(miss),
                loaded=_loaded(rules.target, paths),
                graph="\n".join(f"    {line!r}" for line in text.splitlines(keepends=True)),
                paths=list(paths),
                rule=miss.rule,
                site=miss.site.node,
                tokens=tokens,
            )
    return None


def _first(rules: CompiledRules, text: str, miss: Miss, tokens: range | None) -> Cause | None:
    gm, _ = saved.loads(Source("<part>", text))
    answer = rules.why(gm, rules=[miss.rule], tokens=tokens).of(miss.rule)
    return next((s.causes[0] for s in answer.near if s.node == miss.site.node), None)


def _same(told: Cause | None, wanted: Cause) -> bool:
    return told is not None and (told.code, told.message, told.node, told.field) == (
        wanted.code,
        wanted.message,
        wanted.node,
        wanted.field,
    )


def _title(miss: Miss) -> str:
    """In a docstring, where neither a quote nor a backslash may end it."""
    told = f"{miss.first.code}: {miss.first.message}"
    return re.sub(r'["\\]', "'", f"{miss.rule} does not fire at {miss.site.node}: {told}")


def _loaded(target: Target, paths: Sequence[str]) -> str:
    if any(artifact.is_artifact(path) for path in paths):
        return "fusiondsl.CompiledRules.load(paths[0])"
    return f"fusiondsl.load(*paths).compile({_target(target)})"


def _target(target: Target) -> str:
    """The call that makes a target, without what is not known."""
    given = {
        "arch": target.arch,
        "tp_size": target.tp_size,
        "tp_group": target.tp_group,
        "facts": dict(target.facts) or None,
    }
    texts = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if target.answers:
        texts.append(f"answers=({''.join(f'{_reply(answer)}, ' for answer in target.answers)})")
    return f"fusiondsl.Target({', '.join(texts)})"


def _reply(answer: Reply) -> str:
    args = None if answer.args is None else dict(answer.args)
    return f"fusiondsl.Answer({answer.predicate!r}, {answer.value!r}, {args!r})"


_SCRIPT = '''\
"""{title}

Prints the first cause, or that the rule fires. The rules are those of PATHS, or of the paths that
are given to this script.
"""

import sys

import fusiondsl
from fusiondsl.graphs import read

PATHS = {paths!r}
RULE, SITE = {rule!r}, {site!r}
TOKENS = {tokens!r}

# What the site needs of the graph, in the form of `fusiondsl.graphs.save`: a node a line.
GRAPH = (
{graph}
)

paths = sys.argv[1:] or PATHS
rules = {loaded}
(graph,) = read(GRAPH, program=rules.program)
for site in rules.why(graph.gm, rules=[RULE], tokens=TOKENS).of(RULE).sites:
    if site.node != SITE:
        continue
    cause = "fires" if site.fired else f"{{site.causes[0].code}}: {{site.causes[0].message}}"
    print(f"{{RULE}} at {{SITE}}: {{cause}}")
'''
