"""What a rule demands besides its source: its conditions, and what its new ops require."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusiondsl.analysis.exprs import conjuncts, substitute
from fusiondsl.analysis.side import as_expr
from fusiondsl.decl.dtypes import ANY
from fusiondsl.dims.expr import Binary, Expr, Literal, Name, Spread
from fusiondsl.dims.names import names
from fusiondsl.ir.program import Call, OpDecl, Program, Ref, Rule, TensorType, Type


@dataclass(frozen=True)
class Kernel:
    """Conditions of the ops that a rule calls, over the names of the rule."""

    conditions: tuple[Expr, ...]
    complete: bool
    """Nothing else may refuse a site: ops of other libraries want their layout, what writes into
    its arguments wants them unread, and some sizes have no name in the rule."""


def stated_conditions(rule: Rule, program: Program) -> Iterator[Expr]:
    """The rule's own conditions, and where its new ops are available."""
    yield from (part for c in rule.where for part in conjuncts(c.expr))
    for call in rule.replace:
        decl = program.ops.get(call.op)
        if decl is not None:
            yield from (part for c in decl.available for part in conjuncts(c.expr))


def kernel_of(rule: Rule, program: Program) -> Kernel:
    types = {p.name: p.type for p in rule.params} | dict(rule.types)
    open_ = [Name(name) for name in (ANY, *program.dtype_sets)]
    conditions: list[Expr] = []
    complete = True
    for call in rule.replace:
        decl = program.ops.get(call.op)
        if decl is None:
            continue
        complete = complete and not decl.extern and all(p.kind == "read" for p in decl.params)
        known = _bound(decl, call, types)
        own = {n for p in decl.params for n in _own_names(p.type)}
        unknown = {n for n in own if n not in known or known[n] in open_}
        for condition in decl.where:
            if names(condition.expr) & unknown:
                complete = False
            else:
                conditions += conjuncts(substitute(condition.expr, known))
    return Kernel(tuple(conditions), complete)


def _bound(decl: OpDecl, call: Call, types: Mapping[str, Type]) -> dict[str, Expr]:
    """The names of an op, by what they are in the rule."""
    known: dict[str, Expr] = {}
    for param, arg in zip(decl.call_params, call.args, strict=True):
        actual = types.get(arg.name) if isinstance(arg, Ref) else None
        if isinstance(param.type, TensorType) and isinstance(actual, TensorType):
            known.update(_sizes(param.type, actual))
        else:
            found = Name(arg.name) if isinstance(arg, Ref) else as_expr(arg)
            known.update({} if found is None else {param.name: found})
    return known


def _own_names(kind: Type) -> Iterator[str]:
    if isinstance(kind, TensorType):
        yield kind.dtype
        for dim in kind.dims:
            yield from (dim.name,) if isinstance(dim, Spread) else names(dim)


def _sizes(kind: TensorType, actual: TensorType) -> Iterator[tuple[str, Expr]]:
    """Sizes and dtype of an op, by what they are for one argument."""
    if kind.dtype[:1].isupper():  # a variable
        yield kind.dtype, Name(actual.dtype)
    mine, others = kind.dims, actual.dims
    if mine and isinstance(mine[0], Spread):
        cut = len(others) - len(mine) + 1
        yield mine[0].name, product_of(others[: max(cut, 0)])
        mine, others = mine[1:], others[max(cut, 0) :]
    for dim, size in zip(mine, others, strict=False):
        if isinstance(dim, Name):
            yield dim.id, product_of((size,))


def product_of(dims: tuple[Expr, ...]) -> Expr:
    sizes = [Name(dim.name) if isinstance(dim, Spread) else dim for dim in dims]
    found: Expr = sizes[0] if sizes else Literal(1)
    for size in sizes[1:]:
        found = Binary("*", found, size)
    return found
