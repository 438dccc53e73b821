"""Recognition that also reads quotients, roots and means in spellings that differ in bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.forms import BodyForm, Forms
from fusiondsl.engine.match import Matcher
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import COMMUTATIVE, PRIMITIVE_OPS
from fusiondsl.engine.recognise import Check, Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.respelled import ENDS, KINDS, OTHER_TARGETS, Others, Respelled, others_of
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View


def recogniser_of(view: View, compiled: Compiled, check: Check) -> Recogniser:
    """The recogniser of a graph; one that reads further only where there is something to read."""
    others = others_of(view, compiled.wanted)
    if others is None:
        return Recogniser(view, compiled.forms, check)
    return WideRecogniser(view, compiled.forms, check, others)


class WideMatcher(Matcher[Any]):
    """Tries both orders of operands: in another spelling they come from other operations."""

    @staticmethod
    def _likely(ways: Any, args: Any, node: Any) -> Any:
        return ways


class WideRecogniser(Recogniser):
    """What stands in the graph as it is goes first, at every value and for every op."""

    matcher = WideMatcher

    def __init__(self, view: View, forms: Forms, check: Check, others: Others) -> None:
        super().__init__(view, forms, check)
        self._others = others
        self._exact = Recogniser(view, forms, check)

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        found = super().producers(value, result, op)
        if found or op in PRIMITIVE_OPS or not isinstance(value, VALUES):
            return found
        if self._forms.ends(op, result).isdisjoint(self._others_at(value)):
            return ()
        return self._search(value, op, result)

    def _others_at(self, value: Any) -> Iterator[str]:
        """Primitives that a value may be read as although it is made by another one."""
        maker = self._maker(value, self._view.define(value))
        return (op for op, ends in ENDS.items() if maker in ends)

    def readings(self, value: Any) -> frozenset[str]:
        found = super().readings(value)
        if not isinstance(value, VALUES):
            return found
        return found.union(*map(self._forms.readings, self._others_at(value)))

    def consumers(self, value: Any, position: int, op: str) -> Iterator[Recognised]:
        yield from super().consumers(value, position, op)
        if op not in ENDS:
            return
        for made in self._made_from(value):
            for call in self._others.of(made, op):
                given = [call.args[position]]
                if op in COMMUTATIVE:
                    given.append(call.args[1 - position])
                if any(self._is(g, value) for g in given):
                    yield call

    def _is(self, given: Any, value: Any) -> bool:
        return isinstance(given, VALUES) and self._view.strip(given, regroup=True) is value

    def _made_from(self, value: Any) -> Iterable[Any]:
        """Values that a primitive makes of this one, and another one of those, each once."""
        found: dict[Any, None] = {}
        waiting = [(value, 0)]
        for item, steps in waiting:
            for call in self._reading_calls(item) if steps < _STEPS else ():
                made = call.result(0)
                if made is not None and made not in found and call.op in PRIMITIVE_OPS:
                    found[made] = None
                    waiting.append((made, steps + 1))
        return found

    def _targets_of(self, primitive: str) -> Sequence[Any]:
        return (*super()._targets_of(primitive), *OTHER_TARGETS.get(primitive, ()))

    def _primitives(self, value: Any, op: str) -> Sequence[Recognised]:
        inside = self._others.inside.get(value)
        if inside is not None:
            return (inside,) if inside.op == op else ()
        return super()._primitives(value, op) or self._others.of(value, op)

    def _search(self, value: Any, op: str, result: int) -> list[Recognised]:
        return self._exact._search(value, op, result) or super()._search(value, op, result)

    def _virtual(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Recognised | None:
        found = super()._virtual(entry, slots, calls)
        if found is None or any(
            v in self._others.inside for r in found.results.values() for v in r
        ):
            return None
        return Respelled.around(found, calls)


_STEPS = 3
"""Operations that one of another spelling may stand for: a root, its reciprocal, a product."""


def refusals(rule: CompiledRule, calls: Sequence[Recognised]) -> Iterator[Problem]:
    """Differences of the spelling of a site that its rule does not allow."""
    for place, call in enumerate(calls):
        for beyond in call.beyond:
            if not _allowed(rule, place).issuperset(beyond.kinds):
                kinds = ", ".join(beyond.kinds)
                message = f"{beyond}, which differs by {kinds}: more than the rule allows"
                yield Problem("difference", message, node=call.node.name)


def differences(calls: Iterable[Recognised]) -> tuple[str, ...]:
    """By what the spelling of a site differs from what its rule says, each once."""
    found = {kind for call in calls for beyond in call.beyond for kind in beyond.kinds}
    return tuple(kind for kind in KINDS if kind in found)


def _allowed(rule: CompiledRule, place: int) -> set[str]:
    results = rule.rule.match[rule.path.order[place]].results
    return {a.kind for a in rule.rule.allow if a.value is None or a.value in results}
