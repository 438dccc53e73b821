"""Holds every call of AITER in a declaration against the function that AITER has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeAlias

from fusiondsl.aiter.functions import (
    Function,
    NotFound,
    Parameter,
    find_by_name,
    find_function,
    signature,
)
from fusiondsl.aiter.tree import PACKAGE, Tree
from fusiondsl.ir.program import Impl, OpDecl
from fusiondsl.resources import patterns_root

Signature: TypeAlias = tuple[Parameter, ...]

MAX_PROBLEMS = 20
"""Of one call that are told; nobody reads more."""
_DEFAULT = 60


class Status(Enum):
    FITS = "fits"
    DRIFTED = "drifted"
    """The function is there and takes something else."""
    MISSING = "missing"
    """There is no such function."""
    UNREADABLE = "unreadable"
    """What is there is not understood, so nothing is known."""


@dataclass(frozen=True)
class Finding:
    """One call of AITER by a declaration."""

    op: OpDecl
    impl: Impl
    status: Status
    problems: tuple[str, ...] = ()
    function: Function | None = None
    """The definition that does not fit, or the first one."""


def check_aiter(ops: Iterable[OpDecl], tree: Tree) -> Iterator[Finding]:
    """Every `impl` that names a function of AITER, in the order of the ops."""
    for op in ops:
        for impl in op.impls:
            if impl.location.partition(":")[0].partition(".")[0] == PACKAGE:
                yield _check(op, impl, tree)


def _check(op: OpDecl, impl: Impl, tree: Tree) -> Finding:
    module, _, name = impl.location.partition(":")
    try:
        definitions = find_function(tree, module, name)
    except NotFound as error:
        if error.unreadable:
            return Finding(op, impl, Status.UNREADABLE, (str(error),))
        elsewhere = find_by_name(tree, name)
        moved = () if elsewhere is None else (f"there is a function of that name at {elsewhere}",)
        return Finding(op, impl, Status.MISSING, (str(error), *moved))
    for function in definitions:
        problems = [*_call_problems(impl, function), *_changes(impl, function)]
        if problems:
            rest = len(problems) - MAX_PROBLEMS
            shown = (*problems[:MAX_PROBLEMS], *([f"and {rest} more"] if rest > 0 else []))
            return Finding(op, impl, Status.DRIFTED, shown, function)
    return Finding(op, impl, Status.FITS, (), definitions[0])


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


# --- the call ----------------------------------------------------------------------------------


def _call_problems(impl: Impl, function: Function) -> Iterator[str]:
    """Why Python would not carry out the call."""
    by_position = [p for p in function.parameters if p.by_position]
    filled = {p.name for p in by_position[: len(impl.args)]}
    if len(impl.args) > len(by_position) and not function.any_positional:
        yield (
            f"{len(impl.args)} arguments are passed by position, and it takes {len(by_position)}"
        )
    by_name = {p.name for p in function.parameters if p.by_name}
    for name, _ in impl.kwargs:
        if name in filled:
            yield f"`{name}` is passed twice, by position and by name"
        elif name not in by_name and not function.any_keyword:
            yield f"it has no parameter `{name}`"
    given = filled | {name for name, _ in impl.kwargs}
    for parameter in function.parameters:
        if parameter.default is None and parameter.name not in given:
            how = "" if parameter.by_position else ", which is taken by name only,"
            yield f"`{parameter.name}`{how} has no default and is not passed"


# --- what is known -----------------------------------------------------------------------------


def _changes(impl: Impl, function: Function) -> Iterator[str]:
    """What is not as it was when the declaration was written, where that is known."""
    known = known_signatures().get(impl.location)
    if known is None:
        return
    now = [p for p in function.parameters if p.by_position]
    was = [p for p in known if p.by_position]
    names = {p.name for p in function.parameters}
    for place in range(min(len(impl.args), len(was), len(now))):
        old, new = was[place].name, now[place].name
        if old != new:
            moved = "stands elsewhere, and here is" if old in names else "is now called"
            yield f"parameter {place + 1}, `{old}`, {moved} `{new}`"
    given = {p.name for p in was[: len(impl.args)]} | {name for name, _ in impl.kwargs}
    yield from _changed_defaults(known, function, given)


def _changed_defaults(known: Signature, function: Function, given: set[str]) -> Iterator[str]:
    now: Mapping[str, Parameter] = {p.name: p for p in function.parameters}
    for old in known:
        new = now.get(old.name)
        if new is None or old.name in given or None in (old.default, new.default):
            continue
        if old.default != new.default:
            was = f"was {old.default} and is {shortened(new.default or '', _DEFAULT)}"
            yield f"the default of `{old.name}`, which is not passed, {was}"


@cache
def known_signatures() -> Mapping[str, Signature]:
    """Of functions that shipped declarations call, as they were when those were written."""
    file = patterns_root() / "ops" / "aiter_signatures.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    return {location: signature(text) for location, text in data["functions"].items()}
