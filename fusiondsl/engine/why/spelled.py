"""What nearly is a spelling of an op in several operations, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.forms import BodyForm
from fusiondsl.engine.mutation import Version
from fusiondsl.engine.pattern import UNSET
from fusiondsl.engine.recognise import Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.view import View
from fusiondsl.engine.why.answer import Cause
from fusiondsl.engine.why.causes import Teller
from fusiondsl.engine.why.lookups import Beyond, Lookups
from fusiondsl.engine.why.nearest import Assignment, Nearest
from fusiondsl.engine.why.sketch import Sketch

_NEAR = 0.7
"""The part of a form, by weight, that must stand there."""
_WORST = 1.3
"""What the differences of a form may cost together."""
_FEWEST = 4
"""Calls a form has at least: of shorter ones too much is a near miss."""
_NO_FORM = 0.4

Spelled = tuple[Recognised, tuple[Cause, ...], float]


class Spellings:
    """Forms of several operations in one graph."""

    def __init__(
        self, compiled: Compiled, view: View, lookups: Lookups, recogniser: Recogniser
    ) -> None:
        self._compiled = compiled
        self._view = view
        self._graph = _Exact(lookups, recogniser)
        self._sketches: dict[int, Sketch] = {}
        self._known: dict[tuple[Any, int, str], Spelled | None] = {}
        self._possible: dict[int, bool] = {}

    def nearest(self, value: Any, result: int, op: str) -> Spelled | None:
        """The form of `op` that `value` comes nearest to being a result of."""
        key = (value, result, op)
        if key not in self._known:
            found = list(self._all(value, result, op))
            self._known[key] = min(found, key=lambda spelled: spelled[2], default=None)
        return self._known[key]

    def _all(self, value: Any, result: int, op: str) -> Iterator[Spelled]:
        for form in body_forms(self._compiled, op, result):
            if len(form.form.body) < _FEWEST:
                continue
            sketch = self._sketch(form)
            if not self._may_be_near(sketch):
                continue
            first = sketch.path.order[0]
            nearest = Nearest(sketch, self._view, self._graph)
            for call in self._graph.producers(value, 0, sketch.path.op):
                for assignment in nearest.around(first, call, _WORST)[:1]:
                    if self._is_near(sketch, assignment):
                        yield self._spelled(form, sketch, assignment)

    def _sketch(self, form: BodyForm) -> Sketch:
        known = self._sketches.get(id(form))
        if known is None:
            known = self._sketches[id(form)] = Sketch.of_form(form, self._compiled.forms)
        return known

    def _may_be_near(self, sketch: Sketch) -> bool:
        """Enough of a form has operations in the graph at all."""
        known = self._possible.get(id(sketch))
        if known is None:
            weighed = zip(sketch.weights, sketch.body, strict=True)
            there = sum(weight for weight, call in weighed if self._graph.occurs(call.op))
            known = there >= _NEAR * sum(sketch.weights)
            self._possible[id(sketch)] = known
        return known

    def _is_near(self, sketch: Sketch, assignment: Assignment) -> bool:
        there = sum(sketch.weights[index] for index in assignment.calls)
        return assignment.cost <= _WORST and there >= _NEAR * sum(sketch.weights)

    def _spelled(self, form: BodyForm, sketch: Sketch, assignment: Assignment) -> Spelled:
        called = f"form {form.form.name} of {form.op}"
        told = list(Teller(sketch, assignment, lambda op: []).causes())
        causes = tuple(replace(c, message=f"{c.message}, in {called}", call=None) for c in told)
        call = _as_call(form, sketch, assignment)
        if not causes:
            message = f"sizes, dtypes or conditions of {called} do not hold"
            at = Cause("shape", message, call.node.name, form.form.name, span=form.form.span)
            return call, (at,), _NO_FORM
        return call, causes, _NO_FORM + assignment.cost


def body_forms(compiled: Compiled, op: str, result: int) -> Iterator[BodyForm]:
    """The forms of several operations of an op, seen from one of its results."""
    trie = compiled.forms.tries.get((op, result))
    seen: set[int] = set()
    for children in () if trie is None else trie.roots.values():
        for _, node in children:
            for entry in node.members:
                if id(entry) not in seen:
                    seen.add(id(entry))
                    yield entry


def _as_call(form: BodyForm, sketch: Sketch, assignment: Assignment) -> Recognised:
    """The op as if the form stood there; arguments that are not known stay open."""
    order = sketch.path.order
    anchor = assignment.calls[order[0]]
    slots = sketch.path.slots
    args = []
    for param in form.params:
        slot = slots.get(param.name)
        given = UNSET if slot is None else assignment.slots[slot]
        args.append(form.fixed.get(param.name, UNSET) if given is UNSET else given)
    results: dict[int, list[Any]] = {}
    for index, place in enumerate(form.results):
        call = None if place is None else assignment.calls.get(order[place[0]])
        values = None if call is None or place is None else call.results.get(place[1])
        if values:
            results[index] = list(values)
    nodes = dict.fromkeys(node for call in assignment.calls.values() for node in call.nodes)
    return Recognised(form.op, tuple(args), anchor.node, results, tuple(nodes), form=form.form)


class _Exact:
    """Calls as the recogniser has them: within a form nothing else is looked for."""

    def __init__(self, lookups: Lookups, recogniser: Recogniser) -> None:
        self._lookups = lookups
        self._recogniser = recogniser

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        return self._lookups.producers(value, result, op)

    def consumers(self, value: Any, position: int, op: str) -> Sequence[Recognised]:
        return self._lookups.consumers(value, position, op)

    def almost(
        self, value: Any, result: int, op: str
    ) -> list[tuple[Recognised, tuple[Any, ...], float]]:
        return []

    def behind(self, value: Any) -> Beyond:
        return self._lookups.behind(value)

    def ahead(self, value: Any) -> Beyond:
        return self._lookups.ahead(value)

    def occurs(self, op: str) -> bool:
        return self._recogniser.occurs(op)

    def after_write(
        self, value: Any, position: int, op: str
    ) -> Iterator[tuple[Recognised, Version]]:
        return iter(())

    def noted(self, call: Recognised) -> tuple[Any, ...]:
        return ()
