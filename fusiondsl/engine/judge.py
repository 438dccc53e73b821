"""Types, conditions and the right side of a rule, judged once for each signature of its inputs.

Sites of one model repeat: the same dtypes, sizes, strides and scalars in every layer. What follows
from those alone is worked out once and remembered for the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import fx

from fusiondsl import ir
from fusiondsl.dims import Dim, Facts, Range, Truth, evaluate, show, truth
from fusiondsl.engine.compile import SIZED, Compiled
from fusiondsl.engine.dryrun import dry_run
from fusiondsl.engine.formcheck import values_equal
from fusiondsl.engine.layout import is_contiguous, same_layout, text
from fusiondsl.engine.mutation import VALUES
from fusiondsl.engine.pattern import literal_key
from fusiondsl.engine.recipe import CREATIONS, Inexpressible, Operands, OpStep, Recipe
from fusiondsl.engine.signatures import Numbers, Signatures
from fusiondsl.engine.site import Site, tensor_of
from fusiondsl.engine.sizes import Sizes, symbolic
from fusiondsl.engine.symbols import Size, facts_for, shape_of, strides_of
from fusiondsl.engine.typecheck import Problem, TypeBinder, fits_kind, scalar_value


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem` is None where the rule may be applied."""

    problem: Problem | None
    label: str | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)
    operands: Operands | None = None
    needs: tuple[Size, ...] = ()
    """Symbolic sizes that have to be written at the site."""
    same_shape: frozenset[str] = frozenset()
    """Results of the right side that have the very shape of what they replace."""
    relaid: frozenset[str] = frozenset()
    """Results with other strides than what they replace, where the rule allows that."""
    memo: dict[Any, Any] = field(default_factory=dict)
    """What the emitter works out once for this verdict."""


_MOST_KNOWN = 4096
"""Verdicts, and numbers of signatures, kept from one graph to the next."""


class Verdicts:
    """What one graph leaves for the next one of the same rules.

    A verdict holds wherever signatures, scalars and the ranges of symbols are the same.
    """

    def __init__(self) -> None:
        self.numbers = Numbers()
        self._by_key: dict[Any, Verdict] = {}

    def get(self, key: Any) -> Verdict | None:
        return self._by_key.get(key)

    def keep(self, key: Any, verdict: Verdict) -> None:
        if max(len(self._by_key), len(self.numbers)) >= _MOST_KNOWN:
            self._by_key.clear()
            self.numbers.forget()
        self._by_key[key] = verdict


