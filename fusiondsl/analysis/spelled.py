"""Sources with one op written out as one of its forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fusiondsl.analysis.exprs import rewrite
from fusiondsl.analysis.side import Side, as_expr, as_side
from fusiondsl.dims.expr import Expr, Name, Spread
from fusiondsl.dims.names import names
from fusiondsl.ir.program import (
    Anything,
    Call,
    Computed,
    Const,
    Form,
    ListOf,
    OpDecl,
    Operand,
    Ref,
    TensorType,
    Unrounded,
)
from fusiondsl.ir.strata import admitted_forms


@dataclass(frozen=True, slots=True)
class Spelling:
    """A call of a source, and a form it may be written out as."""

    side: Side
    index: int
    form: Form
    decl: OpDecl

    @property
    def ops(self) -> frozenset[str]:
        return frozenset(call.op for call in self.form.body)

    def side_of(self) -> Side | None:
        """The source with that form; None where the form cannot say what the call says."""
        try:
            return _Writer(self).side()
        except _Unsaid:
            return None


def spellings(side: Side, ops: Mapping[str, OpDecl]) -> Iterator[Spelling]:
    for index, call in enumerate(side.calls):
        decl = ops.get(call.op)
        if decl is not None:
            for form in admitted_forms(side.rule, call, ops):
                yield Spelling(side, index, form, decl)


class _Unsaid(Exception):
    """The call gives an argument that the form does not have."""


class _Writer:
    """Names of the form and of its op get a prefix, so that they are not those of the rule."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.call = spelling.side.calls[spelling.index]
        self.form = spelling.form
        self.prefix = f"{spelling.index}:"
        params = spelling.decl.call_params
        self.args = dict(zip((p.name for p in params), self.call.args, strict=True))
        found = zip(spelling.form.results, self.call.results, strict=True)
        self.results = {inner: outer for inner, outer in found if inner is not None}

    def side(self) -> Side:
        side, index = self.spelling.side, self.spelling.index
        fixed = tuple(self._fixed())
        body = tuple(self._call(call, n) for n, call in enumerate(self.form.body))
        calls = (*side.calls[:index], *body, *side.calls[index + 1 :])
        places = [
            (place + len(body) - 1 if place > index else place) for place in side.staying - {index}
        ]
        if index in side.staying:
            places += range(index, index + len(body))
        written = frozenset(range(index)) | frozenset(range(index + len(body), len(calls)))
        return replace(
            as_side(side.rule, calls, side.visible, frozenset(places), written),
            spelled=f"{self.call.op}:{self.form.name}",
            types={self._value(n): self._type(t) for n, t in self._inner_types()},
            links=tuple(self._links()),
            where=tuple(self._expr(c.expr) for c in self.form.where),
            fixed=fixed,
        )

    def _fixed(self) -> Iterator[tuple[Operand, Const]]:
        for name, value in self.form.fixed:
            given = self.args[name]
            if isinstance(given, Const):
                if repr(given) != repr(value):
                    raise _Unsaid
            elif not isinstance(given, Anything):
                yield given, value

    # --- the body --------------------------------------------------------------------------------

    def _call(self, call: Call, number: int) -> Call:
        results = tuple(
            f"{self.prefix}_{number}.{r}" if name is None else self._value(name)
            for r, name in enumerate(call.results)
        )
        return replace(call, args=tuple(map(self._operand, call.args)), results=results)

    def _value(self, name: str) -> str:
        outer = self.results.get(name)
        return outer if outer is not None else f"{self.prefix}{name}"

    def _operand(self, operand: Operand) -> Operand:
        match operand:
            case Ref() | Unrounded():
                given = self.args.get(operand.name)
                return Ref(self._value(operand.name)) if given is None else given
            case ListOf():
                return ListOf(tuple(map(self._operand, operand.items)))
            case Computed(expr=Name() as name) if name.id in self.args:
                return self.args[name.id]
            case Computed():
                return Computed(self._expr(operand.expr))
            case _:
                return operand

    # --- sizes, dtypes, conditions ---------------------------------------------------------------

    def _expr(self, expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            if isinstance(part, Spread):
                return Spread(f"{self.prefix}{part.name}")
            if not isinstance(part, Name):
                return None
            if part.id in self.args:
                return self._given(self.args[part.id])
            return Name(f"{self.prefix}{part.id}") if part.id in self._own else part

        return rewrite(expr, change)

    def _given(self, operand: Operand) -> Expr:
        found = Name(operand.name) if isinstance(operand, Ref) else as_expr(operand)
        if found is None:
            raise _Unsaid
        return found

    @cached_property
    def _own(self) -> frozenset[str]:
        """Sizes and dtype variables of the op."""
        decl = self.spelling.decl
        kinds = [p.type for p in decl.call_params] + [r.type for r in decl.call_results]
        tensors = [kind for kind in kinds if isinstance(kind, TensorType)]
        found = {n for kind in tensors for dim in kind.dims for n in _names(dim)}
        return frozenset(found | {kind.dtype for kind in tensors if kind.dtype[:1].isupper()})

    def _type(self, kind: TensorType) -> TensorType:
        strides = None if kind.strides is None else tuple(map(self._expr, kind.strides))
        named = self._expr(Name(kind.dtype))
        dtype = named.id if isinstance(named, Name) else kind.dtype
        return TensorType(dtype, tuple(map(self._expr, kind.dims)), strides, kind.optional)

    def _inner_types(self) -> Iterator[tuple[str, TensorType]]:
        for name, kind in self.form.types:
            if isinstance(kind, TensorType) and self.results.get(name) is None:
                yield name, kind

    def _links(self) -> Iterator[tuple[str, TensorType]]:
        """Values of the rule with the types that the op says they have."""
        for param in self.spelling.decl.call_params:
            given = self.args[param.name]
            if isinstance(param.type, TensorType) and isinstance(given, Ref):
                yield given.name, self._type(param.type)
        for result, name in zip(self.spelling.decl.call_results, self.call.results, strict=True):
            if isinstance(result.type, TensorType) and name is not None:
                yield name, self._type(result.type)


def _names(dim: Expr) -> Iterator[str]:
    yield from (dim.name,) if isinstance(dim, Spread) else names(dim)
