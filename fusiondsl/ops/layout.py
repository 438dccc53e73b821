"""Arguments in the layout their op declares, so that a kernel may count on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusiondsl.dims.expr import Expr, Spread, Wildcard
from fusiondsl.ir.program import OpDecl, TensorType
from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.scope import NotWhole, Scope, Undecided, evaluate


def relaid(decl: OpDecl, scope: Scope) -> dict[str, torch.Tensor]:
    """Copies of the tensors in `scope` whose strides are not the declared ones, by parameter.

    Kernels read strided memory as if it were dense, or refuse it; a copy is always right. A
    parameter is contiguous where its type writes no strides. Raises `ArgumentError` where the
    declared strides have no value for this call.
    """
    copies: dict[str, torch.Tensor] = {}
    for param in decl.params:
        value = scope.values.get(param.name)
        if not isinstance(param.type, TensorType) or not isinstance(value, torch.Tensor):
            continue
        try:
            copy = _laid_out(param.type, value, scope)
        except (NotWhole, Undecided) as problem:
            raise ArgumentError(
                f"{decl.torch_name}: argument `{param.name}` has no layout here: {problem}"
            ) from None
        if copy is not value:
            copies[param.name] = copy
    return copies


def _laid_out(kind: TensorType, value: torch.Tensor, scope: Scope) -> torch.Tensor:
    if kind.strides is None:
        return value.contiguous()
    declared = every_stride(kind.strides, value.dim())
    if declared is None:
        raise Undecided("its strides are declared for another number of dimensions")
    wanted = [None if isinstance(e, Wildcard) else int(evaluate(e, scope)) for e in declared]
    if _fits(value, wanted):
        return value
    known = [stride for stride in wanted if stride is not None]
    if len(known) < len(wanted):
        copy = value.contiguous()
        if not _fits(copy, wanted):
            raise Undecided("a contiguous copy does not have the strides that are declared")
        return copy
    laid_out = torch.empty_strided(value.shape, known, dtype=value.dtype, device=value.device)
    return laid_out.copy_(value)


def _fits(value: torch.Tensor, wanted: Sequence[int | None]) -> bool:
    """A dimension of one element has no stride, and an open one fits."""
    triples = zip(value.shape, value.stride(), wanted, strict=True)
    return all(size == 1 or stride in (there, None) for size, there, stride in triples)


def every_stride(declared: tuple[Expr, ...], rank: int) -> tuple[Expr, ...] | None:
    """One expression for each dimension of a tensor; None where the declaration does not say.

    The first one may stand for any number of leading dimensions if it leaves them open.
    """
    extra = rank - len(declared)
    if isinstance(declared[0], Wildcard) and extra >= -1:
        return (declared[0],) * (extra + 1) + declared[1:]
    return declared if extra == 0 and not isinstance(declared[0], Spread) else None
