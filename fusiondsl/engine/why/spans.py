"""Where in a rule's text something stands: arguments, parameters, conditions."""

from __future__ import annotations

import re

from fusiondsl import ir
from fusiondsl.diagnostics.source import Span

_FAR = 4000
"""Characters of a rule looked through for a parameter."""


def argument_span(call: ir.Call, name: str) -> Span | None:
    """`name = value` in a call, or the whole call where the argument has no name there."""
    span = call.span
    if span is None or not span.source.has_text:
        return span
    found = re.search(rf"\b{re.escape(name)}\s*=\s*(\"[^\"]*\"|[^,()\n]+)", span.text)
    if found is None:
        return span
    return Span(
        span.source, span.start + found.start(), span.start + len(found[0].rstrip()) + found.start()
    )


def param_span(rule: ir.Rule, name: str) -> Span | None:
    """`name: type` in the head of a rule; the rule where its head is not written out."""
    span = rule.span
    if span is None or not span.source.has_text:
        return span
    text = span.source.text[span.start : span.start + _FAR]
    head = re.split(r"\bmatch\b", text, maxsplit=1)[0]
    found = re.search(rf"\b{re.escape(name)}\s*:\s*(\"[^\"]*\"|\w[\w.]*(\[[^\]]*\])?\??)", head)
    if found is None:
        return span
    return Span(span.source, span.start + found.start(), span.start + found.end())


def condition_span(rule: ir.Rule, label: str | None) -> Span | None:
    for condition in rule.where:
        if condition.label == label and label is not None:
            return condition.span
    for readers in rule.readers:
        if readers.label == label and label is not None:
            return readers.span
    return rule.span


def value_span(rule: ir.Rule, name: str) -> Span | None:
    """The call of the source that makes a value."""
    for call in rule.match:
        if name in call.results:
            return call.span
    return param_span(rule, name)
