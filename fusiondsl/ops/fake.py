"""The fake implementation of a declaration: results by type alone, symbolic sizes included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusiondsl.ir.program import Branch, OpDecl, Result, Step, TensorType
from fusiondsl.ops.binding import bind, check_conditions, complete, dtype_of
from fusiondsl.ops.context import Context
from fusiondsl.ops.errors import ArgumentError
from fusiondsl.ops.scope import NotWhole, Scope, Undecided, sizes, truth


def fake_function(decl: OpDecl, context: Context) -> Callable[..., Any]:
    """What is registered as the op's fake."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        arguments = complete(decl, args, kwargs)
        scope = bind(decl, arguments, context)
        check_conditions(decl, scope)
        return as_returns(allocate_results(decl, scope, device_of(decl, arguments)))

    return fake


def as_returns(results: list[torch.Tensor | None]) -> Any:
    """Results as the dispatcher wants them: nothing, the one, or a tuple."""
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def allocate_results(decl: OpDecl, scope: Scope, device: torch.device) -> list[torch.Tensor | None]:
    """Uninitialised results with the declared shape, dtype and strides."""
    present = assigned_results(decl, scope)
    return [
        allocate(decl, result, scope, device) if result.name in present else None
        for result in decl.results
    ]


def allocate(decl: OpDecl, result: Result, scope: Scope, device: torch.device) -> torch.Tensor:
    kind = result.type
    assert isinstance(kind, TensorType), f"{decl.name}: result {result.name} is no tensor"
    try:
        shape = sizes(kind.dims, scope)
        dtype = dtype_of(kind, scope)
        if kind.strides is None:
            return torch.empty(shape, dtype=dtype, device=device)
        strides = sizes(kind.strides, scope)
    except (NotWhole, Undecided) as problem:
        raise ArgumentError(
            f"{decl.torch_name}: result `{result.name}` has no type here: {problem}"
        ) from None
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def device_of(decl: OpDecl, arguments: Mapping[str, Any]) -> torch.device:
    """The device of the first tensor argument."""
    for param in decl.params:
        value = arguments[param.name]
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cpu")


def assigned_results(decl: OpDecl, scope: Scope) -> frozenset[str]:
    """The results this call has: optional ones are absent where `means` does not assign them."""
    required = {r.name for r in decl.results if not _optional(r)}
    if decl.means is None or len(required) == len(decl.results):
        return frozenset(r.name for r in decl.results)
    return frozenset(required | _assigned(decl.means, scope, decl))


def _optional(result: Result) -> bool:
    return isinstance(result.type, TensorType) and result.type.optional


def _assigned(steps: Sequence[Step], scope: Scope, decl: OpDecl) -> set[str]:
    names: set[str] = set()
    for step in steps:
        if isinstance(step, Branch):
            names |= _assigned(taken(step, scope, decl), scope, decl)
        else:
            names.update(name for name in step.results if name is not None)
    return names


def taken(branch: Branch, scope: Scope, decl: OpDecl) -> tuple[Step, ...]:
    """The side of a `case` that this call takes."""
    holds = truth(branch.condition, scope)
    if holds is None:
        raise ArgumentError(f"{decl.torch_name}: a `case` of its meaning is not decided here")
    return branch.then if holds else branch.otherwise
