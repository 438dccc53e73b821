"""What a call of a fusiondsl op runs: its kernel, or the reference where that is allowed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from fusiondsl.ir.program import OpDecl, Result
from fusiondsl.ops import reference
from fusiondsl.ops.binding import bind, check_conditions, complete
from fusiondsl.ops.context import Context
from fusiondsl.ops.errors import KernelContractError, MissingKernelError
from fusiondsl.ops.fake import allocate, as_returns, assigned_results, device_of
from fusiondsl.ops.kernels import Kernel, find_kernel, run_kernel
from fusiondsl.ops.scope import Scope

__all__ = ["MissingKernelError", "implementation", "reference_allowed", "reference_ops"]

SWITCH = "FUSIONDSL_REFERENCE_OPS"

_Outputs = dict[str, torch.Tensor | None]

_allowed_depth = 0


@contextmanager
def reference_ops() -> Iterator[None]:
    """Allows reference implementations inside the block, in every thread."""
    global _allowed_depth
    _allowed_depth += 1
    try:
        yield
    finally:
        _allowed_depth -= 1


def reference_allowed() -> bool:
    return _allowed_depth > 0 or os.environ.get(SWITCH, "").lower() in ("1", "true", "yes", "on")


def implementation(decl: OpDecl, context: Context) -> Callable[..., Any]:
    """What is registered as the op's implementation, for every backend."""

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = complete(decl, args, kwargs)
        scope = bind(decl, arguments, context)
        check_conditions(decl, scope)
        outputs = _compute(decl, context, arguments, scope)
        _write_back(decl, arguments, outputs)
        return as_returns(_own_results(decl, arguments, outputs, scope))

    return call


def _compute(
    decl: OpDecl, context: Context, arguments: Mapping[str, Any], scope: Scope
) -> _Outputs:
    kernel, tried = _first_kernel(decl, scope)
    if kernel is not None:
        return run_kernel(kernel, decl, scope, device_of(decl, arguments))
    if reference_allowed():
        return reference.run(decl, context, arguments)
    raise MissingKernelError(_refusal(decl, tried))


def _first_kernel(decl: OpDecl, scope: Scope) -> tuple[Kernel | None, list[str]]:
    tried: list[str] = []
    for impl in decl.impls:
        found = find_kernel(decl, impl, scope)
        if isinstance(found, Kernel):
            return found, tried
        tried.append(f"{impl.location}: {found}")
    return None, tried


def _refusal(decl: OpDecl, tried: list[str]) -> str:
    lines = [f"no kernel for `{decl.name}` ({decl.torch_name}) is available here"]
    lines += [f"  tried {reason}" for reason in tried] or ["  it declares no `impl`"]
    lines.append(f"  set {SWITCH}=1 or use fusiondsl.ops.reference_ops() to run its slow reference")
    return "\n".join(lines)


# --- results -----------------------------------------------------------------------------------


def _write_back(decl: OpDecl, arguments: Mapping[str, Any], outputs: _Outputs) -> None:
    """Copies results of mutated arguments into their buffers."""
    for param in decl.params:
        buffer, value = arguments[param.name], outputs.get(param.name)
        mutated = param.kind in ("out", "inout") and buffer is not None
        if mutated and value is not None and value is not buffer:
            buffer.copy_(value)


def _own_results(
    decl: OpDecl, arguments: Mapping[str, Any], outputs: _Outputs, scope: Scope
) -> list[torch.Tensor | None]:
    present = assigned_results(decl, scope)
    inputs = [v for v in arguments.values() if isinstance(v, torch.Tensor)]
    taken = list(inputs)
    results: list[torch.Tensor | None] = []
    for result in decl.results:
        if result.name not in present:
            results.append(None)
            continue
        value = _as_declared(decl, result, outputs.get(result.name), scope, taken)
        taken.append(value)
        results.append(value)
    return results


def _as_declared(
    decl: OpDecl,
    result: Result,
    value: torch.Tensor | None,
    scope: Scope,
    taken: list[torch.Tensor],
) -> torch.Tensor:
    """`value` with the declared dtype, shape and strides, in storage of its own."""
    device = torch.device("meta")
    wanted = allocate(decl, result, scope, device)
    if value is None:
        raise KernelContractError(f"{decl.torch_name}: result `{result.name}` was not returned")
    if value.dtype != wanted.dtype and value.dtype.itemsize == wanted.dtype.itemsize == 1:
        value = value.view(wanted.dtype)
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        raise KernelContractError(
            f"{decl.torch_name}: result `{result.name}` is {value.dtype}{list(value.shape)}, "
            f"declared {wanted.dtype}{list(wanted.shape)}"
        )
    if value.stride() == wanted.stride() and not _shares_storage(value, taken):
        return value
    laid_out = torch.empty_strided(
        wanted.shape, wanted.stride(), dtype=wanted.dtype, device=value.device
    )
    return laid_out.copy_(value)


def _shares_storage(value: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """A functional op must return fresh storage, also where its kernel works in place."""
    own = value.untyped_storage().data_ptr()
    return own != 0 and any(own == other.untyped_storage().data_ptr() for other in others)
