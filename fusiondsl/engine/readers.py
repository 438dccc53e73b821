"""Who reads a value that a rule replaces: `read_as` in its `where`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.engine import aten
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import literal_key
from fusiondsl.engine.symbols import shape_of
from fusiondsl.engine.typecheck import Problem

if TYPE_CHECKING:
    from fusiondsl.engine.site import Site
    from fusiondsl.engine.view import View


@dataclass(frozen=True, slots=True, eq=False)
class ReadersOf:
    """A `read_as` condition, with its roles as they stand in graphs."""

    written: ir.Readers
    place: int
    result: int
    positions: Mapping[str, frozenset[int]]
    """By op: the arguments through which it may read the value."""
    given: Mapping[str, tuple[tuple[int, int | None], ...]]
    """By op: (argument, slot) of what else it must be given."""


def readers_of(
    written: ir.Readers,
    produced: tuple[int, int],
    slots: Mapping[str, int],
    program: ir.Program,
) -> ReadersOf:
    """An op stands for those of its forms that are one call as well."""
    positions: dict[str, set[int]] = {}
    given: dict[str, tuple[tuple[int, int | None], ...]] = {}
    for op, parameter in written.roles:
        for name, places in _spellings(program.ops[op], program):
            if parameter not in places or any(p not in places for p, _ in written.given):
                continue
            positions.setdefault(name, set()).add(places[parameter])
            given[name] = tuple((places[p], slots.get(s)) for p, s in written.given)
    return ReadersOf(written, *produced, {k: frozenset(v) for k, v in positions.items()}, given)


def _spellings(decl: ir.OpDecl, program: ir.Program) -> Iterator[tuple[str, dict[str, int]]]:
    """Ops that may stand for `decl`, with the arguments they take its parameters as."""
    name = next(name for name, other in program.ops.items() if other is decl)
    yield name, {p.name: position for position, p in enumerate(decl.call_params)}
    for form in decl.forms:
        (*others, call) = form.body
        if others or call.op not in program.ops:
            continue
        yield call.op, {o.name: i for i, o in enumerate(call.args) if isinstance(o, ir.Ref)}


def misread(view: View, site: Site) -> Problem | None:
    """A reader of a replaced value that is none of those the rule names."""
    for wanted in site.rule.readers:
        for value in site.results.get((wanted.place, wanted.result), ()):
            other = _other_reader(view, site, wanted, value)
            if other is not None:
                reader = "graph output" if other.op == "output" else str(other.target)
                message = f"{wanted.written.value} is read by {other.name} ({reader})"
                return Problem("predicate false", message, wanted.written.label, node=other.name)
    return None


def _other_reader(view: View, site: Site, wanted: ReadersOf, value: Any) -> fx.Node | None:
    pending = [value]
    while pending:
        read = pending.pop()
        user: fx.Node
        for user in read.users:
            if user in site.own or user.target is torch.ops.aten.sym_size.int:
                continue
            if _passes_on(user, read):
                pending.append(user)
            elif not _is_among(view, site, wanted, user, read):
                return user
    return None


def _passes_on(user: fx.Node, read: Any) -> bool:
    """A reshape or copy: who reads that reads the value."""
    if user.target in aten.VIEWS:
        return True
    if user.target not in aten.NO_OPS or aten.first_argument(user) is not read:
        return False
    new, old = user.meta.get("val"), read.meta.get("val")
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor):
        return False
    return new.dtype is old.dtype and shape_of(new) == shape_of(old)


def _is_among(view: View, site: Site, wanted: ReadersOf, user: fx.Node, read: Any) -> bool:
    call = view.now(user)
    if call is None or read in call.buffers:
        return False
    allowed = wanted.positions.get(call.op)
    if allowed is None:
        return False
    at = {position for position, arg in enumerate(call.args) if _holds(arg, read)}
    if not at or not at <= allowed or any(call.args[position] is not read for position in at):
        return False
    given = wanted.given[call.op]
    return all(slot is not None and _same(call.args[i], site.slots[slot]) for i, slot in given)


def _same(arg: Any, bound: Any) -> bool:
    if isinstance(arg, VALUES) or isinstance(bound, VALUES):
        return arg is bound
    return literal_key(arg) == literal_key(bound)


def _holds(arg: Any, read: Any) -> bool:
    if isinstance(arg, (tuple, list)):
        return any(_holds(item, read) for item in arg)
    return arg is read
