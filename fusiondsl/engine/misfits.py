"""Calls that look like a form of an op and fit none, as refusals of the rules that want the op."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from fusiondsl import ir
from fusiondsl.engine.compile import CompiledRule
from fusiondsl.engine.formcheck import FormCheck
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import Trie
from fusiondsl.engine.recognise import Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View


def misfits(
    view: View, recogniser: Recogniser, forms: FormCheck, trie: Trie[CompiledRule]
) -> Iterator[tuple[CompiledRule, fx.Node, Problem]]:
    """Each such call for each rule whose source stands in front of it."""
    if not forms.unfit:
        return
    starts = [node for children in trie.roots.values() for _, node in children]
    rules = list(dict.fromkeys(rule for node in starts for rule in node.members))
    for call in list(forms.unfit):
        near = [rule for rule in rules if _stands_before(view, recogniser, rule, call)]
        if not near:
            continue
        problem = _problem(view, forms, call)
        yield from ((rule, call.node, problem) for rule in near)


def _stands_before(
    view: View, recogniser: Recogniser, rule: CompiledRule, call: Recognised
) -> bool:
    if not all(recogniser.occurs(op) for op in rule.required):
        return False
    made = {
        name: (step.op, result)
        for step in rule.rule.match
        for result, name in enumerate(step.results)
        if name is not None
    }
    return any(
        all(
            _is_made(view, recogniser, made.get(arg.name), given)
            for arg, given in zip(step.args, call.args, strict=True)
            if isinstance(arg, ir.Ref)
        )
        for step in rule.rule.match
        if step.op == call.op
    )


def _is_made(
    view: View, recogniser: Recogniser, wanted: tuple[str, int] | None, given: object
) -> bool:
    """Is `given` what the rule wants there? An input of the rule may be anything."""
    if wanted is None:
        return True
    if not isinstance(given, VALUES):
        return False
    op, result = wanted
    return bool(recogniser.producers(view.strip(given), result, op))


def _problem(view: View, forms: FormCheck, call: Recognised) -> Problem:
    found = forms.problem(call)
    spelled = view.call(call.node)
    assert spelled is not None
    assert call.form is not None
    message = f"{spelled.op} is not {call.op} here (form {call.form.name}): {found.message}"
    return Problem(found.kind, message, found.label)