class Judge:
    """Verdicts for one graph."""

    def __init__(
        self,
        compiled: Compiled,
        shape_env: Any,
        fake_mode: Any,
        sizes: Sizes,
        tokens: range | None,
        signatures: Signatures,
        known: Verdicts,
    ) -> None:
        self._compiled = compiled
        self._shape_env = shape_env
        self._fake_mode = fake_mode
        self._sizes = sizes
        self._tokens = tokens
        self._known = known
        self._signatures = signatures
        self._verdicts: dict[Any, Verdict] = {}
        self._equal: Mapping[str, str] = {}
        """Symbols that are known to be equal; asked for when a site is refused for a size."""

    @cached_property
    def _context(self) -> tuple[Any, ...]:
        """What verdicts hang on besides the site; asked for by the first one."""
        rows = None if self._tokens is None else self._sizes.row_counts
        return self._tokens, _all_ranges(self._shape_env), rows

    # --- rules -----------------------------------------------------------------------------------

    def judge(self, site: Site) -> Verdict:
        key = self._key(site)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._recall(site, key)
            if verdict.problem is not None and verdict.problem.kind in _OF_SIZES:
                verdict = self._again(site, key, verdict)
            self._verdicts[key] = verdict
        if verdict.relaid:
            verdict = _returned_as_it_was(site, verdict)
        if verdict.needs and not self._sizes.are_inputs(verdict.needs):
            return self._writable(site, verdict)
        return verdict

    def _again(self, site: Site, key: Any, refused: Verdict) -> Verdict:
        """The verdict with what calls of the graph say of its symbols, if that is more."""
        equal = self._sizes.equal(self._compiled.bindings)
        if equal == self._equal:
            return refused
        self._equal = equal
        return self._recall(site, key)

    def _recall(self, site: Site, key: Any) -> Verdict:
        """A verdict of an earlier graph, unless the site has a scalar that is a node."""
        slots = site.slots
        if any(isinstance(slots[s], VALUES) for s in site.rule.scalar_slots):
            return self._judge(site)
        full = (self._context, tuple(self._equal.items()), key)
        verdict = self._known.get(full)
        if verdict is None:
            verdict = self._judge(site)
            self._known.keep(full, verdict)
        return verdict

    def _writable(self, site: Site, verdict: Verdict) -> Verdict:
        tensors = [node for _, node in site.inputs if isinstance(node, fx.Node)]
        for size in verdict.needs:
            if not self._sizes.expressible(size, tensors):
                return Verdict(Problem("structure", f"the size {size} cannot be written here"))
        return verdict

    def _key(self, site: Site) -> Any:
        """All that the verdict depends on, equal at sites that repeat."""
        rule, slots, results = site.rule, site.slots, site.results
        number = self._signatures.number
        laid_out = rule.recipe.laid_out
        key: list[Any] = [id(rule)]
        for name, _, slot in rule.tensors:
            value = None if slot is None else slots[slot]
            key.append(None if value is None else number(value, name in laid_out))
        for slot in rule.scalar_slots:
            item = slots[slot]
            if type(item) in _ATOMS:
                key += type(item), item
            else:
                key.append(id(item) if isinstance(item, VALUES) else literal_key(item))
        for place in rule.seen:
            values = results.get(place)
            key.append(number(values[0], True) if values else None)
        for place in rule.inner:
            values = results.get(place)
            key.append(_dtype(values[0]) if values else None)
        for call in site.calls:
            key.append(id(call.form))
        return tuple(key)

    def _judge(self, site: Site) -> Verdict:
        rule = site.rule
        forms = self._forms(site)
        if forms is not None:
            return Verdict(forms)
        scope: dict[str, Any] = dict(self._compiled.constants)
        for name, declared, slot in rule.scalars:
            item = None if slot is None else site.slots[slot]
            if slot is not None and not fits_kind(declared, item):
                message = f"{name} is {_show(item)}, not a {declared.kind}"
                return Verdict(Problem("constant", message))
            if slot is not None:
                scope[name] = scalar_value(item)
        facts = self._facts(site)
        binder = TypeBinder(
            scope, facts, self._compiled.target.arch, self._compiled.program.dtype_sets
        )
        problem = self._bind(site, binder) or binder.finish()
        if problem is not None:
            return Verdict(problem)
        facts = self._bound_tokens(scope, facts)
        problem = self._computed(site, scope, facts)
        if problem is not None:
            return Verdict(problem)
        for condition in rule.site_conditions:
            verdict = truth(condition.expr, scope, facts, self._compiled.functions)
            if verdict.truth is not Truth.TRUE:
                known = verdict.truth is Truth.FALSE
                kind = "predicate false" if known else "predicate unknown"
                return Verdict(Problem(kind, verdict.reason), condition.label)
        return self._dry_run(site, scope, facts)

    def _forms(self, site: Site) -> Problem | None:
        for place, admitted in site.rule.admitted.items():
            call = site.calls[place]
            name = None if call.form is None else call.form.name
            if name not in admitted:
                assert call.form is not None
                kinds = ", ".join(d.kind for d in call.form.differs)
                return Problem(
                    "difference",
                    f"{call.op} is spelled as form {name}, which differs by {kinds}: "
                    "more than the rule allows",
                )
        return None

    def _facts(self, site: Site) -> Facts:
        sizes: list[Size] = []
        for call in site.calls:
            for values in (*call.results.values(), call.args):
                for value in values:
                    tensor = tensor_of(value) if isinstance(value, VALUES) else None
                    if tensor is not None:
                        sizes.extend(shape_of(tensor))
        facts = facts_for(self._shape_env, sizes)
        return replace(facts, equal=self._equal) if self._equal else facts

    def _bind(self, site: Site, binder: TypeBinder) -> Problem | None:
        for name, declared, slot in site.rule.tensors:
            value = None if slot is None else site.slots[slot]
            if value is None:
                if slot is not None and not declared.optional:
                    return Problem("structure", f"{name} is none, the rule wants a tensor")
                binder.scope[name] = None
                continue
            tensor = tensor_of(value)
            if tensor is None:
                return Problem("structure", f"{name} ({value.name}) has no tensor value")
            problem = binder.tensor(name, declared, tensor)
            if problem is not None:
                return problem
        types = dict(site.rule.rule.types)
        for name, place, result in site.rule.values:
            values = site.results.get((place, result))
            declared_type = types.get(name)
            if not values or not isinstance(declared_type, ir.TensorType):
                continue
            tensor = tensor_of(values[0])
            if tensor is None:
                continue
            problem = binder.dtype(name, declared_type.dtype, tensor.dtype)
            if problem is None and site.calls[place].op in SIZED:
                problem = binder.dims(name, declared_type.dims, shape_of(tensor))
            if problem is not None:
                return problem
        return None

    def _bound_tokens(self, scope: dict[str, Any], facts: Facts) -> Facts:
        """Applies the range given for `tokens` to the rule's `tokens`.

        Where an input has `T` rows and the rule's tokens are `2 * T`, the range is that of `T`.
        """
        tokens = scope.get("tokens")
        if self._tokens is None or not isinstance(tokens, Dim) or tokens.as_int() is not None:
            return facts
        given = Range(self._tokens.start, self._tokens.stop - 1)
        symbol = tokens.as_symbol() or self._row_count(tokens)
        if symbol is None:
            # A product of symbols: from here on one quantity with its own range.
            meet = _meet(facts.bounds(tokens), given)
            scope["tokens"] = Dim.symbol("tokens")
            return facts.with_range("tokens", meet.lo, meet.hi)
        meet = _meet(facts.bounds(Dim.symbol(symbol)), given)
        return facts.with_range(symbol, meet.lo, meet.hi)

    def _row_count(self, tokens: Dim) -> str | None:
        """The one symbol of `tokens`, if it is the number of rows of an input by itself."""
        first, *others = tokens.symbols()
        return first if not others and first in self._sizes.row_counts else None

    def _computed(self, site: Site, scope: Mapping[str, Any], facts: Facts) -> Problem | None:
        for slot, operand in site.rule.computed:
            assert isinstance(operand, ir.Computed), operand
            wanted = evaluate(operand.expr, scope, facts, self._compiled.functions)
            found = scalar_value(site.slots[slot])
            same = values_equal(wanted, found, facts)
            if same is not Truth.TRUE:
                return Problem("constant", f"expected {show(wanted)}, found {show(found)}")
        return None

    def _dry_run(self, site: Site, scope: Mapping[str, Any], facts: Facts) -> Verdict:
        operands = Operands(
            self._compiled.bindings, scope, facts, self._compiled.functions, self._compiled.dtypes
        )
        read = (*site.inputs, *site.kept)
        inputs = {n: v for n, node in read if (v := tensor_of(node)) is not None}
        wanted = {
            written: (name, tensor)
            for name, written, values in site.outputs
            if (tensor := tensor_of(values[0])) is not None
        }
        try:
            outcome = dry_run(
                self._compiled,
                site.rule.recipe,
                operands,
                inputs,
                wanted,
                facts,
                self._fake_mode,
                self._shape_env,
                frozenset(a.value or "" for a in site.rule.rule.allow if a.kind == "relayout"),
            )
        except Inexpressible as error:
            return Verdict(Problem("structure", str(error)))
        if isinstance(outcome, Problem):
            return Verdict(outcome, outcome.label)
        same = frozenset(
            written
            for written, (_, tensor) in wanted.items()
            if shape_of(outcome[written]) == shape_of(tensor)
        )
        relaid = frozenset(
            written
            for written, (_, tensor) in wanted.items()
            if not same_layout(outcome[written], tensor)
        )
        needs = _needed_sizes(site.rule.recipe, outcome, wanted, same)
        return Verdict(None, None, scope, operands, needs, same, relaid)


