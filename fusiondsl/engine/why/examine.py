"""The engine's checks of a site, all of them and not only up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from fusiondsl import ir
from fusiondsl.dims import Facts, Truth, evaluate, names, show, truth
from fusiondsl.dims.expr import Expr
from fusiondsl.engine.compile import SIZED
from fusiondsl.engine.formcheck import values_equal
from fusiondsl.engine.judge import Judge
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import UNSET, literal_key
from fusiondsl.engine.site import Site, tensor_of
from fusiondsl.engine.symbols import shape_of
from fusiondsl.engine.typecheck import Problem, TypeBinder, fits_kind, scalar_value
from fusiondsl.engine.why.show import value_text
from fusiondsl.engine.why.sketch import param_name, place_of
from fusiondsl.target import ENV_FACTS

Part: TypeAlias = tuple[str, Any] | None
"""What of a site has a problem: ("slot", slot), ("result", (place, result)), ("call", place)."""


class _Unlike(Exception):
    """A site with something that no other has."""


class Examiner(Judge):
    """A judge that hears everything. What is missing from a site is not asked about."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._equal = self._sizes.equal(self._compiled.bindings)
        self._heard: dict[Any, tuple[tuple[Part, Problem], ...]] = {}

    def problems(self, site: Site, *, whole: bool) -> Iterator[Problem]:
        """In the order in which `judge` looks; `whole`: nothing of the source is missing."""
        found = self._hear(site)
        for part, problem in found:
            yield problem if part is None else replace(problem, node=_node_of(site, part))
        if whole and not found:
            verdict = self.judge(site)
            if verdict.problem is not None:
                yield replace(verdict.problem, label=verdict.label)

    # --- sites that repeat -----------------------------------------------------------------------

    def _hear(self, site: Site) -> tuple[tuple[Part, Problem], ...]:
        """What is asked is answered once for all sites that have the same of it."""
        try:
            key = self._like(site)
        except _Unlike:
            return tuple(self._asked(site))
        found = self._heard.get(key)
        if found is None:
            found = self._heard[key] = tuple(self._asked(site))
        return found

    def _like(self, site: Site) -> Any:
        """All that the answers depend on, up to the names of nodes."""
        rule, slots = site.rule, site.slots
        key: list[Any] = [id(rule)]
        for _, _, slot in rule.tensors:
            value = None if slot is None else slots[slot]
            key.append(value if value is None or value is UNSET else self._number(value))
        for slot in rule.scalar_slots:
            key.append(UNSET if slots[slot] is UNSET else _literal(slots[slot]))
        for _, place, result in rule.values:
            values = site.results.get((place, result))
            key.append(self._signatures.number(values[0], False) if values else None)
        for call in site.calls:
            key.append(id(call.form))
            given = (*(value for values in call.results.values() for value in values), *call.args)
            key += (self._signatures.number(v, False) for v in given if isinstance(v, VALUES))
        return tuple(key)

    def _number(self, value: Any) -> int:
        number = self._signatures.number(value, False) if isinstance(value, VALUES) else None
        if number is None:
            raise _Unlike
        return number

    # --- what is asked ---------------------------------------------------------------------------

    def _asked(self, site: Site) -> Iterator[tuple[Part, Problem]]:
        refused = self._forms(site)
        if refused is not None:
            yield None, refused
        scope: dict[str, Any] = dict(self._compiled.constants)
        for name, declared, slot in site.rule.scalars:
            item = UNSET if slot is None else site.slots[slot]
            if item is UNSET:
                continue
            if fits_kind(declared, item):
                scope[name] = scalar_value(item)
            else:
                message = f"{name} is {value_text(item)}, not a {declared.kind}"
                yield None, Problem("constant", message, about=name)
        facts = self._facts(site)
        arch, sets = self._compiled.target.arch, self._compiled.program.dtype_sets
        binder = TypeBinder(scope, facts, arch, sets)
        yield from self._types(site, binder)
        refused = binder.finish()
        if refused is not None:
            yield None, refused
        facts = self._bound_tokens(scope, facts)
        yield from self._scalars(site, scope, facts)
        yield from self._conditions(site, scope, facts)

    def _types(self, site: Site, binder: TypeBinder) -> Iterator[tuple[Part, Problem]]:
        for name, declared, slot in site.rule.tensors:
            value = None if slot is None else site.slots[slot]
            if value is UNSET:
                continue
            if value is None:
                if slot is not None and not declared.optional:
                    message = f"{name} is none, the rule wants a tensor"
                    yield None, Problem("structure", message, None, name)
                binder.scope[name] = None
                continue
            tensor = tensor_of(value) if isinstance(value, VALUES) else None
            if tensor is None:
                message = f"{name} ({value_text(value)}) has no tensor value"
                yield None, Problem("structure", message, None, name)
                continue
            for problem in (
                binder.dtype(name, declared.dtype, tensor.dtype),
                binder.dims(name, declared.dims, shape_of(tensor)),
            ):
                if problem is not None:
                    yield ("slot", slot), problem
        types = dict(site.rule.rule.types)
        for name, place, result in site.rule.values:
            values = site.results.get((place, result))
            declared_type = types.get(name)
            tensor = tensor_of(values[0]) if values else None
            if tensor is None or not isinstance(declared_type, ir.TensorType):
                continue
            problem = binder.dtype(name, declared_type.dtype, tensor.dtype)
            if problem is None and site.calls[place].op in SIZED:
                problem = binder.dims(name, declared_type.dims, shape_of(tensor))
            if problem is not None:
                yield ("result", (place, result)), problem

    def _scalars(
        self, site: Site, scope: dict[str, Any], facts: Facts
    ) -> Iterator[tuple[Part, Problem]]:
        for slot, operand in site.rule.computed:
            assert isinstance(operand, ir.Computed), operand
            if site.slots[slot] is UNSET or not _known(operand.expr, scope):
                continue
            wanted = evaluate(operand.expr, scope, facts, self._compiled.functions)
            found = scalar_value(site.slots[slot])
            if values_equal(wanted, found, facts) is Truth.TRUE:
                continue
            place, position = place_of(site.rule.path, slot) or (0, 0)
            name = param_name(site.calls[place].op, position, self._compiled.program.ops)
            message = f"expected {show(wanted)}, found {show(found)}"
            yield ("call", place), Problem("constant", message, about=name)

    def _conditions(
        self, site: Site, scope: dict[str, Any], facts: Facts
    ) -> Iterator[tuple[Part, Problem]]:
        for condition in site.rule.site_conditions:
            if not _known(condition.expr, scope):
                continue
            verdict = truth(condition.expr, scope, facts, self._compiled.functions)
            if verdict.truth is Truth.TRUE:
                continue
            known = verdict.truth is Truth.FALSE
            kind = "predicate false" if known else "predicate unknown"
            label = condition.label
            yield None, Problem(kind, verdict.reason, label, about=label)


def _node_of(site: Site, part: tuple[str, Any]) -> str:
    kind, at = part
    if kind == "call":
        value: Any = site.calls[at].node
    else:
        value = site.slots[at] if kind == "slot" else site.results[at][0]
    return str(value.name)


def _literal(item: Any) -> Any:
    """A scalar that is a node, or has nodes in it, is like no other."""
    if isinstance(item, VALUES):
        raise _Unlike
    key = literal_key(item)
    try:
        hash(key)
    except TypeError:
        raise _Unlike from None
    return key


def _known(expr: Expr, scope: Mapping[str, Any]) -> bool:
    """A condition on what is missing says nothing."""
    return all(name in scope or name in ENV_FACTS for name in names(expr))
