"""Whether a spelling fits its form: sizes of views and results, and the form's conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.dims import Facts, Truth, equal, evaluate, truth
from fusiondsl.engine.compile import Compiled
from fusiondsl.engine.forms import BodyForm
from fusiondsl.engine.mutation import VALUES, Version
from fusiondsl.engine.pattern import UNSET, literal_key
from fusiondsl.engine.recognised import Recognised
from fusiondsl.engine.signatures import Signatures
from fusiondsl.engine.symbols import Size, facts_for, shape_of
from fusiondsl.engine.typecheck import Problem, TypeBinder, scalar_value


class FormCheck:
    """The `Check` of one graph."""

    def __init__(self, compiled: Compiled, shape_env: Any, signatures: Signatures) -> None:
        self._compiled = compiled
        self._shape_env = shape_env
        self._signatures = signatures
        self._scopes: dict[Any, Mapping[str, Any] | None] = {}
        self._fits: dict[Any, bool] = {}
        self.unfit: list[Recognised] = []
        """Calls that look like a form of an op, and fit no form of it."""

    def none_fits(self, call: Recognised) -> None:
        self.unfit.append(call)

    def problem(self, call: Recognised) -> Problem:
        """Why a call does not fit the form it looks like."""
        assert call.form is not None
        found = self._problem(call.form, call)
        assert found is not None
        return found

    def direct(self, form: ir.Form, call: Recognised) -> bool:
        if not form.where:
            return True
        key = self._arguments(form, call.args)
        if key is None:
            return self._problem(form, call) is None
        fits = self._fits.get(key)
        if fits is None:
            fits = self._fits[key] = self._problem(form, call) is None
        return fits

    def _arguments(self, form: ir.Form, args: Iterable[Any]) -> Any:
        """All that conditions of a form may ask; None where a scalar is a node of this graph."""
        items: list[Any] = [id(form)]
        for arg in args:
            known = self._signatures.number(arg, False) if isinstance(arg, VALUES) else None
            if known is None and isinstance(arg, VALUES):
                return None
            items.append(literal_key(arg) if known is None else known)
        return tuple(items)

    def _problem(self, form: ir.Form, call: Recognised) -> Problem | None:
        params = self._compiled.program.ops[call.op].call_params
        given = dict(zip([p.name for p in params], call.args, strict=True))
        binder = self._binder({}, given.values())
        for param in params:
            if isinstance(param.type, ir.ScalarType):
                binder.scope[param.name] = scalar_value(given[param.name])
        problem = _bind_params(params, given, binder) or binder.finish()
        return problem or self._unmet(form, binder)

    def body(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Mapping[str, Any] | None:
        key = self._key(entry, slots, calls)
        if key is None:
            return self._body(entry, slots, calls)
        if key not in self._scopes:
            self._scopes[key] = self._body(entry, slots, calls)
        return self._scopes[key]

    def _key(self, entry: BodyForm, slots: list[Any], calls: list[Recognised]) -> Any:
        """All that the scope depends on; None where a scalar is a node of this graph."""
        number = self._signatures.number
        items: list[Any] = [id(entry)]
        for slot in entry.bound:
            item = slots[slot]
            if not isinstance(item, VALUES):
                items.append(None if item is UNSET else literal_key(item))
                continue
            known = number(item, False)
            if known is None:
                return None
            items.append(known)
        for sized in entry.sized:
            nodes = calls[sized.place].results.get(sized.result)
            items.append(number(nodes[0], False) if nodes else None)
        for slot in entry.computed:
            item = slots[slot]
            if isinstance(item, VALUES):
                return None
            items.append(None if item is UNSET else literal_key(item))
        return tuple(items)

    def _body(
        self, entry: BodyForm, slots: list[Any], calls: list[Recognised]
    ) -> Mapping[str, Any] | None:
        given = {
            name: slots[slot] for name, slot in entry.path.slots.items() if slots[slot] is not UNSET
        }
        binder = self._binder(entry.fixed, given.values())
        for name, item in given.items():
            if _tensor(item) is None:
                binder.scope[name] = scalar_value(item)
        problem = _bind_params(entry.params, given, binder)
        if problem is None:
            problem = _bind_values(entry, calls, binder)
        if problem is not None or binder.finish() is not None:
            return None
        if not self._computed(entry, slots, binder) or self._unmet(entry.form, binder) is not None:
            return None
        return binder.scope

    def _binder(self, fixed: Mapping[str, Any], items: Iterable[Any]) -> TypeBinder:
        compiled = self._compiled
        scope: dict[str, Any] = dict(compiled.constants)
        scope.update({name: scalar_value(value) for name, value in fixed.items()})
        sizes: list[Size] = []
        for item in items:
            tensor = _tensor(item)
            if tensor is not None:
                sizes.extend(shape_of(tensor))
        facts = facts_for(self._shape_env, sizes)
        return TypeBinder(scope, facts, compiled.target.arch, compiled.program.dtype_sets)

    def _computed(self, entry: BodyForm, slots: list[Any], binder: TypeBinder) -> bool:
        for slot, operand in entry.path.constants:
            if isinstance(operand, ir.Computed) and slots[slot] is not UNSET:
                wanted = evaluate(
                    operand.expr, binder.scope, binder.facts, self._compiled.functions
                )
                found = scalar_value(slots[slot])
                if values_equal(wanted, found, binder.facts) is not Truth.TRUE:
                    return False
        return True

    def _unmet(self, form: ir.Form, binder: TypeBinder) -> Problem | None:
        """The first condition of a form that is not known to hold."""
        functions = self._compiled.functions
        for condition in form.where:
            verdict = truth(condition.expr, binder.scope, binder.facts, functions)
            if verdict.truth is not Truth.TRUE:
                known = verdict.truth is Truth.FALSE
                kind = "predicate false" if known else "predicate unknown"
                return Problem(kind, verdict.reason, condition.label)
        return None


def values_equal(wanted: Any, found: Any, facts: Facts) -> Truth:
    verdict = equal(wanted, found, facts)
    return verdict if isinstance(verdict, Truth) else Truth.UNKNOWN


def _tensor(item: Any) -> torch.Tensor | None:
    if not isinstance(item, (fx.Node, Version)):
        return None
    value = item.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def _bind_params(
    params: Sequence[ir.Param], given: Mapping[str, Any], binder: TypeBinder
) -> Problem | None:
    for param in params:
        if not isinstance(param.type, ir.TensorType) or param.name not in given:
            continue
        tensor = _tensor(given[param.name])
        if tensor is None:
            if not param.type.optional:
                return Problem("structure", f"{param.name} is not a tensor")
            binder.scope[param.name] = None
            continue
        problem = binder.tensor(param.name, param.type, tensor)
        if problem is not None:
            return problem
    return None


def _bind_values(entry: BodyForm, calls: list[Recognised], binder: TypeBinder) -> Problem | None:
    """Views and results: the places where sizes are part of what is computed."""
    for sized in entry.sized:
        nodes = calls[sized.place].results.get(sized.result)
        tensor = _tensor(nodes[0]) if nodes else None
        if tensor is None:
            continue
        problem = binder.dims(sized.name, sized.type.dims, shape_of(tensor))
        if problem is None and sized.is_result:
            problem = binder.dtype(sized.name, sized.type.dtype, tensor.dtype)
        if problem is not None:
            return problem
    return None
