"""The engine's checks of a site, all of them and not only up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fusiondsl import ir
from fusiondsl.dims import Facts, Truth, evaluate, names, show, truth
from fusiondsl.dims.expr import Expr
from fusiondsl.engine.compile import SIZED
from fusiondsl.engine.formcheck import values_equal
from fusiondsl.engine.judge import Judge
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import UNSET
from fusiondsl.engine.site import Site, tensor_of
from fusiondsl.engine.symbols import shape_of
from fusiondsl.engine.typecheck import Problem, TypeBinder, fits_kind, scalar_value
from fusiondsl.engine.why.show import value_text
from fusiondsl.engine.why.sketch import param_name, place_of
from fusiondsl.target import ENV_FACTS


class Examiner(Judge):
    """A judge that hears everything. What is missing from a site is not asked about."""

    def problems(self, site: Site, *, whole: bool) -> Iterator[Problem]:
        """In the order in which `judge` looks; `whole`: nothing of the source is missing."""
        found = False
        for problem in self._asked(site):
            found = True
            yield problem
        if whole and not found:
            verdict = self.judge(site)
            if verdict.problem is not None:
                yield replace(verdict.problem, label=verdict.label)

    def _asked(self, site: Site) -> Iterator[Problem]:
        refused = self._forms(site)
        if refused is not None:
            yield refused
        scope: dict[str, Any] = dict(self._compiled.constants)
        for name, declared, slot in site.rule.scalars:
            item = UNSET if slot is None else site.slots[slot]
            if item is UNSET:
                continue
            if fits_kind(declared, item):
                scope[name] = scalar_value(item)
            else:
                message = f"{name} is {value_text(item)}, not a {declared.kind}"
                yield Problem("constant", message, about=name)
        facts = self._facts(site)
        arch, sets = self._compiled.target.arch, self._compiled.program.dtype_sets
        binder = TypeBinder(scope, facts, arch, sets)
        yield from self._types(site, binder)
        refused = binder.finish()
        if refused is not None:
            yield refused
        facts = self._bound_tokens(scope, facts)
        yield from self._scalars(site, scope, facts)
        yield from self._conditions(site, scope, facts)

    def _types(self, site: Site, binder: TypeBinder) -> Iterator[Problem]:
        for name, declared, slot in site.rule.tensors:
            value = None if slot is None else site.slots[slot]
            if value is UNSET:
                continue
            if value is None:
                if slot is not None and not declared.optional:
                    yield Problem(
                        "structure", f"{name} is none, the rule wants a tensor", None, name
                    )
                binder.scope[name] = None
                continue
            tensor = tensor_of(value) if isinstance(value, VALUES) else None
            if tensor is None:
                message = f"{name} ({value_text(value)}) has no tensor value"
                yield Problem("structure", message, None, name)
                continue
            for problem in (
                binder.dtype(name, declared.dtype, tensor.dtype),
                binder.dims(name, declared.dims, shape_of(tensor)),
            ):
                if problem is not None:
                    yield replace(problem, node=value.name)
        types = dict(site.rule.rule.types)
        for name, place, result in site.rule.values:
            values = site.results.get((place, result))
            declared_type = types.get(name)
            tensor = tensor_of(values[0]) if values else None
            if tensor is None or not values or not isinstance(declared_type, ir.TensorType):
                continue
            problem = binder.dtype(name, declared_type.dtype, tensor.dtype)
            if problem is None and site.calls[place].op in SIZED:
                problem = binder.dims(name, declared_type.dims, shape_of(tensor))
            if problem is not None:
                yield replace(problem, node=values[0].name)

    def _scalars(self, site: Site, scope: dict[str, Any], facts: Facts) -> Iterator[Problem]:
        for slot, operand in site.rule.computed:
            assert isinstance(operand, ir.Computed), operand
            if site.slots[slot] is UNSET or not _known(operand.expr, scope):
                continue
            wanted = evaluate(operand.expr, scope, facts, self._compiled.functions)
            found = scalar_value(site.slots[slot])
            if values_equal(wanted, found, facts) is Truth.TRUE:
                continue
            place, position = place_of(site.rule.path, slot) or (0, 0)
            call = site.calls[place]
            name = param_name(call.op, position, self._compiled.program.ops)
            yield Problem(
                "constant",
                f"expected {show(wanted)}, found {show(found)}",
                about=name,
                node=call.node.name,
            )

    def _conditions(self, site: Site, scope: dict[str, Any], facts: Facts) -> Iterator[Problem]:
        for condition in site.rule.site_conditions:
            if not _known(condition.expr, scope):
                continue
            verdict = truth(condition.expr, scope, facts, self._compiled.functions)
            if verdict.truth is Truth.TRUE:
                continue
            known = verdict.truth is Truth.FALSE
            kind = "predicate false" if known else "predicate unknown"
            yield Problem(kind, verdict.reason, condition.label, about=condition.label)


def _known(expr: Expr, scope: Mapping[str, Any]) -> bool:
    """A condition on what is missing says nothing."""
    return all(name in scope or name in ENV_FACTS for name in names(expr))