def _returned_as_it_was(site: Site, verdict: Verdict) -> Verdict:
    """What a graph returns keeps its strides: of other results a contiguous copy is made."""
    for name, written, values in site.outputs:
        tensor = tensor_of(values[0]) if written in verdict.relaid else None
        returned = any(user.op == "output" for value in values for user in value.users)
        if tensor is not None and returned and not is_contiguous(tensor):
            strides = text(strides_of(tensor))
            message = f"the graph returns {name} with the strides {strides}; it would have others"
            return Verdict(Problem("layout", message, about=name))
    return verdict


def _needed_sizes(
    recipe: Recipe,
    made: Mapping[str, torch.Tensor],
    wanted: Mapping[str, tuple[str, torch.Tensor]],
    same_shape: frozenset[str],
) -> tuple[Size, ...]:
    """Symbolic sizes of buffers, of created tensors and of outputs that must be reshaped."""
    shapes = [
        shape_of(made[name])
        for step in recipe.steps
        if step.op in CREATIONS or (isinstance(step, OpStep) and step.mutates)
        for name in step.results
        if name is not None and name in made
    ]
    # With one symbolic size a reshape says -1.
    reshaped = [shape_of(t) for name, (_, t) in wanted.items() if name not in same_shape]
    shapes += [shape for shape in reshaped if len(symbolic(shape)) > 1]
    return tuple(dict.fromkeys(size for shape in shapes for size in symbolic(shape)))


_OF_SIZES = frozenset({"shape", "predicate unknown"})
"""Problems that may be gone once more is known of the sizes."""
_ATOMS = frozenset({int, float, bool, str, torch.dtype, type(None)})


def _all_ranges(shape_env: Any) -> tuple[Any, ...]:
    if shape_env is None:
        return ()
    return tuple((str(s), str(r.lower), str(r.upper)) for s, r in shape_env.var_to_range.items())


def _meet(known: Range, given: Range) -> Range:
    try:
        return known.meet(given)
    except ValueError:  # the caller's range is the truth for this compilation
        return given


def _dtype(value: Any) -> torch.dtype | None:
    tensor = value.meta.get("val")
    return tensor.dtype if isinstance(tensor, torch.Tensor) else None


def _show(item: Any) -> str:
    return item.name if isinstance(item, VALUES) else repr(item)
