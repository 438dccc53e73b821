"""A rule's source without its names: what equal and contained sources are found by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import count

from fusiondsl.analysis.exprs import rewrite
from fusiondsl.decl.primitives import PRIMITIVES
from fusiondsl.dims.expr import Expr, Name, Spread
from fusiondsl.dims.render import render
from fusiondsl.ir.program import (
    Anything,
    Call,
    Computed,
    Const,
    ListOf,
    Operand,
    Ref,
    Rule,
    ScalarType,
    TensorType,
    Type,
    Unrounded,
)

ROUNDS = 3
"""How far the neighbourhood of a value tells it from others."""


@dataclass(frozen=True)
class Source:
    """The match of a rule, by shape.

    `skeleton` is equal for rules that differ in names and scalars only; `scalars` are the scalar
    arguments in an order that depends on the skeleton alone: literals as text, None where any
    value is taken.
    """

    rule: Rule
    calls: tuple[Call, ...]
    """The match with scalar parameters as computed scalars: only values are `Ref`s."""
    skeleton: str
    scalars: tuple[str | None, ...]
    names: Mapping[str, str] = field(hash=False, compare=False)
    """Canonical names of parameters, values, sizes and dtypes."""

    @cached_property
    def ops(self) -> Counter[str]:
        return Counter(call.op for call in self.calls)

    @cached_property
    def survivors(self) -> frozenset[str]:
        """Matched values that still exist afterwards."""
        left = (*(old for old, _ in self.rule.outputs), *self.rule.kept)
        return frozenset(self.names.get(name, name) for name in left)

    @cached_property
    def literal_positions(self) -> frozenset[int]:
        return frozenset(i for i, text in enumerate(self.scalars) if text is not None)

    def rename(self, expr: Expr) -> Expr:
        """An expression over canonical names."""

        def change(e: Expr) -> Expr | None:
            if isinstance(e, Name):
                return Name(self.names.get(e.id, e.id))
            return Spread(self.names.get(e.name, e.name)) if isinstance(e, Spread) else None

        return rewrite(expr, change)


def source_of(rule: Rule) -> Source:
    scalar_names = {p.name for p in rule.params if isinstance(p.type, ScalarType)}
    calls = tuple(_without_scalar_refs(call, scalar_names) for call in rule.match)
    read = {name for call in calls for _, name in _tensor_inputs(call)}
    bare = [_only_read_results(call, read) for call in calls]
    labels = _labels(rule, bare)
    order = sorted(range(len(calls)), key=lambda index: _call_label(bare[index], labels))
    ordered = [calls[index] for index in order]
    names = _canonical_names(rule, ordered, labels)
    skeleton = "\n".join(_call_text(call, names) for call in ordered)
    scalars = tuple(_literal(s) for call in ordered for s in _scalars(call))
    return Source(rule, calls, skeleton, scalars, names)


def _only_read_results(call: Call, read: set[str]) -> Call:
    """Whether a result that no call reads has a name says nothing about the source."""
    return replace(call, results=tuple(r if r in read else None for r in call.results))


def _without_scalar_refs(call: Call, scalars: set[str]) -> Call:
    return replace(call, args=tuple(_opaque(arg, scalars) for arg in call.args))


def _opaque(operand: Operand, scalars: set[str]) -> Operand:
    if isinstance(operand, Ref) and operand.name in scalars:
        return Computed(Name(operand.name))
    if isinstance(operand, ListOf):
        return ListOf(tuple(_opaque(item, scalars) for item in operand.items))
    return operand


# --- labels: what a value looks like from where it stands ----------------------------------------


def _labels(rule: Rule, calls: list[Call]) -> dict[str, int]:
    """Numbers that are equal for values with equal surroundings, whatever they are called."""
    labels = {p.name: 0 for p in rule.params if isinstance(p.type, TensorType)}
    for call in calls:
        label = _number((call.op, _inputs(call, labels)))
        for position, result in enumerate(call.results):
            if result is not None:
                labels[result] = _number((label, position))
    for _ in range(ROUNDS):
        labels = _refined(calls, labels)
    return labels


def _refined(calls: list[Call], labels: dict[str, int]) -> dict[str, int]:
    seen: dict[str, list[int]] = {name: [] for name in labels}
    for call in calls:
        around = _number((call.op, _inputs(call, labels), _outputs(call, labels)))
        for position, name in _tensor_inputs(call):
            place = 0 if _commutes(call) else position
            if name in seen:
                seen[name].append(_number((around, place)))
        for position, result in enumerate(call.results):
            if result is not None:
                seen[result].append(_number((around, -1 - position)))
    return {name: _number((labels[name], tuple(sorted(uses)))) for name, uses in seen.items()}


def _number(item: object) -> int:
    """A number that does not depend on the hash seed."""
    return int.from_bytes(blake2b(repr(item).encode(), digest_size=8).digest(), "big")


def _inputs(call: Call, labels: Mapping[str, int]) -> tuple[int, ...]:
    found = [labels.get(name, 0) for _, name in _tensor_inputs(call)]
    return tuple(sorted(found) if _commutes(call) else found)


def _outputs(call: Call, labels: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(0 if r is None else labels[r] for r in call.results)


def _tensor_inputs(call: Call) -> Iterator[tuple[int, str]]:
    for position, arg in enumerate(call.args):
        for name in _refs(arg):
            yield position, name


def _refs(operand: Operand) -> Iterable[str]:
    match operand:
        case Ref() | Unrounded():
            yield operand.name
        case ListOf():
            for item in operand.items:
                yield from _refs(item)


def _commutes(call: Call) -> bool:
    primitive = PRIMITIVES.get(call.op.removeprefix("prim."))
    return primitive is not None and primitive.commutative and call.op.startswith("prim.")


def _call_label(
    call: Call, labels: Mapping[str, int]
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return call.op, _inputs(call, labels), _outputs(call, labels)


# --- canonical names and text --------------------------------------------------------------------


def _canonical_names(rule: Rule, calls: list[Call], labels: Mapping[str, int]) -> dict[str, str]:
    names: dict[str, str] = {}
    for position, scalar in enumerate(s for call in calls for s in _scalars(call)):
        if isinstance(scalar, Computed) and isinstance(scalar.expr, Name):
            names.setdefault(scalar.expr.id, f"k{position}")
    for index, call in enumerate(calls):
        for position, result in enumerate(call.results):
            if result is not None:
                names[result] = f"c{index}.{position}"
    params: list[str] = []
    for call in calls:
        inputs = [name for _, name in _tensor_inputs(call) if name not in names]
        if _commutes(call):
            inputs.sort(key=lambda name: (labels.get(name, 0), name))
        params.extend(name for name in inputs if name not in params)
    names.update((name, f"p{index}") for index, name in enumerate(params))
    types = {p.name: p.type for p in rule.params}
    _type_names([types[name] for name in params], names)
    return names


def _type_names(kinds: list[Type], names: dict[str, str]) -> None:
    """Sizes and dtype variables in the order of the canonical parameters."""
    fresh = count()
    for kind in kinds:
        if not isinstance(kind, TensorType):
            continue
        written = [kind.dtype] if kind.dtype[:1].isupper() else []  # a variable
        written.extend(dim.name for dim in kind.dims if isinstance(dim, Spread))
        written.extend(dim.id for dim in kind.dims if isinstance(dim, Name))
        for name in written:
            if name not in names:
                names[name] = f"t{next(fresh)}"


def _call_text(call: Call, names: Mapping[str, str]) -> str:
    args = [_shape_of(arg, names) for arg in call.args]
    if _commutes(call):
        args.sort()
    return f"{call.op}({','.join(args)})"


def _shape_of(operand: Operand, names: Mapping[str, str]) -> str:
    """A tensor by its canonical name, a scalar as a hole."""
    match operand:
        case Ref() | Unrounded():
            return names.get(operand.name, "?")
        case ListOf():
            return f"[{','.join(_shape_of(item, names) for item in operand.items)}]"
        case Const(value=None):
            return "none"
        case _:
            return "?"


def _scalars(call: Call) -> Iterator[Operand]:
    for arg in call.args:
        yield from _scalar(arg)


def _scalar(operand: Operand) -> Iterator[Operand]:
    match operand:
        case Const() | Computed() | Anything():
            yield operand
        case ListOf():
            for item in operand.items:
                yield from _scalar(item)


def _literal(scalar: Operand) -> str | None:
    return repr(scalar) if isinstance(scalar, Const) else None


# --- conditions that a rule's types make ---------------------------------------------------------


def type_conditions(source: Source) -> frozenset[str]:
    """What the types of the parameters demand, over canonical names."""
    found: set[str] = set()
    for param in source.rule.params:
        if isinstance(param.type, TensorType):
            name = source.names.get(param.name, param.name)
            found.update(_demands(param.type, name, source))
    return frozenset(found)


def _demands(kind: TensorType, name: str, source: Source) -> Iterator[str]:
    yield f"{name} is {source.names.get(kind.dtype, kind.dtype)}"
    dims = [render(source.rename(dim)) for dim in kind.dims]
    yield f"{name} has [{', '.join(dims)}]"
    if kind.strides is not None:
        yield f"{name} lies {[render(source.rename(s)) for s in kind.strides]}"


# --- containment ---------------------------------------------------------------------------------


def contains(outer: Source, inner: Source) -> bool:
    """Is the source of `inner` a part of that of `outer`, wiring included?"""
    if inner.ops - outer.ops:
        return False
    return _embed(inner.calls, 0, outer.calls, {}, frozenset())


def contains_calls(outer: tuple[Call, ...], inner: tuple[Call, ...]) -> bool:
    """The same for bodies; scalars are not compared."""
    if Counter(call.op for call in inner) - Counter(call.op for call in outer):
        return False
    return _embed(inner, 0, outer, {}, frozenset())


def _embed(
    inner: tuple[Call, ...],
    position: int,
    outer: tuple[Call, ...],
    where: dict[str, str],
    used: frozenset[int],
) -> bool:
    # last call first: a consumer decides where its producers can be
    if position == len(inner):
        return True
    call = inner[len(inner) - 1 - position]
    for index, other in enumerate(outer):
        if index in used or other.op != call.op:
            continue
        for extended in _pairings(call, other, where):
            if _embed(inner, position + 1, outer, extended, used | {index}):
                return True
    return False


def _pairings(call: Call, other: Call, where: dict[str, str]) -> Iterator[dict[str, str]]:
    """The ways in which `call` can stand for `other`, given what is decided."""
    known = _extended(where, zip(call.results, other.results, strict=False))
    if known is None:
        return
    mine = [name for _, name in _tensor_inputs(call)]
    others = [name for _, name in _tensor_inputs(other)]
    if len(mine) != len(others):
        return
    for order in (others, others[::-1]) if _commutes(call) and len(mine) == 2 else (others,):
        extended = _extended(known, zip(mine, order, strict=True))
        if extended is not None:
            yield extended


def _extended(
    where: dict[str, str], pairs: Iterable[tuple[str | None, str | None]]
) -> dict[str, str] | None:
    extended = dict(where)
    for mine, other in pairs:
        if mine is None or other is None:
            continue
        if extended.setdefault(mine, other) != other:
            return None
    return extended


# --- the other side ------------------------------------------------------------------------------


def replacement_text(source: Source) -> str:
    """`replace` over canonical names; equal texts do the same."""
    names = dict(source.names)
    lines = []
    for call in source.rule.replace:
        args = ",".join(_operand_text(arg, source, names) for arg in call.args)
        for result in call.results:
            if result is not None:
                names.setdefault(result, f"w{len(names)}")
        results = ",".join("_" if r is None else names[r] for r in call.results)
        lines.append(f"{results}={call.op}({args})")
    return "\n".join(lines)


def _operand_text(operand: Operand, source: Source, names: Mapping[str, str]) -> str:
    match operand:
        case Ref() | Unrounded():
            return names.get(operand.name, operand.name)
        case Computed():
            return render(source.rename(operand.expr))
        case ListOf():
            return f"[{','.join(_operand_text(item, source, names) for item in operand.items)}]"
        case _:
            return repr(operand)
