"""Which nodes of a graph belong to a site, before the rules are applied and after."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusiondsl.engine import Fired
from fusiondsl.pictures.nodes import Look


@dataclass(frozen=True, slots=True)
class Region:
    """The nodes of a site by name."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class Regions:
    """The regions of all sites of a graph that was rewritten."""

    def __init__(
        self,
        before: Look,
        after: Look,
        fired: Iterable[Fired],
        matched: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> None:
        """`matched` has the calls that stand for the source of a site that fired."""
        self._then = {name: place for place, name in enumerate(before.nodes)}
        self._now = {name: place for place, name in enumerate(after.nodes)}
        self._fired = tuple(fired)
        self._named = [matched.get((f.rule, f.node), (f.node,)) for f in self._fired]
        self._maker = {name: i for i, f in enumerate(self._fired) for name in f.new_nodes}
        self._old: list[dict[str, None]] = []
        for names in self._named:
            self._old.append(dict.fromkeys(self._origins(names)))
        self._new = [dict.fromkeys(f.new_nodes) for f in self._fired]
        _spread(self._old, before, after)
        _spread(self._new, after, before)

    def fired(self, index: int) -> Region:
        """Of the site that was rewritten as the `index`-th."""
        new = self._written(index, set())
        return Region(_in_order(self._then, self._old[index]), _in_order(self._now, new))

    def standing(self, names: Iterable[str]) -> Region:
        """Of calls that no rule rewrote, some of which a rule may have written."""
        names = tuple(names)
        return Region(_in_order(self._then, self._origins(names)), _in_order(self._now, names))

    def _origins(self, names: Iterable[str]) -> Iterable[str]:
        """Names of the first graph; for what a rule wrote, those of its source."""
        for name in names:
            if name in self._then:
                yield name
            elif name in self._maker and self._maker[name] < len(self._old):
                yield from self._old[self._maker[name]]

    def _written(self, index: int, seen: set[int]) -> Iterable[str]:
        """What a site wrote; where another rule took that, what it made of it."""
        seen.add(index)
        new = [name for name in self._new[index] if name in self._now]
        if new:
            yield from new
            return
        for other, names in enumerate(self._named):
            if other not in seen and set(names) & self._new[index].keys():
                yield from self._written(other, seen)


def _in_order(places: Mapping[str, int], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name in places}, key=places.__getitem__))


def _spread(owned: list[dict[str, None]], here: Look, there: Look) -> None:
    """Gives views, items and the like that are here alone to the site around them."""
    loose = [name for name in here.nodes if not (name in there.nodes and here.has(name, there))]
    beside: dict[str, list[str]] = {name: [] for name in loose}
    for name in loose:
        for source in here.nodes[name].inputs:
            if source in beside:
                beside[name].append(source)
                beside[source].append(name)
    owner = {name: i for i, names in enumerate(owned) for name in names}
    waiting = deque(name for names in owned for name in names if name in beside)
    while waiting:
        name = waiting.popleft()
        for other in beside[name]:
            if other not in owner:
                owner[other] = owner[name]
                owned[owner[name]][other] = None
                waiting.append(other)
