"""Answers as the JSON that commands print and that a run adds to a file."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fusiondsl.engine.why.answer import Answer, Cause, Edit, RuleAnswer, SiteAnswer


def answer_data(answer: Answer) -> dict[str, Any]:
    return {"rules": [_rule_data(rule) for rule in answer.rules]}


def _rule_data(rule: RuleAnswer) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "sites": [_site_data(site) for site in rule.sites],
        "causes": [cause_data(cause) for cause in rule.causes],
    }


def _site_data(site: SiteAnswer) -> dict[str, Any]:
    return {
        "node": site.node,
        "fired": site.fired,
        "matched": site.matched,
        "calls": site.calls,
        "causes": [cause_data(cause) for cause in site.causes],
        "edits": [_edit_data(edit) for edit in site.edits],
        "nodes": list(site.nodes),
        "source": site.source,
        "differs": list(site.differs),
    }


def cause_data(cause: Cause) -> dict[str, Any]:
    data = {field.name: getattr(cause, field.name) for field in fields(cause)}
    data["span"] = None if cause.span is None else str(cause.span)
    data["because"] = [cause_data(inner) for inner in cause.because]
    return data


def _edit_data(edit: Edit) -> dict[str, Any]:
    return {"text": edit.text, "span": None if edit.span is None else str(edit.span)}
