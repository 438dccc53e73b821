"""What stands around the values of one graph, found once for all bodies that are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import fx

from fusiondsl.engine.mutation import UNKNOWN, VALUES, Version
from fusiondsl.engine.recognise import Recogniser
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.view import View

HOPS = 3
"""Operations in between that are looked behind."""
WIDE = 8
"""Readers and operands looked at for each of these."""

Beyond: TypeAlias = Sequence[tuple[Any, tuple[Any, ...]]]
"""Values, nearest first, each with what stands in between, in graph order."""


class Lookups:
    """The recogniser's answers and the surroundings of values, remembered."""

    def __init__(self, view: View, recogniser: Recogniser) -> None:
        self._view = view
        self._recogniser = recogniser
        self._made: dict[tuple[Any, int, str], Sequence[Recognised]] = {}
        self._reading: dict[tuple[Any, int, str], Sequence[Recognised]] = {}
        self._behind: dict[Any, Beyond] = {}
        self._ahead: dict[Any, Beyond] = {}

    def producers(self, value: Any, result: int, op: str) -> Sequence[Recognised]:
        if not isinstance(value, VALUES):
            return ()
        key = (value, result, op)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._recogniser.producers(value, result, op)
        return found

    def consumers(self, value: Any, position: int, op: str) -> Sequence[Recognised]:
        key = (value, position, op)
        found = self._reading.get(key)
        if found is None:
            found = self._reading[key] = tuple(self._recogniser.consumers(value, position, op))
        return found

    def behind(self, value: Any) -> Beyond:
        """What a value is computed from."""
        found = self._behind.get(value)
        if found is None:
            found = self._behind[value] = self._sources_behind(value)
        return found

    def ahead(self, value: Any) -> Beyond:
        """What is computed from a value."""
        found = self._ahead.get(value)
        if found is None:
            found = self._ahead[value] = _users_ahead(value)
        return found

    def _sources_behind(self, value: Any) -> Beyond:
        found: list[tuple[Any, tuple[Any, ...]]] = []
        waiting: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
        seen = {value}
        for item, between in waiting:
            if len(between) >= HOPS:
                continue
            for source in self._sources(item):
                if source not in seen:
                    seen.add(source)
                    step = (source, (item, *between))
                    found.append(step)
                    waiting.append(step)
        return found

    def _sources(self, item: Any) -> list[Any]:
        if isinstance(item, Version):
            before = item.node
            if item.index == UNKNOWN or self._view.define(before) is not None:
                return [self._view.strip(before)]
            return []
        if not isinstance(item, fx.Node) or item.op != "call_function":
            return []
        sources = [self._view.read(item, node) for node in item.all_input_nodes[:WIDE]]
        return [self._view.strip(source) for source in sources]


def _users_ahead(value: Any) -> Beyond:
    found: list[tuple[Any, tuple[Any, ...]]] = []
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
    seen = {value}
    for item, between in waiting:
        if len(between) >= HOPS:
            continue
        for user in list(item.users)[:WIDE]:
            if user not in seen and user.op == "call_function":
                seen.add(user)
                step = (user, (*between, user))
                found.append(step)
                waiting.append(step)
    return found
