"""A rule's source as another one is laid over it: its calls, and which values others may read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from fusiondsl.decl.primitives import CHEAP
from fusiondsl.dims.expr import DType, Expr, Literal, Name
from fusiondsl.ir.program import (
    Call,
    Computed,
    Const,
    ListOf,
    Operand,
    Ref,
    Rule,
    ScalarType,
    TensorType,
    Unrounded,
)


@dataclass(frozen=True)
class Side:
    """One spelling of a rule's source.

    Every result has a name, also one that the rule drops. Scalar parameters are `Computed`, so that
    every `Ref` is a tensor.
    """

    rule: Rule
    calls: tuple[Call, ...]
    visible: frozenset[str]
    """Values that outlive the rewriting, so that anybody may read them."""
    staying: frozenset[int]
    """Calls that stay whole."""
    preparing: frozenset[int]
    """Calls that stay if somebody else reads their results."""
    spelled: str = ""
    """How an op of the source is spelled here, as `op:form`; empty where all stand as written."""
    types: Mapping[str, TensorType] = field(default_factory=dict)
    """Types of values inside the form; other types are the rule's."""
    links: tuple[tuple[str, TensorType], ...] = ()
    """Values of the rule with the types that the op of the form gives them."""
    where: tuple[Expr, ...] = ()
    """Conditions of the form."""
    fixed: tuple[tuple[Operand, Const], ...] = ()
    """Scalars of the rule for which the form stands only with this value."""

    @cached_property
    def producer(self) -> dict[str, int]:
        return {name: i for i, call in enumerate(self.calls) for name in call.results if name}

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The tensors that each call reads."""
        return tuple(tuple(tensors_of(call)) for call in self.calls)

    @cached_property
    def hideable(self) -> frozenset[str]:
        """Results that nobody but the rule's own calls may read."""
        lasting = self.staying | self.preparing
        return frozenset(
            name
            for index, call in enumerate(self.calls)
            if index not in lasting
            for name in call.results
            if name is not None and name not in self.visible
        )

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for index, read in enumerate(self.reads):
            for name in dict.fromkeys(read):
                found.setdefault(name, []).append(index)
        return {name: tuple(indices) for name, indices in found.items()}

    @cached_property
    def ops(self) -> Counter[str]:
        return Counter(call.op for call in self.calls)

    @cached_property
    def by_op(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for index, call in enumerate(self.calls):
            found.setdefault(call.op, []).append(index)
        return {op: tuple(indices) for op, indices in found.items()}


def side_of(rule: Rule) -> Side:
    """The source as it is written."""
    calls = tuple(opaque_scalars(_named(call, i), rule) for i, call in enumerate(rule.match))
    lasting = {old for old, _ in rule.outputs}
    staying = _producers(calls, rule.kept)
    lasting.update(name for index in staying for name in calls[index].results if name)
    return as_side(rule, calls, frozenset(lasting), staying, frozenset(range(len(calls))))


def as_side(
    rule: Rule,
    calls: tuple[Call, ...],
    visible: frozenset[str],
    staying: frozenset[int],
    written: frozenset[int],
) -> Side:
    """`written` are the calls that the rule itself writes."""
    preparing = _preparing(calls, rule, set(visible), staying, written)
    return Side(rule, calls, visible, staying, preparing)


def opaque_scalars(call: Call, rule: Rule) -> Call:
    """Scalar parameters as computed scalars."""
    scalars = {p.name for p in rule.params if isinstance(p.type, ScalarType)}
    return replace(call, args=tuple(_opaque(arg, scalars) for arg in call.args))


def tensors_of(call: Call) -> Iterator[str]:
    """Names of the tensors that a call reads, in order."""
    return tensors_in(call.args)


def tensors_in(args: Iterable[Operand]) -> Iterator[str]:
    for arg in args:
        yield from _refs(arg)


def as_expr(operand: Operand) -> Expr | None:
    """A scalar as an expression; None for tensors, lists and `_`."""
    match operand:
        case Const(value=DType(name=name)):
            return Name(name)
        case Const(value=None | bool() | int() | float() | str() as value):
            return Literal(value)
        case Computed():
            return operand.expr
        case _:
            return None


def _refs(operand: Operand) -> Iterable[str]:
    match operand:
        case Ref() | Unrounded():
            yield operand.name
        case ListOf():
            for item in operand.items:
                yield from _refs(item)


def _opaque(operand: Operand, scalars: set[str]) -> Operand:
    if isinstance(operand, Ref) and operand.name in scalars:
        return Computed(Name(operand.name))
    if isinstance(operand, ListOf):
        return ListOf(tuple(_opaque(item, scalars) for item in operand.items))
    return operand


def _named(call: Call, index: int) -> Call:
    """A dropped result gets a name that no rule can write."""
    results = tuple(name or f"_{index}.{r}" for r, name in enumerate(call.results))
    return replace(call, results=results)


def _producers(calls: tuple[Call, ...], kept: tuple[str, ...]) -> frozenset[int]:
    """The calls that kept values are computed by."""
    producer = {name: i for i, call in enumerate(calls) for name in call.results if name}
    found: set[int] = set()
    pending = [producer[name] for name in kept if name in producer]
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            pending.extend(producer[n] for n in tensors_of(calls[index]) if n in producer)
    return frozenset(found)


def _preparing(
    calls: tuple[Call, ...],
    rule: Rule,
    lasting: set[str],
    staying: frozenset[int],
    written: frozenset[int],
) -> frozenset[int]:
    """Casts, views and slices, and primitives of the inputs alone, where what they read stays."""
    inputs = {p.name for p in rule.params if isinstance(p.type, TensorType)}
    read = {name for call in calls for name in tensors_of(call)}
    free, there = set(inputs), inputs | lasting
    found: set[int] = set()
    for index, call in enumerate(calls):
        primitive = index in written and call.op.startswith("prim.")
        used = set(tensors_of(call))
        alone = primitive and used <= free and any(r in read for r in call.results)
        if alone:
            free.update(r for r in call.results if r)
        if (alone or call.op in CHEAP) and used <= there and index not in staying:
            found.add(index)
            there.update(r for r in call.results if r)
    return frozenset(found)
