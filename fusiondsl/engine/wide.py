"""Recognition that also reads quotients, roots and means in spellings that differ in bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fusiondsl.engine import aten
from fusiondsl.engine.compile import Compiled, CompiledRule
from fusiondsl.engine.forms import BodyForm, Forms
from fusiondsl.engine.match import Matcher, expected, likely
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import COMMUTATIVE, PRIMITIVE_OPS, UNSET
from fusiondsl.engine.recognise import Check, Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.respelled import ENDS, KINDS, OTHER_TARGETS, Others, Respelled
from fusiondsl.engine.typecheck import Problem
from fusiondsl.engine.view import View
from fusiondsl.engine.worth import others_of


def recogniser_of(view: View, compiled: Compiled, check: Check) -> Recogniser:
    """The recogniser of a graph; one that reads further only where there is something to read."""
    others = others_of(view, compiled.wanted)
    if others is None:
        return Recogniser(view, compiled.forms, check)
    return WideRecogniser(view, compiled.forms, check, others)


class WideMatcher(Matcher[Any]):
    """Tries both orders of operands where both may be what is wanted in another spelling."""

    @staticmethod
    def _likely(ways: Any, args: Any, node: Any) -> Any:
        if node.expects_widely is UNSET:
            node.expects_widely = tuple(expected(args, node, _ALL_TARGETS))
        return likely(ways, node.expects_widely)


class _Reader(Recogniser):
    """Looks wherever an op may end in another spelling."""

    matcher = WideMatcher

    def __init__(self, view: View, forms: Forms, check: Check, others: Others) -> None:
        super().__init__(view, forms, check)
        self._others = others
        self._others_of = {
            maker: possible
            for maker in _MAKERS
            if (possible := frozenset(op for op in others.possible if maker in ENDS.get(op, ())))
        }
        """By what makes a value: the primitives it may be read as although it is none of them."""
        self._read: dict[str | None, frozenset[str]] = {}

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        found = super().producers(value, result, op)
        if found or op in PRIMITIVE_OPS or not isinstance(value, VALUES):
            return found
        others = self._others_of.get(self._maker(value, self._view.define(value)) or "")
        if others is None or others.isdisjoint(self._forms.ends(op, result)):
            return ()
        return self._search(value, op, result)

    def readings(self, value: Any) -> frozenset[str]:
        if not isinstance(value, VALUES):
            return frozenset()
        maker = self._maker(value, self._view.define(value))
        known = self._read.get(maker)
        if known is None:
            read = self._forms.readings
            known = self._read[maker] = read(maker).union(
                *map(read, self._others_of.get(maker or "", ()))
            )
        return known

    def _targets_of(self, primitive: str) -> Sequence[Any]:
        found = super()._targets_of(primitive)
        if primitive not in self._others.possible:
            return found
        return (*found, *OTHER_TARGETS.get(primitive, ()))


class _Probe(_Reader):
    """Finds what stands in the graph as it is, and notes whether more would be read into it."""

    def __init__(self, view: View, forms: Forms, check: Check, others: Others) -> None:
        super().__init__(view, forms, check, others)
        self._missed = False
        self._misses: dict[tuple[Any, str, int], bool] = {}

    def find(self, value: Any, op: str, result: int) -> tuple[list[Recognised], bool]:
        """The calls, and whether there may be some of another spelling."""
        found = self._search(value, op, result)
        return found, self._misses[value, op, result]

    def _search(self, value: Any, op: str, result: int) -> list[Recognised]:
        key = (value, op, result)
        if key in self._misses:
            self._missed |= self._misses[key]
            return super()._search(value, op, result)
        before, self._missed = self._missed, False
        found = super()._search(value, op, result)
        self._misses[key] = self._missed
        self._missed |= before
        return found

    def _primitives(self, value: Any, op: str) -> Sequence[Recognised]:
        found = super()._primitives(value, op)
        if not found and op in ENDS and self._others.of(value, op):
            self._missed = True
        return found


class WideRecogniser(_Reader):
    """What stands in the graph as it is goes first, at every value and for every op."""

    def __init__(self, view: View, forms: Forms, check: Check, others: Others) -> None:
        super().__init__(view, forms, check, others)
        self._probe = _Probe(view, forms, check, others)

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
        """Values that a primitive makes of this one, and others of those, each once."""
        found: dict[Any, None] = {}
        waiting = [(value, 0)]
        for item, steps in waiting:
            for call in self._reading_calls(item) if steps < _STEPS else ():
                made = call.result(0)
                if made is not None and made not in found and call.op in PRIMITIVE_OPS:
                    found[made] = None
                    waiting.append((made, steps + 1))
        return found

    def _primitives(self, value: Any, op: str) -> Sequence[Recognised]:
        inside = self._others.inside.get(value)
        if inside is not None:
            return (inside,) if inside.op == op else ()
        return super()._primitives(value, op) or self._others.of(value, op)

    def _search(self, value: Any, op: str, result: int) -> list[Recognised]:
        found, more = self._probe.find(value, op, result)
        return super()._search(value, op, result) if more and not found else found

    def _virtual(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Recognised | None:
        found = super()._virtual(entry, slots, calls)
        inside = self._others.inside
        if found is None or any(v in inside for values in found.results.values() for v in values):
            return None
        return Respelled.around(found, calls)


_MAKERS = frozenset[str]().union(*ENDS.values())
_ALL_TARGETS = {op: (*own, *OTHER_TARGETS.get(op, ())) for op, own in aten.TARGETS.items()}
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
